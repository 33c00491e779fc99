"""What a policy says, what it gains and what it promises, in sentences; pure."""

from __future__ import annotations

import statistics

from syncswitch.searcher.results.speed_up import SpeedUp, speed_up_of
from syncswitch.searcher.text.values import NONE, counted
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT


def policy_text(policy: TimingPolicy, baseline_seconds: float | None = None) -> str:
    """What a policy says, what was measured, what it gains and what it promises."""
    parts = (policy_sentences(policy, baseline_seconds), promise_sentences(policy))
    return " ".join(filter(None, parts))


def policy_sentences(policy: TimingPolicy, baseline_seconds: float | None = None) -> str:
    """The policy as one would say it, what it gains, and what was measured."""
    first, second = policy.first_protocol.upper(), policy.second_protocol.upper()
    train, steps = f"Train {policy.workload} with {first}", f"{policy.total_worker_steps:,}"
    if policy.switch_percent >= BASELINE_PERCENT:
        why = policy.reason or _why_alone(policy, second)
        return f"{train} for all of its {steps} worker-steps: {why}. {_measured(policy)}"
    again = "".join(
        f", from {percent:g} % on with {(first, second)[number % 2]} again"
        for number, percent in enumerate(policy.later_switches)
    )
    gain = _gain(speed_up_of(policy, baseline_seconds), first)
    return (
        f"{train} for the first {policy.switch_percent:g} % of its {steps} worker-steps, then with"
        f" {second}{again}. {gain}{_measured(policy)}"
    )


def promise_sentences(policy: TimingPolicy) -> str:
    """What may be expected of later runs, and how sure that is; empty where nobody said."""
    first = policy.first_protocol.upper()
    sure = "" if policy.confidence is None else f"{100 * policy.confidence:.0f} % sure"
    if policy.criterion != "kept":
        return sure and (
            f"The search is {sure} that this is the earliest switch that keeps the mean accuracy; a"
            " single run may lose more."
        )
    usual = policy.baseline_kept_share
    metric = policy.decided_by
    within = f"of 100 runs should stay within {metric.with_unit(f'{policy.threshold:g}')} of"
    if policy.switch_percent >= BASELINE_PERCENT:
        return (
            "" if usual is None else f"About {100 * usual:.0f} {within} their mean {metric.name}."
        )
    sentences = []
    if policy.kept_share is not None:
        own = "" if usual is None else f"; with {first} alone, about {100 * usual:.0f} do"
        sentences.append(
            f"About {100 * policy.kept_share:.0f} {within} {first}'s mean {metric.name}{own}."
        )
    if sure:
        enough = ""
        if policy.keep is not None:
            fewer = round(100 * (1 - policy.keep), 6)
            needed = f"{100 * policy.keep:g} of 100"
            enough = f": {needed}, or at most {fewer:g} fewer than {first} alone"
        sentences.append(f"The search is {sure} that enough runs keep the accuracy{enough}.")
    return " ".join(sentences)


def kept_text(policy: TimingPolicy) -> str | None:
    """The promise in a few words, for tables; None where there is none."""
    if policy.kept_share is None:
        return None
    usual, first = policy.baseline_kept_share, policy.first_protocol.upper()
    own = "" if usual is None else f" ({100 * usual:.0f} with {first} alone)"
    return f"about {100 * policy.kept_share:.0f} of 100 runs{own}"


def speed_up_text(found: SpeedUp, digits: int = 1, *, than: str = "") -> str:
    """For example `2.9 times as fast (2.5 to 3.3)`; `about` where no interval is known."""
    value = f"{found.value:.{digits}f} times as fast{than}"
    if found.low is None or found.high is None:
        return f"about {value}"
    low, high = f"{found.low:.{digits}f}", f"{found.high:.{digits}f}"
    return value if low == high else f"{value} ({low} to {high})"


def times_text(found: SpeedUp | None) -> str:
    """The same in a table, for example `2.93 (2.51 to 3.34)`; `-` where it is unknown."""
    if found is None:
        return NONE
    value = f"{found.value:.2f}"
    if found.low is None or found.high is None or found.low == found.high:
        return value
    return f"{value} ({found.low:.2f} to {found.high:.2f})"


def _why_alone(policy: TimingPolicy, second: str) -> str:
    often = " often enough" if policy.criterion == "kept" else ""
    return f"no switch to {second} that was tried keeps the accuracy{often}"


def _gain(found: SpeedUp | None, first: str) -> str:
    if found is None:
        return ""
    but = ""
    if found.value <= 1:
        but = ", so the switch gains nothing here"
    elif found.low is not None and found.low <= 1:
        but = ", so it may gain nothing"
    return f"That is {speed_up_text(found, than=f' as {first} alone')}{but}. "


def _measured(policy: TimingPolicy) -> str:
    """The accuracy with the policy and with the first protocol alone, as far as they are known."""
    accuracies = _accuracies(policy, BASELINE_PERCENT)
    metric = policy.decided_by
    target = f"The target is {metric.text(policy.target_accuracy)}"
    if accuracies:
        mean, runs = statistics.fmean(accuracies), counted(len(accuracies), "run")
        target = f"{policy.first_protocol.upper()} alone reached {metric.text(mean)} ({runs})"
    worse = "more" if metric.is_less_better else "less"
    beta = metric.with_unit(f"{policy.threshold:g}")
    allowed = f"{target}, and up to {beta} {worse} is accepted."
    if policy.switch_percent >= BASELINE_PERCENT or policy.mean_accuracy is None:
        return allowed
    own = len(_accuracies(policy, policy.switch_percent))
    mine = f" ({counted(own, 'run')})" if own else ""
    return (
        f"It reached {metric.with_article} of {metric.text(policy.mean_accuracy)}{mine}. {allowed}"
    )


def _accuracies(policy: TimingPolicy, percent: float) -> list[float]:
    return [run.converged_accuracy for run in policy.evidence if run.switch_percent == percent]
