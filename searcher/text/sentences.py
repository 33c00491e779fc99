"""How people say what policies promise, and what clusters and conditions are."""

from __future__ import annotations

import json
import math
import statistics

from syncswitch.searcher.results.speed_up import SpeedUp, speed_up_of
from syncswitch.storage.records.policy import TimingPolicy

_BASELINE_PERCENT = 100.0


def workers_text(workers: int, simulated_cluster: str | None) -> str:
    """The size of a cluster, for example `4 simulated`."""
    return f"{workers}" if simulated_cluster is None else f"{workers} simulated"


def counted(number: int, what: str) -> str:
    """So many things, for example `1 run`, `1,200 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def accuracy_interval(mean: float, low: float | None, high: float | None) -> str:
    """A mean accuracy and its interval, for example `0.9100 ± 0.0021`.

    Where the interval is cut off at what an accuracy can be, as that of few runs that differ much,
    its ends: `0.5000 (0 to 1)`.

    Args:
        mean: 0 to 1.
        low: Of its interval; None for a single run.
        high: Likewise.
    """
    if low is None or high is None:
        return f"{mean:.4f}"
    if math.isclose(mean - low, high - mean, abs_tol=1e-9):
        return f"{mean:.4f} ± {high - mean:.4f}"
    return f"{mean:.4f} ({low:.4g} to {high:.4g})"


def metric_name(metric: str | None) -> str:
    """What is called accuracy, for example `AUC`; `accuracy` where it is just that, or unknown.

    Args:
        metric: As in `WorkloadIdentity`.
    """
    if metric is None or not metric.startswith("{"):
        return metric or "accuracy"
    try:
        return str(json.loads(metric)["class"])
    except (ValueError, KeyError):
        return "accuracy"


def conditions_text(online: str, switch_mechanism: str, injections: str | None) -> str:
    """What of the conditions of a run is not the default, for example `elastic, restart`."""
    online_text = "" if online == "none" else online
    mechanism = "" if switch_mechanism == "hot" else switch_mechanism
    return ", ".join(filter(None, (online_text, mechanism, injections)))


def policy_sentence(policy: TimingPolicy, baseline_seconds: float | None = None) -> str:
    """The policy as one would say it, what was measured, and what it gains.

    Args:
        policy: The policy.
        baseline_seconds: As for `speed_up_of`.
    """
    first, second = policy.first_protocol.upper(), policy.second_protocol.upper()
    steps = f"{policy.total_worker_steps:,} worker-steps"
    if policy.switch_percent >= _BASELINE_PERCENT:
        return (
            f"Train {policy.workload} with {first} for all of its {steps}:"
            f" {_why_alone(policy, second)} ({_with_first_alone(policy)},"
            f" {policy.threshold:g} may be lost)."
        )
    sentence = (
        f"Train {policy.workload} with {first} for the first {policy.switch_percent:g} % of"
        f" its {steps}, then {second}"
    )
    if policy.mean_accuracy is None:
        measured = f", target {policy.target_accuracy:.4f}"
    else:
        own = _runs(_accuracies(policy, policy.switch_percent))
        measured = f": accuracy {policy.mean_accuracy:.4f}{own} against {_with_first_alone(policy)}"
    may_lose = f" ({policy.threshold:g} may be lost)"
    return f"{sentence}{measured}{may_lose}{_faster(speed_up_of(policy, baseline_seconds))}."


def promise_sentence(policy: TimingPolicy) -> str:
    """What may be expected of later runs, and how sure that is; empty where nobody said."""
    first = policy.first_protocol.upper()
    if policy.criterion != "kept":
        if policy.confidence is None:
            return ""
        return (
            f"{100 * policy.confidence:.0f} % sure that this is the earliest switch that keeps the"
            " accuracy in the mean; a single run may lose more."
        )
    limit = f"{policy.threshold:g}"
    usual = policy.baseline_kept_share
    if policy.switch_percent >= _BASELINE_PERCENT:
        if usual is None:
            return ""
        return f"Of 100 runs about {100 * usual:.0f} lose at most {limit} against their mean."
    sentences = []
    if policy.kept_share is not None:
        own = "" if usual is None else f"; of {first}'s own about {100 * usual:.0f} do"
        sentences.append(
            f"Of 100 runs with this policy about {100 * policy.kept_share:.0f} lose at most {limit}"
            f" against {first}'s mean{own}."
        )
    if policy.confidence is not None:
        enough = ""
        if policy.keep is not None:
            fewer = round(100 * (1 - policy.keep), 6)
            enough = f": {100 * policy.keep:g} of 100, or at most {fewer:g} fewer than with {first}"
        sentences.append(f"{100 * policy.confidence:.0f} % sure that enough of them do{enough}.")
    return " ".join(sentences)


def kept_words(kept_share: float, baseline_kept_share: float | None, first_protocol: str) -> str:
    """The promise in a few words, for tables."""
    own = (
        ""
        if baseline_kept_share is None
        else f", with {first_protocol.upper()} alone {100 * baseline_kept_share:.0f}"
    )
    return f"about {100 * kept_share:.0f} of 100 runs{own}"


def speed_up_text(found: SpeedUp, digits: int = 1) -> str:
    """For example `2.9 times as fast (2.5 to 3.3)`; `about` where no interval is known."""
    value = f"{found.value:.{digits}f} times as fast"
    if found.low is None or found.high is None:
        return f"about {value}"
    low, high = f"{found.low:.{digits}f}", f"{found.high:.{digits}f}"
    return value if low == high else f"{value} ({low} to {high})"


def _why_alone(policy: TimingPolicy, second: str) -> str:
    if policy.reason is not None:
        return policy.reason
    often = " often enough" if policy.criterion == "kept" else ""
    return f"no switch point with {second} that was tried keeps the accuracy{often}"


def _with_first_alone(policy: TimingPolicy) -> str:
    """What was measured with the first protocol alone; where nothing was, the target."""
    accuracies = _accuracies(policy, _BASELINE_PERCENT)
    if not accuracies:
        return f"a target of {policy.target_accuracy:.4f}"
    first = policy.first_protocol.upper()
    return f"{statistics.fmean(accuracies):.4f}{_runs(accuracies)} with {first} alone"


def _accuracies(policy: TimingPolicy, percent: float) -> list[float]:
    return [run.converged_accuracy for run in policy.evidence if run.switch_percent == percent]


def _runs(accuracies: list[float]) -> str:
    if not accuracies:
        return ""
    return f" in {len(accuracies)} run{'' if len(accuracies) == 1 else 's'}"


def _faster(found: SpeedUp | None) -> str:
    if found is None:
        return ""
    if found.value <= 1:
        return f", but {speed_up_text(found)}: the switch gains nothing here"
    if found.low is not None and found.low <= 1:
        return f", {speed_up_text(found)}: perhaps it gains nothing"
    return f", {speed_up_text(found)}"
