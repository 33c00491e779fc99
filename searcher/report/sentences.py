"""What a report says in words: the headline and a sentence for each figure; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.series import eventful_runs, switch_point_costs, switch_point_phases
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.text import why
from syncswitch.searcher.text.sentences import policy_text
from syncswitch.searcher.text.uses import uses_sentence
from syncswitch.searcher.text.values import counted
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import SearchInfo


def headline(data: ReportData) -> str:
    """The policy in one sentence; without one, how far its search is."""
    name = data.identity.name
    if data.answer is not None:
        uses = data.use_summaries[data.answer.version]
        return " ".join([policy_text(data.answer), *([uses_sentence(uses)] if uses.uses else [])])
    complete = sum(run.is_complete for run in data.runs)
    if data.search is None:
        return f"{counted(complete, 'run')} of {name} recorded; no search for its policy yet."
    if data.trouble is not None:
        end = "cannot go on" if data.is_evaluation else "has no answer"
        return f"The {_what(data)} for {name} {end}: {data.trouble}."
    if data.is_evaluation:
        return _evaluation_headline(data, data.search)
    made = counted(len(data.path), "run")
    running = sum(run.outcome == "running" for run in data.search_runs)
    state = f"is under way ({running} running)" if running else "was stopped and can go on"
    if not data.path:
        return f"The search for {name} {state}; no run of it is complete yet."
    lower, upper = data.path[-1].lower_percent, data.path[-1].upper_percent
    return (
        f"The search for {name} {state}: after {made} the earliest switch that keeps the accuracy"
        f" lies above {lower:g} % and is at most {upper:g} %."
    )


def _evaluation_headline(data: ReportData, evaluation: SearchInfo) -> str:
    """An evaluation has runs at given switch points, and neither bracket nor answer."""
    complete = sum(run.is_complete for run in data.search_runs)
    running = sum(run.outcome == "running" for run in data.search_runs)
    under_way = f", {running} under way" if running else ""
    return (
        f"An evaluation of a policy for {data.identity.name} at"
        f" {_points(stored_strategy(evaluation).grid())}, which looks for no switch point:"
        f" {counted(complete, 'run')} complete{under_way}."
    )


def key_figures(data: ReportData) -> list[tuple[str, str]]:
    """What counts most, as value and what it is; what is not known is left out."""
    answer, metric = data.answer, data.identity.decided_by
    if answer is None:
        figures = _known_so_far(data)
    else:
        figures = [(f"{answer.switch_percent:g} %", f"of the job in {data.first}")]
    if answer is not None and answer.mean_accuracy is not None:
        figures.append((metric.text(answer.mean_accuracy), metric.name))
    gain = data.measured_speed_up
    if gain is not None:
        is_sure = gain.low is not None and gain.high is not None
        between = f" ({gain.low:.2f} to {gain.high:.2f})" if is_sure else ""
        value = f"{'' if is_sure else 'about '}{gain.value:.2f}"
        figures.append((value, f"times as fast as {data.first} alone{between}"))
    if data.cost is not None and data.cost.bsp_multiples is not None:
        about = "about " if data.cost.baseline_is_estimated else ""
        so_far = "" if data.is_found_here else " so far"
        cost = f"{about}{data.cost.bsp_multiples:.1f}"
        words = f"{data.first} trainings: the cost of the {_what(data)}{so_far}"
        figures.append((cost, words))
    recurrences = data.recurrences_to_pay_back
    if recurrences is not None:
        times = "never" if math.isinf(recurrences) else f"{math.ceil(recurrences):,}"
        figures.append((times, "trainings until the search has paid off"))
    if answer is not None:
        figures += _promised(answer, data.first)
    return figures


def _promised(answer: TimingPolicy, first: str) -> list[tuple[str, str]]:
    """What may be expected of later runs, and how sure that is."""
    figures = []
    if answer.kept_share is not None:
        usual = answer.baseline_kept_share
        own = "" if usual is None else f" ({100 * usual:.0f} with {first} alone)"
        words = f"of 100 runs stay within {answer.threshold:g} of {first}'s mean accuracy{own}"
        figures.append((f"about {100 * answer.kept_share:.0f}", words))
    if answer.confidence is None or (answer.criterion == "kept" and answer.switch_percent >= 100):
        return figures
    tried = _points({run.switch_percent for run in answer.evidence})
    sure = f"sure that this is the earliest of the switch points tried ({tried}) that keeps it"
    if answer.criterion == "kept":
        sure = "sure that enough runs do"
    figures.append((f"{100 * answer.confidence:.0f} %", sure))
    return figures


def _known_so_far(data: ReportData) -> list[tuple[str, str]]:
    """Where there is no policy."""
    figures = [(f"{sum(run.is_complete for run in data.runs)}", "complete runs")]
    for one in data.switch_points:
        if one.candidate_percent == BASELINE_PERCENT and one.mean_accuracy is not None:
            metric = data.identity.decided_by
            words = f"{metric.name} with {data.first} alone"
            figures.append((metric.text(one.mean_accuracy), words))
    if data.baseline_seconds is not None:
        about = "about " if data.baseline_is_estimated else ""
        each = f"{about}{data.baseline_seconds:,.1f} s"
        figures.append((each, f"a training with {data.first} alone"))
    return figures


def accuracy_sentence(data: ReportData) -> str:
    """For accuracy against switch point."""
    diverged = sum(bool(run.trial.diverged) for run in data.compared)
    runs = counted(diverged, "diverged run")
    lost = f" At the bottom: {runs}." if diverged else ""
    if data.unplaced_runs:
        lost += (
            f" Left out: {counted(data.unplaced_runs, 'complete run')}, imported without the switch"
            " point that they stand for (stands_for_percent)."
        )
    if data.acceptance is None:
        return f"Each point is a run; further left means an earlier switch.{lost}"
    accepted = data.acceptance
    good = "A switch point is good where the mean lies in the band or above it"
    if _criterion(data) == "kept":
        good = (
            "A run keeps the accuracy where it lies in the band or above it, and a switch point is"
            " good where enough runs do"
        )
    metric = data.identity.decided_by
    better, worse = ("less", "plus") if metric.is_less_better else ("more", "less")
    return (
        f"Further left is an earlier switch, so a shorter training. {good}: at"
        f" {metric.text(accepted.least_accuracy)} or {better}, which is the target"
        f" {metric.text(accepted.target_accuracy)} {worse} {accepted.threshold:g}"
        f" ({accepted.origin}).{lost}"
    )


def path_sentence(data: ReportData) -> str:
    """For the course of the search."""
    if not data.path:
        return ""
    needed = [step for step in data.path if step.is_needed]
    if data.trouble is not None:
        return f"The search made {counted(len(data.path), 'run')} and cannot go on."
    extra = len(data.path) - len(needed)
    runs = counted(extra, "speculative run")
    unasked = "turned out not to be needed" if data.is_found_here else "may still be needed"
    also = f"; {runs} {unasked}" if extra else ""
    last = needed[-1] if needed else data.path[-1]
    ends = f"above {last.lower_percent:g} % and at most {last.upper_percent:g} %"
    band = "It ended" if data.is_found_here else "The answer could still lie"
    return (
        f"The search asked for {counted(len(needed), 'run')}{also}. The band shows"
        f" where the answer could lie after each run. {band} {ends}."
    )


def belief_sentence(data: ReportData) -> str:
    """For what the search believed."""
    if data.why is None:
        return ""
    certain = why.certainty_sentence(data.why, data.first, data.identity.decided_by)
    marks = "Numbers are percent, a frame is at the run's own switch point, and bold is the answer."
    return f"{why.belief_sentence(data.why)} {marks} {certain}".strip()


def why_sentences(data: ReportData) -> list[str]:
    """What was never tried, and what would change the answer."""
    if data.why is None:
        return []
    changes = why.change_sentences(data.why, data.first, data.identity.decided_by)
    return [*why.untried_sentences(data.why), *changes]


def curves_sentence(data: ReportData) -> str:
    """For accuracy over time."""
    usual, policy = data.baseline_seconds, data.policy_seconds
    sentence = (
        f"Test accuracy while a run trains; the mark on a curve is its switch to {data.second}."
    )
    if usual is None or policy is None or data.speed_up is None:
        return sentence
    about = "about " if data.baseline_is_estimated else ""
    return (
        f"{sentence} A whole training takes {policy:,.1f} s with the policy and"
        f" {about}{usual:,.1f} s with {data.first} alone."
    )


def time_sentence(data: ReportData) -> str:
    """For the training times."""
    if data.baseline_seconds is None:
        return "Shorter is better; nothing is known of the first protocol alone to compare with."
    about = "about " if data.baseline_is_estimated else ""
    base = f"{data.first} alone takes {about}{data.baseline_seconds:,.1f} s"
    if data.answer is not None and data.answer.baseline_seconds:
        base += " (as the policy says; bars are means of all runs)"
    if data.speed_up is None:
        return f"Shorter is better: {base}."
    saved = 100 * (1 - 1 / data.speed_up)
    what = f"saves {saved:.0f} % of it" if saved >= 0 else f"takes {-saved:.0f} % longer"
    return f"Shorter is better: {base}, and the policy {what}."


def cost_sentence(data: ReportData) -> str:
    """For the cost of the search."""
    if data.cost is None:
        return ""
    costs = switch_point_costs(data)
    spared = sum(one.shared_seconds + one.stopped_seconds for one in costs)
    vain = sum(one.unneeded_seconds for one in costs)
    failed = sum(one.failed_runs for one in costs)
    about = "about " if data.cost.baseline_is_estimated else ""
    multiples = data.cost.bsp_multiples
    unit = (
        f", which is {about}{multiples:.1f} trainings with {data.first} alone" if multiples else ""
    )
    sentence = f"The {_what(data)} trained for {data.cost.paid_seconds:,.1f} s{unit}."
    if spared:
        sentence += f" Shared starts and early stops saved it {spared:,.1f} s."
    if vain:
        sentence += f" {vain:,.1f} s went into speculative runs that were not needed."
    if failed:
        runs = counted(failed, "run")
        were, their = ("was", "its") if failed == 1 else ("were", "their")
        sentence += f" {runs} {were} interrupted, stale or failed; {their} time is unknown."
    return sentence


def payback_sentence(data: ReportData) -> str:
    """For paying back the search."""
    recurrences = data.recurrences_to_pay_back
    if recurrences is None or math.isinf(recurrences) or data.speed_up is None:
        return ""
    each = (data.policy_seconds or 0.0) * (data.speed_up - 1)
    return (
        f"Each training with the policy saves {each:,.1f} s, so the search has"
        f" paid off from training {math.ceil(recurrences):,} on, where the lines cross."
    )


def phases_sentence(data: ReportData) -> str:
    """For throughput and staleness."""
    found = switch_point_phases(data)
    means = {
        protocol: [one.worker_steps_per_second or 0.0 for one in found if one.protocol == protocol]
        for protocol in (data.identity.first_protocol, data.identity.second_protocol)
    }
    words = [
        f"{protocol.upper()} does {max(values):,.0f} worker-steps per second at best"
        for protocol, values in means.items()
        if values
    ]
    stale = max((one.max_staleness or 0 for one in found), default=0)
    sentence = f"Higher bars are faster: {', '.join(words)}."
    if stale:
        sentence += (
            " Staleness counts the updates by others between a worker's reading of the model and"
            f" its own update; the largest was {stale}."
        )
    return sentence


def events_sentence(data: ReportData) -> str:
    """For what happened to runs."""
    runs = eventful_runs(data)
    number = sum(len(run.events) for run in runs)
    return (
        f"{counted(number, 'event')} in {counted(len(runs), 'run')}: stragglers, failures and what"
        " was done about them. A line is a run from its start to its end."
    )


def _criterion(data: ReportData) -> str:
    if data.answer is not None:
        return data.answer.criterion
    return "mean" if data.search is None else stored_strategy(data.search).criterion


def _what(data: ReportData) -> str:
    return "evaluation" if data.is_evaluation else "search"


def _points(percents: Iterable[float]) -> str:
    """For example `100, 50, 25 %`."""
    return ", ".join(f"{percent:.6g}" for percent in sorted(percents, reverse=True)) + " %"
