"""What searches of the same job with other second protocols have trained, and nobody need again.

Up to its switch a run is the same training whatever comes after it. So a run of the first protocol
alone answers for all pairs, and so do the checkpoints on the way of any run up to its switch. Of
such a run the whole is recorded, as a fork has its parent in its own search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from syncswitch.searcher.search.recorded import record_of
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    Evaluation,
    PhaseRecord,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredCheckpoint, StoredTrial
from syncswitch.trainers.replay.recording import RecordedRun, whole_runs
from syncswitch.trainers.run.record import merge_phases


class OtherPairs:
    """The searches of a job's other pairs with the same first protocol and the same seeds."""

    def __init__(self, store: TrialStore, studies: Sequence[str] = ()) -> None:
        """Reads nothing yet.

        Args:
            store: Of the runs.
            studies: The names of these searches.
        """
        self._store = store
        self._studies = studies

    def baseline(self, spec: TrialSpec) -> TrialRecord | None:
        """The same run of the first protocol alone; None for another run, or where nobody made it.

        It costs nothing now.
        """
        if spec.switch_percent < BASELINE_PERCENT:
            return None
        for study in self._studies:
            rows = self._complete(study)
            for row in rows:
                if row.switch_percent == BASELINE_PERCENT and row.seed == spec.seed:
                    run = self._whole(rows).get(row.trial_id)
                    if run is not None:
                        found = record_of(self._store, row, spec)
                        return replace(found, evaluations=run.evaluations, phases=run.phases)
        return None

    def checkpoint(
        self, replicate: int, switch_percent: float, is_there: Callable[[Path], bool]
    ) -> tuple[StoredCheckpoint, tuple[Evaluation, ...]] | None:
        """The latest one that a run with this switch passes, and the tests up to there.

        Args:
            replicate: Of the run, so its seed.
            switch_percent: Where it switches.
            is_there: Says that a file can be used.
        """
        found = [
            (one.percent, study, one)
            for study in self._studies
            for one in self._store.checkpoints(study)
            if one.replicate == replicate and one.percent <= switch_percent and is_there(one.path)
        ]
        if not found:
            return None
        percent, study, best = max(found, key=lambda one: one[0])
        rows = self._complete(study)
        row = next(row for row in rows if row.trial_number == best.trial_number)
        run = self._whole(rows).get(row.trial_id)
        if run is None:
            return None
        until = percent / 100 * row.total_worker_steps
        return best, tuple(one for one in run.evaluations if one.worker_step <= until)

    def _complete(self, study: str) -> list[StoredTrial]:
        rows = self._store.trials(study=study)
        return [row for row in rows if row.state == TrialState.COMPLETE]

    def _whole(self, rows: Sequence[StoredTrial]) -> dict[int, RecordedRun]:
        fingerprint, study = rows[0].fingerprint, rows[0].study
        return whole_runs(rows, self._store.curves(fingerprint, study=study))


def as_whole(record: TrialRecord) -> TrialRecord:
    """A run that began at a checkpoint of another pair, with what it has from there."""
    spec = record.spec
    phases = record.phases
    if phases:
        start, first = phases[0].start_worker_step, spec.identity.first_protocol
        begun = PhaseRecord(first, 0, start, record.inherited_seconds, None, None)
        phases = merge_phases((begun, *phases))
    return replace(
        record,
        spec=replace(spec, inherited_evaluations=()),
        evaluations=(*spec.inherited_evaluations, *record.evaluations),
        phases=phases,
    )
