"""Policies in words: their switch, their gain, their promise and their later runs; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from syncswitch.searcher.speed_up import SpeedUp, speed_up_of
from syncswitch.searcher.words import NONE, capitalized, counted, sentence
from syncswitch.storage.policies.unmeasured import expected_sentences
from syncswitch.storage.records.goal import Goal
from syncswitch.storage.records.job import ScheduledJob, protocol_text, with_protocol
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.uses.summary import Drift, UseSummary

_LEAST_SPREAD = 2  # runs that say anything of how much they differ


def policy_text(
    policy: TimingPolicy, identity: ScheduledJob, baseline_seconds: float | None = None
) -> str:
    """Returns the policy in sentences: its switch, its gain, what was measured, its promise."""
    parts = (policy_sentences(policy, identity, baseline_seconds), promise_sentences(policy))
    return " ".join(filter(None, parts))


def policy_sentences(
    policy: TimingPolicy, identity: ScheduledJob, baseline_seconds: float | None = None
) -> str:
    """Returns the policy's switch, its gain, and what was measured."""
    pair = policy.protocols.first_protocol, policy.protocols.second_protocol
    first, second = map(protocol_text, pair)
    before, after = map(with_protocol, pair)
    # The name of a command may be any word.
    train = f"Train `{identity.name}`" if identity.is_command else f"Train {policy.job.workload}"
    if policy.switch_percent >= BASELINE_PERCENT:
        why = policy.promise.reason or f"no switch to {second} that was tried keeps the accuracy"
        return f"{train} {before} for all of its {identity.length}: {why}. {_measured(policy)}"
    gain = _gain(speed_up_of(policy, baseline_seconds), first)
    if policy.switch_percent == 0:
        start = f"{train} {after} from the start, for all of its {identity.length}"
        return f"{start}. {gain}{_measured(policy)}"
    part = f"{policy.switch_percent:g} % of its {identity.length}"
    if before.startswith("with"):
        part = f"the first {part}"
    return f"{train} {before} for {part}, then {after}. {gain}{_measured(policy)}"


def promise_sentences(policy: TimingPolicy) -> str:
    """Returns what to expect of later runs, and how certain that is; empty if unknown."""
    first, metric = protocol_text(policy.protocols.first_protocol), policy.job.metric
    within = f"within {metric.with_unit(f'{policy.threshold:g}')} of"
    usual = policy.promise.baseline_kept_share
    if policy.target_accuracy is None:
        return expected_sentences(policy, has_runs=True)
    if policy.switch_percent >= BASELINE_PERCENT:
        if usual is None:
            return ""
        return f"About {_of_100(usual)} of 100 runs should stay {within} their mean {metric.name}."
    mean = f"{within} {first}'s mean {metric.name}"
    parts = (_guarded_promise if policy.guarded else _bare_promise)(policy, first, mean)
    return " ".join(parts)


def held_text(accuracy: float, goal: Goal, metric: Metric, *, is_let_through: bool) -> str:
    """Returns how far a run ended from its target, as `0.0050 below the target 0.9000, ...`."""
    allowed, aim = metric.with_unit(f"{goal.threshold:g}"), metric.text(goal.accuracy)
    lost = f"{metric.amount(goal.accuracy - accuracy)} {metric.words.worse_side} the target {aim}"
    if goal.is_kept(accuracy):
        return f"{lost}, within the accepted {allowed}"
    lost += f", more than the accepted {allowed}"
    if not is_let_through:
        return f"NOT kept: {lost}"
    why = f"the target rests on {counted(goal.runs, 'run')}"
    if goal.spread - goal.threshold > goal.error:
        why = "runs without a switch differ as much by chance"
    return f"{lost}: the guard let it pass, as {why}"


def spread_text(goal: Goal, metric: Metric, first: str) -> str | None:
    """Returns that runs of the first protocol alone differ by more than may be lost, if they do.

    A sentence without its full stop; None as well while a single run says nothing of it.
    """
    if goal.runs < _LEAST_SPREAD or not goal.threshold or goal.spread <= goal.threshold:
        return None
    chance, beta = f"{goal.spread:.2g}", metric.with_unit(f"{goal.threshold:g}")
    return (
        f"{goal.runs} runs of {first} alone differ by more than the"
        f" {beta} that may be lost: by chance, 1 in 20 of them is"
        f" {metric.with_unit(chance)} worse than their mean, so guards accept that much; set a"
        f" threshold of {chance} to accept it everywhere, or measure one with 3 threshold runs"
    )


def _guarded_promise(policy: TimingPolicy, first: str, mean: str) -> Iterator[str]:
    promise = policy.promise
    delivered, bare = promise.delivered_share, promise.kept_share
    usual = promise.baseline_kept_share
    if delivered is not None and bare is not None and usual is not None:
        yield (
            f"About {_of_100(delivered)} of 100 guarded runs should deliver a model {mean};"
            f" without a guard, about {_of_100(bare)}; with {first} alone, about"
            f" {_of_100(usual)}."
        )
    if promise.expected_time is not None:
        sure = ""
        # The probability goes by the measured times; if these leave it open, it is not stated.
        is_faster = policy.measured.speed_up_low is None or policy.measured.speed_up_low > 1
        if promise.confidence is not None and is_faster:
            sure = f" (probability of saving time: {probability_text(promise.confidence)})"
        yield (
            f"A guarded run is expected to take {promise.expected_time:.2f} of the time of"
            f" {first} alone, failed switches included{sure}."
        )


def _bare_promise(policy: TimingPolicy, first: str, mean: str) -> Iterator[str]:
    bare, usual = policy.promise.kept_share, policy.promise.baseline_kept_share
    if bare is not None:
        own = "" if usual is None else f"; with {first} alone, about {_of_100(usual)}"
        yield f"About {_of_100(bare)} of 100 runs should stay {mean}{own}."
    if policy.promise.confidence is not None:
        enough = ""
        if policy.min_kept_share is not None:
            fewer = round(100 * (1 - policy.min_kept_share), 6)
            needed = f"{100 * policy.min_kept_share:g} of 100"
            enough = f": {needed}, or at most {fewer:g} fewer than {first} alone"
        sure = probability_text(policy.promise.confidence)
        yield f"The search is {sure} sure that enough runs keep the accuracy{enough}."


def kept_text(policy: TimingPolicy) -> str | None:
    """Returns the promise in a few words, for tables; None if there is none."""
    if policy.promise.kept_share is None:
        return None
    usual = policy.promise.baseline_kept_share
    first = protocol_text(policy.protocols.first_protocol)
    share, what = policy.promise.kept_share, "runs"
    others = [] if usual is None else [f"{_of_100(usual)} with {first} alone"]
    if policy.is_for_guard and policy.promise.delivered_share is not None:
        others.insert(0, f"{_of_100(share)} without a guard")
        share, what = policy.promise.delivered_share, "guarded runs"
    aside = f" ({', '.join(others)})" if others else ""
    return f"about {_of_100(share)} of 100 {what}{aside}"


def guard_text(policy: TimingPolicy) -> str:
    """Returns what a policy is for."""
    return "guarded runs" if policy.guarded else "runs without a guard"


def expected_time_text(policy: TimingPolicy) -> str | None:
    """Returns the expected time for tables, for example `0.41 of the time of BSP alone`."""
    if policy.promise.expected_time is None:
        return None
    first = protocol_text(policy.protocols.first_protocol)
    return f"{policy.promise.expected_time:.2f} of the time of {first} alone"


def probability_text(probability: float) -> str:
    """Returns a probability in percent; nothing is said to be 100 % sure."""
    percent = _of_100(probability)
    return "over 99 %" if percent == "100" else f"{percent} %"


def _of_100(share: float) -> str:
    return f"{100 * share:.0f}"


def speed_up_text(gain: SpeedUp, digits: int = 1, *, than: str = "") -> str:
    """Returns a speed-up, for example `2.9 times as fast (2.5 to 3.3)`; see `SpeedUp`."""
    value = f"{gain.value:.{digits}f} times as fast{than}"
    if gain.low is None or gain.high is None:
        return f"about {value}"
    low, high = f"{gain.low:.{digits}f}", f"{gain.high:.{digits}f}"
    return value if low == high else f"{value} ({low} to {high})"


def times_text(gain: SpeedUp | None) -> str:
    """Returns a speed-up for tables, for example `2.93 (2.51 to 3.34)`; `-` if it is unknown."""
    if gain is None:
        return NONE
    value = f"{gain.value:.2f}"
    if gain.low is None or gain.high is None or gain.low == gain.high:
        return value
    return f"{value} ({gain.low:.2f} to {gain.high:.2f})"


def _gain(gain: SpeedUp | None, first: str) -> str:
    if gain is None:
        return ""
    but = ""
    if gain.value <= 1:
        but = ", so the switch gains nothing here"
    elif gain.low is not None and gain.low <= 1:
        but = ", so it may gain nothing"
    return f"That is {speed_up_text(gain, than=f' as {first} alone')}{but}. "


def _measured(policy: TimingPolicy) -> str:
    accuracies = _accuracies(policy, BASELINE_PERCENT)
    metric, own_mean = policy.job.metric, policy.measured.mean_accuracy
    if policy.target_accuracy is None:
        reached = ""
        if own_mean is not None:
            reached = f"It reached {metric.with_article} of {metric.text(own_mean)}. "
        first = protocol_text(policy.protocols.first_protocol)
        return f"{reached}No target is measured: no run of {first} alone tells it yet."
    target = f"The target is {metric.text(policy.target_accuracy)}"
    if accuracies:
        mean, runs = statistics.fmean(accuracies), counted(len(accuracies), "run")
        first = capitalized(protocol_text(policy.protocols.first_protocol))
        target = f"{first} alone reached {metric.text(mean)} ({runs})"
    if not policy.allowed.is_known:
        return f"{target}; how much worse is accepted is measured in {policy.allowed.runs} runs."
    beta = metric.with_unit(f"{policy.threshold:g}")
    allowed = f"{target}, and up to {beta} {metric.words.worse} is accepted."
    if policy.switch_percent >= BASELINE_PERCENT or own_mean is None:
        return allowed
    own = len(_accuracies(policy, policy.switch_percent))
    mine = f" ({counted(own, 'run')})" if own else ""
    return f"It reached {metric.with_article} of {metric.text(own_mean)}{mine}. {allowed}"


def _accuracies(policy: TimingPolicy, percent: float) -> list[float]:
    return [run.converged_accuracy for run in policy.evidence if run.switch_percent == percent]


def uses_text(summary: UseSummary) -> str:
    """For example `41 runs: 39 kept the accuracy; the guard went back twice`."""
    if not summary.uses:
        return "not used yet"
    text = counted(summary.uses, "run")
    if summary.kept is None:
        text += ", not judged as no target is measured"
    else:
        text += f": {summary.kept:,} kept the accuracy"
    if summary.speed_up is not None:
        text += f", {summary.speed_up:.2f} times as fast"
    if summary.alarms:
        text += f"; the guard went back {_times(summary.alarms)}"
    if summary.collapsed:
        runs, verb = counted(summary.collapsed, "run"), "is" if summary.collapsed == 1 else "are"
        text += f"; {runs} of the first protocol alone collapsed, and {verb} no part of the target"
    return text if summary.drift is None else f"{text}; {drift_text(summary.drift)}"


def drift_text(drift: Drift) -> str:
    """For example `of the last 10 runs 4 kept the accuracy, of the 40 before them 38: ...`."""
    return (
        f"of the last {drift.newest} runs {drift.newest_kept} kept the accuracy, of the"
        f" {drift.former} before them {drift.former_kept}: the job has changed, search again"
    )


def uses_sentence(summary: UseSummary) -> str:
    """`uses_text` as a sentence."""
    return sentence(f"{'used in ' if summary.uses else ''}{uses_text(summary)}")


def uses_as_json(summary: UseSummary) -> dict[str, Any]:
    """The summary for programs."""
    last = summary.last_ended_at
    return {**asdict(summary), "last_ended_at": None if last is None else last.isoformat()}


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")
