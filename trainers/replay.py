"""Recorded runs of a workload, and the trainer that answers trials with them."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from typing_extensions import override

from syncswitch.storage.errors import IMPORT_SOME, SEARCH_FIRST, OptionHint, UserError, one_line
from syncswitch.storage.files import whole_file
from syncswitch.storage.metrics import is_converged
from syncswitch.storage.records.job import Protocols, ScheduledJob
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    CONVERGENCE_EVALUATIONS,
    Evaluation,
    PhaseRecord,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.trainers.job.schedule import (
    Segment,
    check_position,
    check_trial,
    checkpoint_path,
    last_boundary,
    percent_to_worker_steps,
    segments,
    switch_worker_step,
)
from syncswitch.trainers.run.record import (
    Position,
    RunTimes,
    cut_phases,
    merge_phases,
    trial_record,
)
from syncswitch.trainers.trainer import Observer, Trainer, Verdict

if TYPE_CHECKING:
    from syncswitch.storage.database.engine import Database
    from syncswitch.storage.trials.values import StoredTrial


REPLAY = "replay"  # name of the trainer that replays recorded runs; its own runs are not recordings


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One complete run, from its first worker-step."""

    candidate_percent: float  # for which it counts; it may have switched slightly beside
    accuracy: float  # 0 if a diverged run has none
    training_seconds: float  # 0 if it diverged at an unknown time
    diverged: bool = False
    first_seconds: float = 0.0  # the part of them in the first protocol
    worker_steps: int = 0
    evaluations: tuple[Evaluation, ...] = ()  # with times since the run's start
    phases: tuple[PhaseRecord, ...] = ()  # one for each protocol that ran
    switch_overhead_seconds: float = 0.0  # see `TrialRecord`
    seed: int | None = None  # None if it was not recorded
    stopped_early: bool = False
    converged_evaluations: int = CONVERGENCE_EVALUATIONS  # whose mean is `accuracy`
    name: str = ""  # tells the workload's runs apart

    @property
    def switch_worker_step(self) -> int:
        """The worker-step at which the second protocol began; 0 if the run never switched."""
        return self.phases[-1].start_worker_step if len(self.phases) > 1 else 0

    def clock(self) -> RunTimes:
        """The run's time as a function of its worker-steps."""
        return RunTimes(self.phases, self.evaluations, self.training_seconds, self.worker_steps)


@dataclass(frozen=True)
class Recording:
    """The complete runs of one workload that count for a switch point, as they began."""

    identity: ScheduledJob
    runs: tuple[RecordedRun, ...]
    reference: str = ""  # which loads the workload, or the name of an imported one

    @property
    def switch_points(self) -> tuple[float, ...]:
        """Switch points with a run, in percent, ascending."""
        return tuple(sorted({run.candidate_percent for run in self.runs}))

    def at(self, candidate_percent: float) -> tuple[RecordedRun, ...]:
        return tuple(run for run in self.runs if run.candidate_percent == candidate_percent)

    def draw(
        self, candidate_percent: float, replicate: int, deck_seed: int = 0
    ) -> RecordedRun | None:
        """The run that answers for a replicate; None if this switch point has no runs.

        The replicates of a switch point draw without replacement, and start over once all runs are
        drawn. A replicate draws the same seed at every switch point that has it, just as the runs
        of a search share a start. A draw depends only on the arguments.
        """
        runs = self.at(candidate_percent)
        if not runs:
            return None
        deal, position = divmod(replicate, len(runs))
        seeds = tuple(run.seed for run in runs)
        return runs[_shuffled(candidate_percent, seeds, deal, deck_seed)[position]]


# Consecutive replicates draw from one deck. Typed, as 25 and 25.0 are written differently.
@lru_cache(maxsize=1024, typed=True)
def _shuffled(percent: float, seeds: tuple[int | None, ...], deal: int, deck: int) -> list[int]:
    def place(index: int) -> bytes:
        seed = seeds[index]
        card = f"{percent!r} {deal} {index}" if seed is None else f"seed {deal} {seed}"
        # A library's shuffling may change from version to version.
        return hashlib.sha256(f"syncswitch deck {deck} {card}".encode()).digest()

    return sorted(range(len(seeds)), key=place)


def read_recording(
    database: Database,
    workload: str,
    *,
    workers: int | None,
    protocols: tuple[str, str],
    cluster: str | None = None,
) -> Recording:
    """Reads the complete runs of one workload that count for a switch point.

    They may be selected by the size of the cluster, and by its kind: `real` or `simulated`, by
    default simulated ones only where there are no others. Forks are completed, see `whole_runs`.
    Runs of the `replay` trainer and with an online policy or injections are left out. Raises
    UserError if there are no such runs, or they belong to several workloads.
    """
    from syncswitch.storage.database.inspection import shown
    from syncswitch.storage.policies.registry import PolicyRegistry
    from syncswitch.storage.trials.store import TrialStore
    from syncswitch.trainers.job.loading import normal_reference

    store, selector = TrialStore(database), normal_reference(workload)
    replays = {info.study for info in store.searches(workload=selector) if info.trainer == REPLAY}
    complete = [
        trial
        for trial in store.trials(workload=selector)
        if trial.state == TrialState.COMPLETE
        and trial.conditions.is_undisturbed
        and trial.origin.study not in replays
        and workers in (None, trial.job.workers)
        and cluster in (None, "simulated" if trial.job.simulated_cluster else "real")
    ]
    # A run may be forked from one with another second protocol.
    counted = [
        trial
        for trial in complete
        if trial.candidate_percent is not None and trial.counts_with(*protocols)
    ]
    counted = [trial for trial in counted if trial.job.simulated_cluster is None] or counted
    switching = [trial for trial in counted if trial.switch_percent < BASELINE_PERCENT]
    # Of several rules of the second protocol, that of the newest run.
    rule = (switching or counted)[-1].job.momentum_after_switch if counted else None
    counted = [
        trial
        for trial in counted
        if trial.switch_percent >= BASELINE_PERCENT or trial.job.momentum_after_switch == rule
    ]
    jobs = {trial.job.fingerprint: trial for trial in counted}
    if len(jobs) > 1:
        named = ", ".join(
            f"{name[:12]} ({trial.job.workers}"
            f"{' simulated' if trial.job.simulated_cluster else ''} workers)"
            for name, trial in jobs.items()
        )
        raise UserError(
            f"{workload!r} names {len(jobs)} workloads: {named}",
            remedy=(OptionHint("workers", verb="choose with"), "give the fingerprint"),
            code="ambiguous",
        )
    runs: list[RecordedRun] = []
    for job in jobs:
        whole = whole_runs(
            [trial for trial in complete if trial.job.fingerprint == job], store.curves(job)
        )
        runs = [whole[trial.trial_id] for trial in counted if trial.trial_id in whole]
    registered = PolicyRegistry(database).workload(job) if runs else None
    if registered is None:
        raise UserError(
            f"no complete runs of {workload!r} with {','.join(protocols)} in {shown(database.url)},"
            " those with treated stragglers or injections aside",
            remedy=(SEARCH_FIRST, IMPORT_SOME),
            code="nothing-recorded",
        )
    identity = ScheduledJob(registered.job, Protocols(*protocols, rule))
    return Recording(identity, tuple(runs), registered.reference)


def whole_runs(
    trials: Iterable[StoredTrial], curves: Mapping[int, tuple[Evaluation, ...]]
) -> dict[int, RecordedRun]:
    """Complete runs of one workload from their first worker-step on, by `trial_id`.

    A fork is completed with the start of its parent, and left out if the parent is missing.
    """
    by_id = {trial.trial_id: trial for trial in trials}

    @cache
    def whole(trial_id: int) -> RecordedRun | None:
        trial = by_id.get(trial_id)
        if trial is None:
            return None
        run = _without_prefix(trial, curves.get(trial_id, ()))
        if trial.parent_trial_id is None:
            return run
        parent, start = whole(trial.parent_trial_id), _fork_worker_step(trial)
        if parent is None or parent.worker_steps < start:
            return None
        return _with_prefix(run, parent, start, trial)

    return {trial_id: run for trial_id in by_id if (run := whole(trial_id)) is not None}


def _without_prefix(trial: StoredTrial, curve: tuple[Evaluation, ...]) -> RecordedRun:
    counted = trial.candidate_percent
    return RecordedRun(
        candidate_percent=trial.switch_percent if counted is None else counted,
        accuracy=trial.result.converged_accuracy or 0.0,
        training_seconds=trial.times.training_seconds or 0.0,
        diverged=bool(trial.result.diverged),
        first_seconds=_first_seconds(trial.phases, trial.job.first_protocol),
        worker_steps=trial.worker_steps,
        evaluations=curve,
        phases=trial.phases,
        switch_overhead_seconds=trial.times.switch_overhead_seconds or 0.0,
        seed=trial.seed,
        stopped_early=bool(trial.result.stopped_early),
        converged_evaluations=trial.result.converged_evaluations or CONVERGENCE_EVALUATIONS,
        name=trial.origin.source or f"{trial.origin.study} trial {trial.origin.trial_number}",
    )


def _fork_worker_step(trial: StoredTrial) -> int:
    if trial.phases:
        return trial.phases[0].start_worker_step
    # It diverged at once, so an approximate worker-step is enough.
    return percent_to_worker_steps(trial.fork_percent or 0.0, trial.total_worker_steps)


def _with_prefix(
    own: RecordedRun, parent: RecordedRun, start: int, trial: StoredTrial
) -> RecordedRun:
    inherited_seconds = trial.times.inherited_seconds or 0.0
    prefix = cut_phases(parent.phases, 0, start, parent.clock())
    seconds = sum(phase.seconds for phase in prefix)
    # The checkpoint's time is measured; the time of its worker-step in the parent is interpolated.
    scale = inherited_seconds / seconds if seconds > 0 else 1.0
    prefix = tuple(replace(phase, seconds=scale * phase.seconds) for phase in prefix)
    phases = merge_phases((*prefix, *own.phases))
    return replace(
        own,
        first_seconds=_first_seconds(phases, trial.job.first_protocol),
        worker_steps=max(own.worker_steps, start),
        evaluations=(
            *(one for one in parent.evaluations if one.worker_step <= start),
            *(one for one in own.evaluations if one.worker_step > start),
        ),
        phases=phases,
        switch_overhead_seconds=own.switch_overhead_seconds
        + (parent.switch_overhead_seconds if len(prefix) > 1 else 0.0),
    )


def _first_seconds(phases: tuple[PhaseRecord, ...], first_protocol: str) -> float:
    return sum(phase.seconds for phase in phases if phase.protocol == first_protocol)


class ReplayCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The position of a replayed run."""

    model: str
    job: str
    run: str
    seed: int
    worker_step: Annotated[int, msgspec.Meta(ge=0)]
    first_protocol_worker_steps: Annotated[int, msgspec.Meta(ge=0)]
    elapsed_seconds: Annotated[float, msgspec.Meta(ge=0)]


def model_of(identity: ScheduledJob) -> str:
    """The model's digest, or the name of a job that was imported without its model."""
    return identity.recipe.model or identity.name


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
        wanted = spec.identity.key
        mine = (one for one in self._recordings if one.identity.key == wanted)
        recording = next(mine, self._recordings[0])
        check_trial(spec, recording.identity)
        if not spec.conditions.is_undisturbed:
            raise UserError(
                "change a run, and recorded runs cannot answer for that",
                parameter=("online", "inject"),
                remedy=("leave these out", OptionHint("trainer", verb="choose another")),
            )
        start = None if spec.fork_from is None else _load_start(spec, spec.fork_from)
        run = self._choose(recording, spec, start)
        return _Replay(spec, run, start, observer or Observer()).to_its_end()

    def _choose(
        self, recording: Recording, spec: TrialSpec, start: ReplayCheckpoint | None
    ) -> RecordedRun:
        runs = recording.at(spec.switch_percent)
        if start is not None and start.job == recording.identity.key:
            same = next((run for run in runs if run.name == start.run), None)
            if same is not None:
                return same
        seeded = next((run for run in runs if run.seed == spec.seed), None)
        chosen = seeded or recording.draw(spec.switch_percent, spec.replicate, self._deck_seed)
        if chosen is None:
            recorded = ", ".join(f"{one:g}" for one in reversed(recording.switch_points))
            raise UserError(
                f"no run of {recording.identity.name!r} at {spec.switch_percent:g} % is recorded"
                f" (recorded: {recorded or 'none'}); ask for one of these, or record such runs",
                code="nothing-recorded",
            )
        return chosen


def _load_start(spec: TrialSpec, path: Path) -> ReplayCheckpoint:
    try:
        checkpoint = msgspec.json.decode(path.read_bytes(), type=ReplayCheckpoint)
    except (OSError, ValueError) as error:
        raise UserError(
            f"checkpoint {path} cannot be read ({one_line(error)}); give a whole checkpoint of a"
            f" replayed run of this workload or start over",
            code="checkpoint-unusable",
        ) from error
    check_position(spec, checkpoint.worker_step, checkpoint.first_protocol_worker_steps)
    if checkpoint.model != model_of(spec.identity):
        raise UserError(
            f"checkpoint {path} is of another model ({checkpoint.model[:12]}) than workload"
            f" {spec.identity.name!r}; give one of this workload",
            code="checkpoint-unusable",
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
        run = self._run
        self._report_progress(self._start)
        for evaluation in self._ahead:
            self._write_checkpoints_before(evaluation.worker_step)
            self._report_progress(evaluation.worker_step)
            step, seconds = evaluation.worker_step, evaluation.elapsed_seconds + self._shift_seconds
            shifted = replace(evaluation, elapsed_seconds=seconds)
            self._evaluations.append(shifted)
            is_stop = self._observer.on_evaluation(shifted) is Verdict.STOP
            if is_stop and step < run.worker_steps:
                return self._record(step, seconds, diverged=False, stopped_early=True)
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
        boundaries = self._spec.identity.recipe.learning_rate_boundaries or ()
        return replace(
            record,
            converged_accuracy=run.accuracy,
            converged=not run.diverged and is_converged(run.evaluations, last_boundary(boundaries)),
            converged_evaluations=run.converged_evaluations,
        )

    def _record(
        self, worker_steps: int, training_seconds: float, *, diverged: bool, stopped_early: bool
    ) -> TrialRecord:
        phases = cut_phases(self._run.phases, self._start, worker_steps, self._clock)
        overhead_seconds = self._run.switch_overhead_seconds if len(phases) > 1 else 0.0
        return trial_record(
            self._spec,
            self._started_at,
            Position(
                worker_steps,
                elapsed_seconds=training_seconds,
                inherited_seconds=self._inherited_seconds,
                switch_overhead_seconds=overhead_seconds,
                phases=phases,
            ),
            self._evaluations,
            diverged=diverged,
            stopped_early=stopped_early,
            checkpoints=self._checkpoints,
        )

    def _report_progress(self, worker_step: int) -> None:
        # Some logs count a few worker-steps beyond the end of the job.
        self._observer.on_progress(min(worker_step, self._spec.identity.total_worker_steps))

    def _write_checkpoints_before(self, worker_step: int) -> None:
        while self._due and self._due[0].end_worker_step < worker_step:
            self._write_checkpoint(self._due.popleft())

    def _write_checkpoint(self, segment: Segment) -> None:
        spec, done = self._spec, segment.end_worker_step
        path = checkpoint_path(spec, segment.checkpoint_percents[0], ".json")
        checkpoint = ReplayCheckpoint(
            model=model_of(spec.identity),
            job=spec.identity.key,
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
                f" name one that exists and is writable",
                code="file-unusable",
            ) from error
        with whole_file(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(checkpoint), indent=2) + b"\n")
        self._checkpoints.update(dict.fromkeys(segment.checkpoint_percents, path))
