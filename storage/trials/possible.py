"""What a training run can have measured: whatever brings one to a database holds it to this."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.limits import LARGEST_INTEGER
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import PolicyUse
from syncswitch.storage.records.trial import LONGEST_SECONDS, Evaluation, TrialRecord, TrialSpec
from syncswitch.storage.trials.values import StoredTrial

SHORTEST_SECONDS = 1e-9
"""Less than any whole training takes."""

LENGTH_TOLERANCE = 0.02
"""By which share of W a run may end before W or beyond it."""

_LARGEST_SEED = 2**63 - 1
_LONGEST_ID = 64
# Clocks may differ, but an evaluation that is so much later is no part of the run.
_CLOCKS, _CLOCKS_SECONDS = 2.0, 10.0


def check_run(record: TrialRecord) -> None:
    """Raises FatalError if no training can have measured this."""
    _check_spec(record)
    _check_times(record)
    _check_steps(record)
    _check_accuracies(record)


def check_use(use: PolicyUse) -> None:
    """Raises FatalError if no whole run with a policy can have measured this."""
    if not 0 < len(use.use_id) <= _LONGEST_ID or not use.use_id.isprintable():
        raise FatalError(
            f"use_id is {use.use_id[:80]!r}", allowed=f"1 to {_LONGEST_ID} printable characters"
        )
    _check("version", use.version, 1, LARGEST_INTEGER)
    check_run(use.record)
    record = use.record
    W = record.spec.identity.total_worker_steps
    if record.stopped_early or not (record.diverged or record.worker_steps >= W):
        raise FatalError(
            f"it ended at worker-step {record.worker_steps} of {W}",
            allowed="whole runs, and those that diverged",
        )
    tests = (*record.spec.inherited_evaluations, *record.evaluations)
    for what, parts in (("evaluation", tests), ("phase", record.phases)):
        if not (record.diverged or parts):
            raise FatalError(f"it has no {what}", allowed="at least one unless it diverged")


def stored_fault(
    row: StoredTrial, identity: ScheduledJob, evaluations: Sequence[Evaluation]
) -> str | None:
    """Returns what no training can have measured of a complete run in a database, if anything."""
    times, result, now = row.times, row.result, datetime.now(timezone.utc)
    started_at = row.started_at or now
    record = TrialRecord(
        spec=TrialSpec(identity, row.switch_percent, row.seed or 0, row.replicate),
        worker_steps=row.worker_steps,
        evaluations=tuple(evaluations),
        phases=row.phases,
        converged_accuracy=result.converged_accuracy or 0.0,
        converged=bool(result.converged),
        diverged=bool(result.diverged),
        stopped_early=bool(result.stopped_early),
        training_seconds=times.training_seconds or 0.0,
        inherited_seconds=times.inherited_seconds or 0.0,
        switch_overhead_seconds=times.switch_overhead_seconds or 0.0,
        started_at=started_at,
        ended_at=row.ended_at or started_at,
        host=row.host or "",
        guard=GuardOutcome(row.guard.held_percent, row.failed),
    )
    try:
        check_run(record)
    except FatalError as error:
        return str(error)
    return None


def _check(what: str, value: float, least: float, largest: float) -> None:
    if not least <= value <= largest:  # NaN is refused as well
        raise FatalError(f"{what} is {_short(value)}", allowed=f"from {least:g} to {largest:g}")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:40]


def _check_spec(record: TrialRecord) -> None:
    spec, identity = record.spec, record.spec.identity
    _check("switch_percent", spec.switch_percent, 0, 100)
    _check("seed", spec.seed, 0, _LARGEST_SEED)
    _check("replicate", spec.replicate, 0, LARGEST_INTEGER)
    _check("workers", identity.workers, 1, LARGEST_INTEGER)
    _check("total_worker_steps", identity.total_worker_steps, 1, 2**63 - 1)
    if record.guard is not None:
        held = record.guard.held_percent
        for percent in (*(one.switch_percent for one in record.failed), held):
            if percent is not None:
                _check("switch_percent", percent, 0, 100)


def _check_times(record: TrialRecord) -> None:
    failed = record.failed
    trained = record.training_seconds
    shortest = 0.0 if record.diverged else SHORTEST_SECONDS
    _check("training_seconds", trained, shortest, LONGEST_SECONDS)
    _check("inherited_seconds", record.inherited_seconds, 0, trained)
    _check("switch_overhead_seconds", record.switch_overhead_seconds, 0, LONGEST_SECONDS)
    longest = trained * _CLOCKS + _CLOCKS_SECONDS
    for phase in record.phases:
        _check("seconds of a phase", phase.seconds, 0, LONGEST_SECONDS)
    for evaluation in (*record.spec.inherited_evaluations, *record.evaluations):
        what = f"elapsed_seconds of the evaluation at {evaluation.worker_step}"
        _check(what, evaluation.elapsed_seconds, 0, longest)
    for event in record.events:
        _check("elapsed_seconds of an event", event.elapsed_seconds, 0, LONGEST_SECONDS)
        if event.seconds is not None:
            _check("seconds of an event", event.seconds, 0, LONGEST_SECONDS)
    for one in failed:
        _check("elapsed_seconds of a failed switch", one.elapsed_seconds, 0, LONGEST_SECONDS)
        _check("lost_seconds of a failed switch", one.lost_seconds, 0, LONGEST_SECONDS)
    for seconds in record.step_seconds.values():
        _check("seconds of a worker-step", seconds, 0, LONGEST_SECONDS)
    if record.ended_at < record.started_at:
        raise FatalError(
            f"it ended at {record.ended_at}, before its start at {record.started_at}",
            allowed="an end after the start",
        )


def _check_steps(record: TrialRecord) -> None:
    identity, done = record.spec.identity, record.worker_steps
    W = identity.total_worker_steps
    evaluations = (*record.spec.inherited_evaluations, *record.evaluations)
    steps = [one.worker_step for one in evaluations]
    largest = largest_end(W, identity.workers, steps)
    _check("worker_steps", done, 0, largest)
    is_whole = not (record.stopped_early or record.diverged)
    if is_whole and done < W * (1.0 - LENGTH_TOLERANCE):
        raise FatalError(f"worker_steps is {done}", allowed=f"{W}, as it did not stop early")
    for step, later in itertools.pairwise(steps):
        if later <= step:
            raise FatalError(
                f"an evaluation at worker-step {later} comes after {step}", allowed="ascending ones"
            )
    for step in steps:
        _check("worker_step of an evaluation", step, 0, done)
    has_tried = any(one.kind == "tried" for one in record.events)
    for phase in record.phases:
        start, end = phase.start_worker_step, phase.end_worker_step
        _check("start_worker_step of a phase", start, 0, done)
        _check("end_worker_step of a phase", end, start, done)
        is_known = phase.protocol in (identity.first_protocol, identity.second_protocol)
        if not (is_known or has_tried):
            raise FatalError(f"a phase has the protocol {phase.protocol!r}", allowed=identity.pair)
        for count in (phase.mean_staleness, phase.max_staleness):
            if count is not None:
                _check("staleness of a phase", count, 0, LARGEST_INTEGER)
    places = [one.worker_step for one in record.events]
    places += [one.worker_step for one in record.failed]
    for step in places:
        _check("worker_step of an event", step, 0, largest)


def largest_end(W: int, workers: int, steps: Sequence[int]) -> int:
    """Returns how far a run of W worker-steps may have gone.

    It may finish a round of its workers, and one that is only watched at its evaluations ends at
    the first of them after W.
    """
    between = [later - step for step, later in itertools.pairwise([0, *steps[:-1]])]
    return W + max(math.ceil(W * LENGTH_TOLERANCE) + workers, *between, 0)


def _check_accuracies(record: TrialRecord) -> None:
    metric = record.spec.identity.metric
    tests: tuple[Evaluation, ...] = (*record.spec.inherited_evaluations, *record.evaluations)
    accuracies = [one.accuracy for one in tests]
    failed = record.failed
    measured = [*accuracies, *(one.accuracy for one in failed if one.accuracy is not None)]
    for accuracy in measured:
        _check_accuracy(metric, accuracy)
    # One that diverged before its first evaluation has none.
    if not accuracies:
        return
    _check_accuracy(metric, record.converged_accuracy)
    _check("converged_evaluations", record.converged_evaluations, 1, LARGEST_INTEGER)


def _check_accuracy(metric: Metric, accuracy: float) -> None:
    if not metric.is_possible(accuracy):
        raise FatalError(
            f"{metric.name} is {metric.value(accuracy):.6g}, which is not {metric.range_text}"
        )
