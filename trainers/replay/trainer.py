"""The trainer that replays recorded runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from syncswitch.storage.errors import UserError, one_line
from syncswitch.storage.files import whole_file
from syncswitch.storage.metrics import is_converged
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import (
    Evaluation,
    TrialRecord,
    TrialSpec,
)
from syncswitch.trainers.job.checks import check_position, check_trial
from syncswitch.trainers.job.schedule import (
    Segment,
    checkpoint_path,
    last_boundary,
    segments,
    switch_worker_step,
)
from syncswitch.trainers.replay.recording import RecordedRun, Recording
from syncswitch.trainers.run.record import cut_phases, trial_record
from syncswitch.trainers.trainer import Observer, Trainer, Verdict


class ReplayCheckpoint(BaseModel):
    """The position of a replayed run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str
    fingerprint: str
    run: str
    seed: int
    worker_step: int = Field(ge=0)
    first_protocol_worker_steps: int = Field(ge=0)
    elapsed_seconds: float = Field(ge=0)


def model_of(identity: WorkloadIdentity) -> str:
    """The model's digest, or the name of a job that was imported without its model."""
    return identity.name if identity.model is None else identity.model


class ReplayTrainer(Trainer):
    """Replays recorded runs, with the seconds that were recorded.

    A trial is answered by the recorded run with its switch point and seed, or by one that is drawn
    if its seed was not recorded. Nothing is made up: a switch point without a run is refused. A
    replayed run never goes back to its switch, whatever the guard's band.

    A fork continues the run of its checkpoint if both have the same switch point. Otherwise another
    run is chosen and played from the checkpoint's worker-step on.
    """

    def __init__(self, *recordings: Recording, deck_seed: int = 0) -> None:
        self._recordings = recordings
        self._deck_seed = deck_seed

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        recording = self._recording_of(spec)
        check_trial(spec, recording.identity)
        if not spec.conditions.is_undisturbed:
            raise UserError(
                "recorded runs cannot answer for runs with --online or --inject; leave these out,"
                " or choose another --trainer"
            )
        start = None if spec.fork_from is None else _load_start(spec, spec.fork_from)
        run = self._choose(recording, spec, start)
        return _Replay(spec, run, start, observer or Observer()).to_its_end()

    def _recording_of(self, spec: TrialSpec) -> Recording:
        fingerprint = spec.identity.fingerprint
        mine = (one for one in self._recordings if one.identity.fingerprint == fingerprint)
        return next(mine, self._recordings[0])

    def _choose(
        self, recording: Recording, spec: TrialSpec, start: ReplayCheckpoint | None
    ) -> RecordedRun:
        runs = recording.at(spec.switch_percent)
        if start is not None and start.fingerprint == recording.identity.fingerprint:
            same = next((run for run in runs if run.name == start.run), None)
            if same is not None:
                return same
        seeded = next((run for run in runs if run.seed == spec.seed), None)
        chosen = seeded or recording.draw(spec.switch_percent, spec.replicate, self._deck_seed)
        if chosen is None:
            known = ", ".join(
                f"{switch_point:g}" for switch_point in reversed(recording.switch_points)
            )
            raise UserError(
                f"no run of {recording.identity.name!r} at {spec.switch_percent:g} % is recorded"
                f" (recorded: {known or 'none'}); ask for one of these, or record such runs"
            )
        return chosen


def _load_start(spec: TrialSpec, path: Path) -> ReplayCheckpoint:
    try:
        checkpoint = ReplayCheckpoint.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"checkpoint {path} cannot be read ({one_line(error)}); give a whole checkpoint of a"
            f" replayed run of this workload or start afresh"
        ) from error
    check_position(spec, checkpoint.worker_step, checkpoint.first_protocol_worker_steps)
    if checkpoint.model != model_of(spec.identity):
        raise UserError(
            f"checkpoint {path} is of another model ({checkpoint.model[:12]}) than workload"
            f" {spec.identity.name!r}; give one of this workload"
        )
    return checkpoint


class _Replay:
    """Replays one recorded run to an observer, from a checkpoint on if there is one."""

    def __init__(
        self, spec: TrialSpec, run: RecordedRun, start: ReplayCheckpoint | None, observer: Observer
    ) -> None:
        self._spec = spec
        self._run = run
        self._observer = observer
        self._started_at = datetime.now(timezone.utc)
        self._clock = run.clock()
        self._start = start.worker_step if start else 0
        self._inherited_seconds = start.elapsed_seconds if start else 0.0
        # The clock continues from the inherited time, however long this run took up to there.
        before = self._clock.seconds_at(self._start) if start else 0.0
        self._shift_seconds = self._inherited_seconds - before
        first = self._start + 1 if start else 0  # some logs begin with the untrained model
        self._ahead = [one for one in run.evaluations if one.worker_step >= first]
        self._evaluations: list[Evaluation] = []
        self._due = deque(one for one in segments(spec, self._start) if one.checkpoint_percents)
        self._checkpoints: dict[float, Path] = {}

    def to_its_end(self) -> TrialRecord:
        """Replays the run to its end, or until the observer stops it."""
        self._report_progress(self._start)
        for evaluation in self._ahead:
            self._write_checkpoints_before(evaluation.worker_step)
            self._report_progress(evaluation.worker_step)
            if self._is_told_to_stop(evaluation):
                last = self._evaluations[-1]
                return self._record(
                    last.worker_step, last.elapsed_seconds, diverged=False, stopped_early=True
                )
        run = self._run
        is_whole = not (run.diverged or run.stopped_early)
        W = self._spec.identity.total_worker_steps
        self._write_checkpoints_before(W + 1 if is_whole else run.worker_steps)
        record = self._record(
            # A divergence before the checkpoint, or at an unknown time, is moved right after it.
            max(run.worker_steps, self._start),
            run.training_seconds + self._shift_seconds,
            diverged=run.diverged,
            stopped_early=run.stopped_early,
        )
        self._report_progress(record.worker_steps)
        boundaries = self._spec.identity.learning_rate_boundaries or ()
        return replace(
            record,
            converged_accuracy=run.accuracy,
            converged=not run.diverged and is_converged(run.evaluations, last_boundary(boundaries)),
            converged_evaluations=run.converged_evaluations,
        )

    def _is_told_to_stop(self, evaluation: Evaluation) -> bool:
        seconds = evaluation.elapsed_seconds + self._shift_seconds
        shifted = replace(evaluation, elapsed_seconds=seconds)
        self._evaluations.append(shifted)
        verdict = self._observer.on_evaluation(shifted)
        is_last = evaluation.worker_step >= self._run.worker_steps
        return verdict is Verdict.STOP and not is_last

    def _record(
        self, worker_steps: int, training_seconds: float, *, diverged: bool, stopped_early: bool
    ) -> TrialRecord:
        phases = cut_phases(self._run.phases, self._start, worker_steps, self._clock)
        return trial_record(
            self._spec,
            self._started_at,
            worker_steps=worker_steps,
            evaluations=self._evaluations,
            phases=phases,
            diverged=diverged,
            stopped_early=stopped_early,
            training_seconds=training_seconds,
            inherited_seconds=self._inherited_seconds,
            switch_overhead_seconds=self._run.switch_overhead_seconds if len(phases) > 1 else 0.0,
            checkpoints=self._checkpoints,
        )

    def _report_progress(self, worker_step: int) -> None:
        # Some logs count a few worker-steps beyond the end of the job.
        self._observer.on_progress(min(worker_step, self._spec.identity.total_worker_steps))

    def _write_checkpoints_before(self, worker_step: int) -> None:
        while self._due and self._due[0].end_worker_step < worker_step:
            self._checkpoints.update(self._written(self._due.popleft()))

    def _written(self, segment: Segment) -> Mapping[float, Path]:
        spec, done = self._spec, segment.end_worker_step
        path = checkpoint_path(spec, segment.checkpoint_percents[0], ".json")
        checkpoint = ReplayCheckpoint(
            model=model_of(spec.identity),
            fingerprint=spec.identity.fingerprint,
            run=self._run.name,
            seed=spec.seed,
            worker_step=done,
            first_protocol_worker_steps=min(done, switch_worker_step(spec)),
            elapsed_seconds=self._clock.seconds_at(done) + self._shift_seconds,
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make the folder {path.parent}: {error.strerror or error};"
                f" name one that exists and is writable"
            ) from error
        with whole_file(path) as file:
            file.write(checkpoint.model_dump_json(indent=2).encode() + b"\n")
        return dict.fromkeys(segment.checkpoint_percents, path)
