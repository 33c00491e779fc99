"""Recorded runs of a workload, and the choice of one that answers a trial."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import (
    CONVERGENCE_EVALUATIONS,
    Evaluation,
    PhaseRecord,
    TrialState,
)
from syncswitch.trainers.job.schedule import percent_to_worker_steps
from syncswitch.trainers.run.record import RunTimes, cut_phases, merge_phases

if TYPE_CHECKING:
    from syncswitch.storage.database.engine import Database
    from syncswitch.storage.trials.values import StoredTrial

REPLAY = "replay"
"""Name of the trainer that replays recorded runs; its own runs are not recordings."""


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

    identity: WorkloadIdentity
    runs: tuple[RecordedRun, ...]
    reference: str = ""  # which loads the workload, or the name of an imported one

    @cached_property
    def _by_switch_point(self) -> Mapping[float, tuple[RecordedRun, ...]]:
        found: dict[float, list[RecordedRun]] = defaultdict(list)
        for run in self.runs:
            found[run.candidate_percent].append(run)
        return {switch_point: tuple(found[switch_point]) for switch_point in sorted(found)}

    @property
    def switch_points(self) -> tuple[float, ...]:
        """Switch points with a run, in percent, ascending."""
        return tuple(self._by_switch_point)

    def at(self, candidate_percent: float) -> tuple[RecordedRun, ...]:
        """The runs of a switch point."""
        return self._by_switch_point.get(candidate_percent, ())

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
    """Indices of the runs with these seeds at a switch point, in the order of a deal."""

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
    Runs of the `replay` trainer and with an online policy or injections are left out.
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
        and trial.study not in replays
        and (trial.first_protocol, trial.second_protocol) == protocols
        and workers in (None, trial.workers)
        and cluster in (None, "simulated" if trial.simulated_cluster else "real")
    ]
    counted = [trial for trial in complete if trial.candidate_percent is not None]
    counted = [trial for trial in counted if trial.simulated_cluster is None] or counted
    _check_one_workload(workload, counted)
    runs: list[RecordedRun] = []
    if counted:
        job = counted[0].fingerprint
        whole = whole_runs(
            [trial for trial in complete if trial.fingerprint == job], store.curves(job)
        )
        runs = [whole[trial.trial_id] for trial in counted if trial.trial_id in whole]
    registered = PolicyRegistry(database).workload(counted[0].fingerprint) if runs else None
    if registered is None:
        raise UserError(
            f"no complete runs of {workload!r} with {','.join(protocols)} in {shown(database.url)},"
            " those with --online or --inject aside; `syncswitch-search run` or `syncswitch-search"
            " import` adds them"
        )
    return Recording(registered.identity, tuple(runs), registered.reference)


def _check_one_workload(workload: str, trials: Iterable[StoredTrial]) -> None:
    clusters = {trial.fingerprint: trial for trial in trials}
    if len(clusters) > 1:
        found = ", ".join(
            f"{name[:12]} ({one.workers}{' simulated' if one.simulated_cluster else ''} workers)"
            for name, one in clusters.items()
        )
        raise UserError(
            f"{workload!r} names {len(clusters)} workloads: {found}; choose with --workers or the"
            " fingerprint"
        )


def whole_runs(
    trials: Iterable[StoredTrial], curves: Mapping[int, tuple[Evaluation, ...]]
) -> dict[int, RecordedRun]:
    """Complete runs of one workload from their first worker-step on, by `trial_id`.

    A fork is completed with the start of its parent, and left out if the parent is missing.
    """
    by_id = {trial.trial_id: trial for trial in trials}
    known: dict[int, RecordedRun | None] = {}

    def whole(trial_id: int) -> RecordedRun | None:
        """The run from its first worker-step; None where a part of it is missing."""
        if trial_id not in known:
            known[trial_id] = None  # ends the recursion if a fork is its own ancestor
            if trial_id in by_id:
                known[trial_id] = completed(by_id[trial_id])
        return known[trial_id]

    def completed(trial: StoredTrial) -> RecordedRun | None:
        own = _own_part(trial, curves.get(trial.trial_id, ()))
        if trial.parent_trial_id is None:
            return own
        parent, start = whole(trial.parent_trial_id), _fork_worker_step(trial)
        if parent is None or parent.worker_steps < start:
            return None
        return _with_prefix(own, parent, start, trial)

    found = {trial_id: whole(trial_id) for trial_id in by_id}
    return {trial_id: run for trial_id, run in found.items() if run is not None}


def _own_part(trial: StoredTrial, curve: tuple[Evaluation, ...]) -> RecordedRun:
    switch_point = (
        trial.switch_percent if trial.candidate_percent is None else trial.candidate_percent
    )
    return RecordedRun(
        candidate_percent=switch_point,
        accuracy=trial.converged_accuracy or 0.0,
        training_seconds=trial.training_seconds or 0.0,
        diverged=bool(trial.diverged),
        first_seconds=_first_seconds(trial.phases, trial.first_protocol),
        worker_steps=trial.worker_steps,
        evaluations=curve,
        phases=trial.phases,
        switch_overhead_seconds=trial.switch_overhead_seconds or 0.0,
        seed=trial.seed,
        stopped_early=bool(trial.stopped_early),
        converged_evaluations=trial.converged_evaluations or CONVERGENCE_EVALUATIONS,
        name=trial.source or f"{trial.study} trial {trial.trial_number}",
    )


def _fork_worker_step(trial: StoredTrial) -> int:
    if trial.phases:
        return trial.phases[0].start_worker_step
    # It diverged at once, so an approximate worker-step is enough.
    return percent_to_worker_steps(trial.fork_percent or 0.0, trial.total_worker_steps)


def _with_prefix(
    own: RecordedRun, parent: RecordedRun, start: int, trial: StoredTrial
) -> RecordedRun:
    inherited_seconds = trial.inherited_seconds or 0.0
    prefix = cut_phases(parent.phases, 0, start, parent.clock())
    seconds = sum(phase.seconds for phase in prefix)
    # The checkpoint's time is measured; the time of its worker-step in the parent is interpolated.
    scale = inherited_seconds / seconds if seconds > 0 else 1.0
    prefix = tuple(replace(phase, seconds=scale * phase.seconds) for phase in prefix)
    phases = merge_phases((*prefix, *own.phases))
    return replace(
        own,
        first_seconds=_first_seconds(phases, trial.first_protocol),
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
