"""Shared prefixes: where a run starts, and which checkpoints it leaves for those after it.

All switch points of a replicate have the same seed, so up to the earlier switch two of its runs are
the same training. A run therefore starts from the latest checkpoint of its replicate that is not
beyond its switch, and leaves one at each switch point that it passes.

That holds whatever comes after the switch: searches of the same job with other second protocols
answer for the first protocol alone, and their checkpoints serve all. Of a run that begins at such a
checkpoint the whole is recorded, as a fork has its parent in its own search.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from syncswitch.searcher.search.recorded import record_of
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    Evaluation,
    PhaseRecord,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Fork, StoredCheckpoint, StoredTrial
from syncswitch.trainers.replay.recording import RecordedRun, whole_runs
from syncswitch.trainers.run.record import merge_phases

DEFAULT_FOLDER = Path("syncswitch-checkpoints")
"""In the working folder."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """How a run of a replicate begins, and what it leaves.

    Attributes:
        fork: The run of its search that it is forked from; None where it starts afresh, or from a
            run of another search.
        path: Of the checkpoint.
        checkpoint_percents: Where to write one.
        evaluations: Of the part that is inherited.
    """

    fork: Fork | None = None
    path: Path | None = None
    checkpoint_percents: tuple[float, ...] = ()
    checkpoint_directory: Path | None = None
    evaluations: tuple[Evaluation, ...] = ()


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
        """Return this run of the first protocol alone from another search, if one made it.

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


class Prefixes:
    """The checkpoints of one search."""

    def __init__(
        self,
        store: TrialStore,
        study: str,
        strategy: Strategy,
        directory: Path,
        *,
        may_share: bool = True,
        others: OtherPairs,
    ) -> None:
        """Writes nothing.

        Only runs that are the same training up to a switch may share; new checkpoints go into a
        folder of the search's own.
        """
        self._store = store
        self._others = others
        self._study = study
        self._strategy = strategy
        self._is_shared = strategy.share_prefix and may_share
        self._directory = directory.absolute() / study
        self._unreadable: set[Path] = set()

    def of(
        self,
        number: int,
        switch_percent: float,
        replicate: int,
        rows: Mapping[int, StoredTrial],
    ) -> Prefix:
        """Return what a run starts from; a checkpoint whose file is gone is passed over.

        Raises UserError where the folder for new ones cannot be made.
        """
        if not self._is_shared:
            return Prefix()
        self._make_directory()
        fit = (
            found
            for found in self._store.checkpoints(self._study)
            if found.replicate == replicate
            and found.percent <= switch_percent
            and found.trial_number in rows
            and self._is_there(found.path)
        )
        best = max(fit, key=lambda found: found.percent, default=None)
        other = self._others.checkpoint(replicate, switch_percent, self._is_there)
        if other is not None and (best is None or best.percent < other[0].percent):
            fork, (best, evaluations) = None, other
        else:
            fork = Fork(best.trial_number, best.percent) if best else None
            evaluations = self._evaluations(fork, rows) if fork else ()
        start = best.percent if best else 0.0
        return Prefix(
            fork=fork,
            path=best.path if best else None,
            checkpoint_percents=tuple(
                percent
                for percent in self._strategy.grid()[:-1]
                if start < percent <= switch_percent
            ),
            checkpoint_directory=self._directory / str(number),
            evaluations=evaluations,
        )

    def distrust(self, path: Path) -> None:
        """Never starts from this checkpoint again."""
        self._unreadable.add(path)

    def remove(self) -> None:
        """Deletes the checkpoints of the search, which is decided."""
        if not self._is_shared:
            return
        self._store.forget_checkpoints(self._study)
        shutil.rmtree(self._directory, ignore_errors=True)
        ours = self._directory.parent
        # A folder that the user named stays, even where it is empty.
        is_default = ours.parent.name == DEFAULT_FOLDER.name
        for folder in (ours, ours.parent) if is_default else (ours,):
            with contextlib.suppress(OSError):
                folder.rmdir()  # only where it is empty

    def _make_directory(self) -> None:
        """Makes the folder for new checkpoints, before anything is trained for nothing."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the folder for checkpoints {self._directory.parent} cannot be used:"
                f" {error.strerror or error}; name another with --checkpoints, or give"
                " --no-share-prefix"
            ) from error

    def _is_there(self, path: Path) -> bool:
        return path not in self._unreadable and path.is_file()

    def _evaluations(self, fork: Fork, rows: Mapping[int, StoredTrial]) -> tuple[Evaluation, ...]:
        """Evaluations of a run up to a percent of W, with those that it inherited."""
        numbers = {row.trial_id: number for number, row in rows.items()}
        parts: list[list[Evaluation]] = []
        number, percent = fork.trial_number, fork.percent
        while True:
            row = rows[number]
            until = percent / 100 * row.total_worker_steps
            found = self._store.evaluations(self._study, number)
            parts.append([e for e in found if e.worker_step <= until])
            if row.parent_trial_id is None:
                return tuple(evaluation for part in reversed(parts) for evaluation in part)
            number, percent = numbers[row.parent_trial_id], row.fork_percent or 0.0
