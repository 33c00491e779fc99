"""Makes a recorded run out of its row in the manifest and its logs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.manifest import ManifestRow
from syncswitch.storage.importing.run_logs import Clock, LogRow, RecordedLog, read_run_log
from syncswitch.storage.importing.run_timing import (
    NOTABLE_PAUSE_SECONDS,
    Phases,
    clock_without,
    pauses,
    switch_seconds,
)
from syncswitch.storage.metrics import is_converged
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import Evaluation, PhaseRecord

# A counter that ends beyond W by more, or before it by more, was not this job's, or stopped early.
_LENGTH_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Measurements:
    """What a run's logs say; as in `TrialRecord`, except for the accuracy.

    Attributes:
        evaluations: In the order of their worker-steps, up to where it diverged.
        phases: One for each protocol that ran; staleness is None.
        final_accuracy: Of the last evaluation, which is also the converged accuracy: the published
            tables take it so, and as a log holds few evaluations, the mean of the last 5 may
            reach back beyond a learning-rate decay.
        converged: Whether the last 5 evaluations span at most 0.1 pp, and none is cut off.
        stopped_early: It ended well before W.
        training_seconds: From the first to the last row, without pauses.
        switch_overhead_seconds: The restart at the switch.
    """

    worker_steps: int
    evaluations: tuple[Evaluation, ...]
    phases: tuple[PhaseRecord, ...]
    final_accuracy: float
    converged: bool
    stopped_early: bool
    training_seconds: float
    switch_overhead_seconds: float
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run that somebody made elsewhere.

    Attributes:
        source: What it is known by, unique in a database.
        candidate_percent: The switch point it counts for; None if for none.
        measured: None for a run of which only its divergence is known.
    """

    source: str
    identity: WorkloadIdentity
    candidate_percent: float | None
    switch_percent: float
    replicate: int
    diverged: bool
    measured: Measurements | None
    notes: tuple[str, ...] = ()


def read_imported_run(row: ManifestRow, logs: Path) -> ImportedRun:
    """Reads a run that a manifest lists; `logs` is the folder below which the runs' folders are.

    Raises RecordingError where it cannot be used; says why.
    """
    phases = Phases.of(
        row.switch_percent,
        row.total_worker_steps,
        row.workers,
        (row.first_protocol, row.second_protocol),
    )
    try:
        folder = row.folder(logs)
        has_diverged = row.diverged is True
        log = None if folder is None else read_run_log(folder, has_diverged=has_diverged)
    except OSError as error:
        name = Path(error.filename or row.run_dir or "").name
        raise RecordingError(f"cannot read {name}: {error.strerror}") from error
    measured, notes = (None, ()) if log is None else _measured(row, log, phases)
    return ImportedRun(
        source=row.source,
        identity=row.identity,
        candidate_percent=row.stands_for_percent,
        switch_percent=row.switch_percent,
        replicate=row.replicate,
        diverged=_has_diverged(log) if row.diverged is None else row.diverged,
        measured=measured,
        notes=notes,
    )


def _measured(
    row: ManifestRow, log: RecordedLog, phases: Phases
) -> tuple[Measurements, tuple[str, ...]]:
    last_step = max(rows[-1].step for rows in (log.accuracy, log.loss) if rows)
    is_short = _check_length(row, last_step, phases, log)
    if phases.switch_step is not None and last_step <= phases.switch_step:
        phases = replace(phases, switch_step=None)
    clock, overhead_seconds, notes = _timed(log, phases)
    if not clock.total_seconds > 0.0:
        raise RecordingError(
            f"its logs say 0 s of training for steps {clock.steps[0]} to {clock.steps[-1]}; correct"
            f" their times"
        )
    worker_steps = phases.worker_step(last_step)
    if is_short:
        notes.append(
            f"stopped early: ends at worker-step {worker_steps} of {row.total_worker_steps}"
        )
    evaluations = _evaluations(log, clock, phases)
    is_cut = len(evaluations) < len(log.accuracy)
    timed = log.timed
    measured = Measurements(
        worker_steps=worker_steps,
        evaluations=evaluations,
        phases=_phases(row, clock, phases, _finest(log), worker_steps),
        final_accuracy=evaluations[-1].accuracy,
        # The decays of an imported job are not known.
        converged=not is_cut and is_converged(evaluations, last_decay_worker_step=0),
        stopped_early=is_short,
        training_seconds=clock.total_seconds,
        switch_overhead_seconds=overhead_seconds,
        started_at=_moment(timed[0]),
        ended_at=_moment(timed[-1]),
    )
    return measured, tuple(notes)


def _check_length(row: ManifestRow, last_step: int, phases: Phases, log: RecordedLog) -> bool:
    """Whether the run stopped early.

    Raises RecordingError where it cannot be the run of which the manifest speaks.
    """
    W = row.total_worker_steps
    done = phases.worker_step(last_step)
    whole = phases.whole_switch_step(last_step, W)
    is_long = done > W * (1.0 + _LENGTH_TOLERANCE) + row.workers
    is_short = done < W * (1.0 - _LENGTH_TOLERANCE)
    if is_long or (is_short and whole is not None and phases.is_contradicted(_finest(log), whole)):
        reason = (
            f"its last step {last_step} would be worker-step {done} of {W} with a switch at"
            f" {row.switch_percent:g} %"
        )
        if whole is not None:
            percent = 100.0 * whole * phases.first_worker_steps / W
            reason += f", but {W} with one at {percent:.1f} %"
        raise RecordingError(f"{reason}; correct the manifest")
    return is_short


def _timed(log: RecordedLog, phases: Phases) -> tuple[Clock, float, list[str]]:
    """The run's clock, the seconds of the restart at its switch, and what is to tell of pauses."""
    notes: list[str] = []
    if log.clock is not None:
        timed = log.timed
        wall_seconds = timed[-1].wall_time_seconds - timed[0].wall_time_seconds
        trained_seconds = log.clock.at(timed[-1].step) - log.clock.at(timed[0].step)
        gap_seconds = max(wall_seconds - trained_seconds, 0.0)
        if phases.is_switched:
            return log.clock, gap_seconds, notes
        if gap_seconds > NOTABLE_PAUSE_SECONDS:
            notes.append(f"interrupted for {gap_seconds:.0f} s, which are no training time")
        return log.clock, 0.0, notes
    finest = _finest(log)
    found = pauses(finest, phases)
    if phases.is_switched and None in phases.speeds(finest):
        notes.append("too few rows on both sides of the switch to tell its restart from training")
    notes.extend(
        f"interrupted for {pause.seconds:.0f} s after step {pause.step}, which are no training time"
        for pause in found
        if not pause.is_switch
    )
    overhead_seconds = sum(pause.seconds for pause in found if pause.is_switch)
    return clock_without(log.timed, found), overhead_seconds, notes


def _evaluations(log: RecordedLog, clock: Clock, phases: Phases) -> tuple[Evaluation, ...]:
    steps = [row.step for row in log.loss]
    found = []
    start = 0
    for row in log.accuracy:
        if not math.isfinite(row.value):
            break  # here it diverged
        end = bisect_right(steps, row.step, start)
        loss = _mean(log.loss[start:end])
        found.append(Evaluation(phases.worker_step(row.step), clock.at(row.step), row.value, loss))
        start = end
    return tuple(found)


def _phases(
    row: ManifestRow, clock: Clock, phases: Phases, rows: Sequence[LogRow], worker_steps: int
) -> tuple[PhaseRecord, ...]:
    total_seconds = clock.total_seconds
    if not phases.is_switched:
        protocol = row.first_protocol if phases.switch_step is None else row.second_protocol
        return (PhaseRecord(protocol, 0, worker_steps, total_seconds, None, None),)
    switch = phases.worker_step(phases.switch_step or 0)
    seconds = min(switch_seconds(clock, phases, rows), total_seconds)
    return (
        PhaseRecord(row.first_protocol, 0, switch, seconds, None, None),
        PhaseRecord(row.second_protocol, switch, worker_steps, total_seconds - seconds, None, None),
    )


def _finest(log: RecordedLog) -> Sequence[LogRow]:
    return log.loss if len(log.loss) > len(log.accuracy) else log.accuracy


def _mean(rows: Sequence[LogRow]) -> float:
    """Of the finite values; not a number where there is none."""
    if len(rows) == 1:
        return rows[0].value if math.isfinite(rows[0].value) else math.nan
    values = [row.value for row in rows if math.isfinite(row.value)]
    mean = sum(values) / len(values) if values else math.nan
    return mean if math.isfinite(mean) else math.nan


def _has_diverged(log: RecordedLog | None) -> bool:
    return log is not None and bool(log.loss) and not math.isfinite(log.loss[-1].value)


def _moment(row: LogRow) -> datetime:
    return datetime.fromtimestamp(row.wall_time_seconds, timezone.utc)
