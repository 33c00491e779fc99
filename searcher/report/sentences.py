"""What a report says in words of each figure; pure."""

from __future__ import annotations

import math

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.series import eventful_runs, switch_point_costs, switch_point_phases
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.text import why
from syncswitch.searcher.text.values import counted

_LEADS = "A click on a point leads to its run."


def accuracy_sentence(data: ReportData) -> str:
    """For accuracy against switch point."""
    diverged = sum(bool(run.trial.diverged) for run in data.compared)
    runs = counted(diverged, "diverged run")
    metric = data.identity.decided_by
    place, side = ("top", "below") if metric.is_less_better else ("bottom", "above")
    lost = f" At the {place}: {runs}." if diverged else ""
    if data.unplaced_runs:
        lost += (
            f" Left out: {counted(data.unplaced_runs, 'complete run')}, imported without the switch"
            " point that they count for (candidate_percent)."
        )
    if data.acceptance is None:
        return f"Each point is a run; further left means an earlier switch.{lost} {_LEADS}"
    accepted = data.acceptance
    good = f"A switch point is good where the mean lies in the band or {side} it"
    if _criterion(data) == "kept":
        good = (
            f"A run keeps the accuracy where it lies in the band or {side} it, and a switch point"
            " is good where enough runs do"
        )
    better, worse = ("less", "plus") if metric.is_less_better else ("more", "less")
    return (
        f"Further left is an earlier switch, so a shorter training. {good}: at"
        f" {metric.text(accepted.least_accuracy)} or {better}, which is the target"
        f" {metric.text(accepted.target_accuracy)} {worse}"
        f" {metric.with_unit(f'{accepted.threshold:g}')}"
        f" ({accepted.origin}).{lost} {_LEADS}"
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
        f"Test {data.identity.decided_by.name} while a run trains; the mark on a curve is its"
        f" switch to {data.second}."
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
    gain = data.measured_speed_up
    assert gain is not None  # or there were no speed-up
    saved = 100 * (1 - 1 / gain.value)
    what = f"saves {saved:.0f} % of it" if saved >= 0 else f"takes {-saved:.0f} % longer"
    between = ""
    if gain.low is not None and gain.high is not None:
        least, most = (100 * (1 - 1 / end) for end in (gain.low, gain.high))
        between = f" ({least:.0f} to {most:.0f} %, sure to 90 %)"
    return f"Shorter is better: {base}, and the policy {what}{between}."


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
    sentence = f"The {data.what} trained for {data.cost.paid_seconds:,.1f} s{unit}."
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
    if any(one.is_shared for one in found):
        sentence += " Pale ones were measured by other runs, whose start these share."
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
