"""What a report says in words: its headline, what counts most, a sentence for each figure; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from syncswitch.searcher.learning.words import uses_sentence
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.search.policy_words import policy_sentences, sure_text
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.words import counted
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import SearchInfo


def headline(data: ReportData) -> str:
    """The policy in one sentence; without one, how far its search is."""
    name = data.identity.name
    if data.answer is not None:
        uses = data.use_summaries[data.answer.version]
        said = [policy_sentences(data.answer), *([uses_sentence(uses)] if uses.uses else [])]
        return " ".join(said)  # what it promises stands in figures below
    complete = sum(run.is_complete for run in data.runs)
    if data.search is None:
        return f"{counted(complete, 'run')} of {name} recorded; no search for its policy yet."
    if data.trouble is not None:
        end = "cannot go on" if data.is_evaluation else "has no answer"
        return f"The {data.what} for {name} {end}: {data.trouble}."
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
    gain = data.measured_speed_up
    if gain is not None:
        is_sure = gain.low is not None and gain.high is not None
        between = f" ({gain.low:.2f} to {gain.high:.2f})" if is_sure else ""
        value = f"{'' if is_sure else 'about '}{gain.value:.2f}"
        figures.append((value, f"times as fast as {data.first} alone{between}"))
    if answer is not None:
        figures += _promised(answer, data.first)
        if answer.mean_accuracy is not None:
            figures.append((metric.text(answer.mean_accuracy), metric.name))
    if data.cost is not None and data.cost.bsp_multiples is not None:
        about = "about " if data.cost.baseline_is_estimated else ""
        so_far = "" if data.is_found_here else " so far"
        cost = f"{about}{data.cost.bsp_multiples:.1f}"
        words = f"{data.first} trainings: the cost of the {data.what}{so_far}"
        figures.append((cost, words))
    recurrences = data.recurrences_to_pay_back
    if recurrences is not None:
        times = "never" if math.isinf(recurrences) else f"{math.ceil(recurrences):,}"
        figures.append((times, "trainings until the search has paid off"))
    return figures


def _promised(answer: TimingPolicy, first: str) -> list[tuple[str, str]]:
    """What may be expected of later runs, and how sure that is."""
    figures = []
    metric, usual = answer.decided_by, answer.baseline_kept_share
    mean = f"within {metric.with_unit(f'{answer.threshold:g}')} of {first}'s mean {metric.name}"
    if answer.is_for_guard and answer.expected_time is not None:
        words = f"of the time of {first} alone: a guarded training, failed switches included"
        figures.append((f"{answer.expected_time:.2f}", words))
    if answer.is_for_guard and answer.delivered_share is not None:
        words = f"of 100 guarded trainings deliver a model {mean}"
        figures.append((f"about {100 * answer.delivered_share:.0f}", words))
    if answer.kept_share is not None:
        own = "" if usual is None else f" ({100 * usual:.0f} with {first} alone)"
        bare = " with the bare switch" if answer.is_for_guard else ""
        words = f"of 100 runs{bare} stay {mean}{own}"
        figures.append((f"about {100 * answer.kept_share:.0f}", words))
    if answer.confidence is not None and answer.switch_percent < BASELINE_PERCENT:
        sure = "sure that it saves time" if answer.guarded else "sure that enough runs do"
        figures.append((sure_text(answer.confidence).removesuffix(" sure"), sure))
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


def _points(percents: Iterable[float]) -> str:
    """For example `100, 50, 25 %`."""
    return ", ".join(f"{percent:.6g}" for percent in sorted(percents, reverse=True)) + " %"


def accuracy_sentence(data: ReportData) -> str:
    """For accuracy against switch point."""
    metric, accepted = data.identity.decided_by, data.acceptance
    text = "Further left is an earlier switch, so a shorter training."
    if accepted is not None:
        better, worse = ("less", "plus") if metric.is_less_better else ("more", "less")
        text += (
            f" Accepted is {metric.text(accepted.least_accuracy)} or {better}: the target"
            f" {metric.text(accepted.target_accuracy)} {worse}"
            f" {metric.with_unit(f'{accepted.threshold:g}')} ({accepted.origin})."
        )
    if data.unplaced_runs:
        text += (
            f" Left out: {counted(data.unplaced_runs, 'complete run')}, imported without the switch"
            " point that they count for (candidate_percent)."
        )
    return text


def time_sentence(data: ReportData) -> str:
    """For the training times, and what the search cost."""
    words = []
    if data.baseline_seconds is not None:
        about = "about " if data.baseline_is_estimated else ""
        words.append(f"{data.first} alone takes {about}{data.baseline_seconds:,.1f} s")
    if data.policy_seconds is not None:
        words.append(f"a training with the policy {data.policy_seconds:,.1f} s")
    text = f"{', '.join(words)}." if words else "How long trainings take."
    if data.cost is not None and data.cost.paid_seconds:
        about = "about " if data.cost.baseline_is_estimated else ""
        multiples = data.cost.bsp_multiples
        unit = f", {about}{multiples:.1f} trainings with {data.first} alone" if multiples else ""
        text += f" The {data.what} trained for {data.cost.paid_seconds:,.1f} s{unit}."
    return text


def path_sentence(data: ReportData) -> str:
    """For the course of the search, and why it says what it says."""
    needed = [step for step in data.path if step.is_needed]
    extra = len(data.path) - len(needed)
    also = f", and for {counted(extra, 'speculative run')} in advance" if extra else ""
    asked = f"The search asked for {counted(len(needed), 'run')}{also}."
    if data.trouble is not None:
        return f"{asked} It cannot go on."
    last = needed[-1] if needed else data.path[-1]
    ends = f"above {last.lower_percent:g} % and at most {last.upper_percent:g} %"
    return f"{asked} The answer {'was' if data.is_found_here else 'could still lie'} {ends}."


def uses_figure_sentence(data: ReportData) -> str:
    """For the later runs."""
    kept = sum(use.kept for use in data.uses)
    name = data.identity.decided_by.name
    return f"{kept} of {counted(len(data.uses), 'later run')} kept the {name}."
