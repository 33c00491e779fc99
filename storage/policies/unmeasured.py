"""The policy of a job without measurements, and what is expected of it from other jobs.

It needs the standard library alone, as training loops of users import it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import (
    OWN_MOMENTUM,
    OWN_OPTIMIZER,
    SEMI_SYNC,
    Protocols,
    ScheduledJob,
    protocol_text,
)
from syncswitch.storage.records.metric import ACCURACY_NAME, GOALS, Metric
from syncswitch.storage.records.policy import Measured, Promise, TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT

RECORDED = 7
"""How many recorded jobs the expectations rest on, beside a user's own."""

PANEL = 14
"""How many of them where each worker has an optimizer of Keras of its own."""

LOOP_JOBS = "4 small jobs with local SGD in PyTorch"
"""What is expected of loops rests on (`benchmarks.pytorch_local_sgd`)."""

LEARNT = "learning-"
"""Prefix of the studies of policies that no search found."""


RULES = (OWN_MOMENTUM, OWN_OPTIMIZER, None)
"""Rules of the second phase of which something else is expected; None stands for all others."""

_ALIKE: Mapping[str | None, str] = {
    OWN_MOMENTUM: OWN_MOMENTUM,
    SEMI_SYNC: OWN_MOMENTUM,
    OWN_OPTIMIZER: OWN_OPTIMIZER,
}
# Averaged every 4 steps, without a guard, of the three that are judged by their accuracy; the share
# of each counts alike. Of an error nothing is expected: it is that of a single job.
_LOOP_PERCENT = 25.0
_LOOP = Promise(kept_share=0.72, delivered_share=0.72, baseline_kept_share=0.89)
_FILE = Path(__file__).with_name("first_runs.json")


@functools.cache
def _first_runs() -> dict[tuple[str | None, bool], tuple[float, Promise]]:
    """Where the only training of a job that can go back switches, and what is expected of it.

    By the rule of the second phase, and by whether there is a threshold: without one a guard sees
    little, so the switch is later. The searcher has decided it, in `searcher/learning/first_runs`.
    """
    return {
        (row["momentum_after_switch"], row["has_threshold"]): (
            row["switch_percent"],
            Promise(**row["promise"]),
        )
        for row in json.loads(_FILE.read_text("utf-8"))
    }


def first_study(fingerprint: str, protocols: Protocols) -> str:
    """Returns the study of the policy that the first run of a job publishes."""
    return f"{LEARNT}{fingerprint[:12]}-{protocols.pair}-{protocols.momentum_after_switch}"


def unmeasured_policy(
    identity: ScheduledJob, switch_percent: float | None = None, *, is_loop: bool = False
) -> TimingPolicy:
    """Makes the policy for a job without measurements.

    It is guarded by its own evaluations, as there is no target. Where each worker keeps its
    own momentum after the switch it switches early, and where the second way is unknown
    as late as the searcher would. The second way of a loop is taken for local SGD.

    Args:
        identity: The job.
        switch_percent: Another switch, of which nothing is expected; 100 is the first protocol
            alone. None for the usual one.
        is_loop: Whether a loop of the user's own trains it.

    Raises:
        UserError: That is no percent.
    """
    if not (switch_percent is None or 0 <= switch_percent <= BASELINE_PERCENT):
        raise UserError(
            f"switch_at is {switch_percent:g}: give a percent from 0 to 100",
            code="parameter-invalid",
        )
    threshold = identity.metric.usual_threshold
    promise = Promise()
    if switch_percent is None and is_loop:
        switch_percent = _LOOP_PERCENT
        promise = _LOOP if threshold else Promise()
    elif switch_percent is None:
        rule = _ALIKE.get(identity.momentum_after_switch)
        switch_percent, promise = _first_runs()[rule, threshold > 0]
    return TimingPolicy(
        job=identity.job.key,
        protocols=identity.protocols,
        version=1,
        switch_percent=switch_percent,
        target_accuracy=None,
        allowed=AllowedLoss(threshold),
        measured=Measured(),
        promise=promise,
        strategy="adaptive",
        study=first_study(identity.fingerprint, identity.protocols),
        evidence=(),
        created_at=datetime.now(timezone.utc).isoformat(),
        guarded=True,
        band=Band(None, threshold),
    )


def check_one_says_when(policy: object, switch_at: float | None) -> None:
    """Raises UserError where both say when a training switches."""
    if policy and switch_at is not None:
        raise UserError(
            "policy and switch_at both say when to switch: leave out one of them",
            code="parameters-conflict",
        )


def watched_metric(name: str, goal: str | None) -> Metric:
    """Makes the metric of a training without a policy: an accuracy, unless a goal is given.

    Raises UserError if the goal is neither `max` nor `min`, or missing for what is no accuracy.
    """
    if goal is None and "acc" not in (name or ACCURACY_NAME).lower():
        raise UserError(
            f"nothing says whether more of {name} is better: give metric_goal='max', or 'min' if"
            " less is",
            code="parameter-missing",
        )
    if goal is None:
        return Metric(name or ACCURACY_NAME)
    if goal not in GOALS:
        raise UserError(
            f"metric_goal is {goal!r}: give one of {', '.join(GOALS)}", code="parameter-invalid"
        )
    return Metric(name or "metric", goal, lowest=None, highest=None)


def recorded_jobs_text(momentum_after_switch: str | None) -> str:
    """The recorded jobs that the expectations rest on with this rule of the second phase."""
    return f"{PANEL if momentum_after_switch == OWN_OPTIMIZER else RECORDED} recorded jobs"


def unmeasured_text(
    policy: TimingPolicy,
    lost: str,
    *,
    jobs: str = f"{RECORDED} recorded jobs",
    span: str = "this run",
    has_runs: bool = False,
    untested: str | None = None,
    candidates: Sequence[str] = (),
) -> UserError:
    """Says what a training with such a policy does and why, and what is not known.

    Args:
        policy: The policy, with what is expected of it.
        lost: What a switch that fails costs, as a clause.
        jobs: The jobs that the expectation rests on.
        span: What shall take the least time.
        has_runs: Whether the job has trained with a switch before.
        untested: Why no test can show that the switch fails, as a clause; None if tests can.
        candidates: Second protocols among which the run chooses by their pace, and the first one;
            empty if it does not choose.

    Returns:
        A notice: sentences without the last full stop, and a verb in front that wants a subject.
    """
    first, second = (
        protocol_text(policy.protocols.first_protocol),
        protocol_text(policy.protocols.second_protocol),
    )
    how = f"switches to {second} at {policy.switch_percent:g} %"
    if policy.switch_percent == 0:
        how = f"uses {second} from the start"
    if candidates:
        named, of_them = candidates_text(candidates), "of them" if candidates[1:] else "of it"
        how = (
            f"tries {named} at {policy.switch_percent:g} % and goes on with whichever {of_them} and"
            f" {first} is fastest here; a switch there"
        )
    tests = "its own evaluations"
    if not policy.threshold:
        tests += ", which without a threshold notice little but a run that diverges"
    elif policy.protocols.momentum_after_switch == OWN_OPTIMIZER:
        tests += ", which with such an optimizer notice little but a run that diverges"
    expected = f" {expected_sentences(policy, has_runs, knows_time=not candidates)}"
    guarded = f"so it is guarded by {tests}; a failed switch costs {lost}"
    if untested is not None:
        guarded = f"and {untested}, so that nothing guards the switch"
        expected = ""  # known of guarded runs
    sources = f"{jobs} and its own runs" if has_runs else jobs
    which = "" if candidates else ", which"
    text = (
        f"{how}{which} should be fastest for {span}, judging by {sources}. No run of {first}"
        f" alone has measured a target yet, {guarded}."
        f"{expected} To train with {first} alone, "
    )
    return UserError([text, OptionHint("switch_at", 100, "set")])


def candidates_text(second_protocols: Sequence[str]) -> str:
    """The second protocols that a run tries, in their order."""
    usual, *others = map(protocol_text, second_protocols)
    return "".join([usual, *(f", and {one} where that may be faster," for one in others)])


def expected_sentences(
    policy: TimingPolicy, has_runs: bool = False, *, knows_time: bool = True
) -> str:
    """Says what to expect of a policy whose target is not measured; empty if unknown.

    Where the job `has_runs`, their paces and how they differ count as well. Unless it `knows_time`,
    or where it is not expected, the time is left out.
    """
    promise = policy.promise
    delivered, usual = promise.delivered_share, promise.baseline_kept_share
    time = promise.expected_time
    if delivered is None or usual is None:
        return ""
    first = protocol_text(policy.protocols.first_protocol)
    time_by, share_by = "", ""
    if has_runs:
        few = "none" if policy.threshold else "too few"
        time_by = ", by the pace of this job's runs"
        share_by = f", by other jobs and these runs, {few} of them with {first} alone"
    rests_on = "Expected" if has_runs else "Expected from those jobs, not measured on this one"
    in_time = ""
    if knows_time and time is not None:
        in_time = f" {time:.2f} of the time of {first} alone{time_by}, and"
    return (
        f"{rests_on}:{in_time} a model"
        f" {_good_text(policy.threshold, first, policy.job.metric)} in about"
        f" {100 * delivered:.0f} of 100 runs (with {first} alone, about"
        f" {100 * usual:.0f}){share_by}."
    )


def _good_text(threshold: float, first: str, metric: Metric) -> str:
    if threshold:
        return f"within {metric.with_unit(f'{threshold:g}')} of {first}'s mean {metric.name}"
    return f"no worse than {first}'s own models are by chance (how much that is, is not measured)"
