"""Shared prefixes: where a run starts, and which checkpoints it leaves for those after it.

All switch points of a replicate have the same seed, so up to the earlier switch two of its runs are
the same training. A run therefore starts from the latest checkpoint of its replicate that is not
beyond its switch, and leaves one at each switch point that it passes.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from syncswitch.searcher.search.other_pairs import OtherPairs
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import Evaluation
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Fork, StoredCheckpoint, StoredTrial

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
        others: OtherPairs | None = None,
    ) -> None:
        """Writes nothing.

        Only runs that are the same training up to a switch may share; new checkpoints go into a
        folder of the search's own.
        """
        self._store = store
        self._others = others or OtherPairs(store)
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
        """What a run starts from; a checkpoint whose file is gone is passed over.

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
            return self._prefix(number, switch_percent, other[0], None, other[1])
        fork = Fork(best.trial_number, best.percent) if best else None
        evaluations = self._evaluations(fork, rows) if fork else ()
        return self._prefix(number, switch_percent, best, fork, evaluations)

    def _prefix(
        self,
        number: int,
        switch_percent: float,
        checkpoint: StoredCheckpoint | None,
        fork: Fork | None,
        evaluations: tuple[Evaluation, ...],
    ) -> Prefix:
        start = checkpoint.percent if checkpoint else 0.0
        return Prefix(
            fork=fork,
            path=checkpoint.path if checkpoint else None,
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
        """Before anything is trained for nothing."""
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
        """Those of a run up to a percent of W, with what it inherited."""
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
