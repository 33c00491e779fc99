"""Shared prefixes: the checkpoint that a run starts from, and those that it leaves for later runs.

All switch points of a replicate have the same seed, so two of its runs are the same training up to
the earlier switch. A run therefore starts from the latest checkpoint of its replicate that is not
beyond its switch, and leaves one at each switch point that it passes.

What comes after the switch does not matter for that, so in a search over several pairs of protocols
the checkpoints serve all of them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from syncswitch.searcher.search.recorded import completed_runs
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Fork

DEFAULT_FOLDER = Path("syncswitch-checkpoints")
"""Folder for checkpoints, in the working folder."""


def check_storable(folder: Path) -> None:
    """Raises UserError if no database can keep the path of a folder for checkpoints."""
    whole = str(folder.absolute())
    try:
        whole.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            "its path is not UTF-8 text",
            parameter="checkpoints",
            value=whole,
            remedy=(
                OptionHint("checkpoints", verb="name another with"),
                OptionHint("share_prefix", False),
            ),
            code="file-unusable",
        ) from error


@dataclass
class Prefixes:
    """The checkpoints of one search.

    It `may_share` them if runs of a replicate are alike up to their switch.
    """

    store: TrialStore
    study: str
    strategy: Strategy
    folder: Path
    may_share: bool

    def __post_init__(self) -> None:
        self._is_shared = self.strategy.share_prefix and self.may_share
        self._directory = self.folder.absolute() / self.study
        self._unreadable: set[Path] = set()

    def with_checkpoint(self, spec: TrialSpec, number: int) -> tuple[TrialSpec, Fork | None]:
        """Adds to a run what it starts from, and the checkpoints that it leaves.

        Also returns where it leaves another run; None if it starts afresh. Raises UserError if the
        folder cannot be created.
        """
        if not self._is_shared:
            return spec, None
        try:  # before anything is trained in vain
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the folder for checkpoints {self._directory.parent} cannot be used:"
                f" {error.strerror or error}",
                remedy=(
                    OptionHint("checkpoints", verb="name another with"),
                    OptionHint("share_prefix", False),
                ),
                code="file-unusable",
            ) from error
        fitting = [
            one
            for one in self.store.checkpoints(self.study)
            if one.replicate == spec.replicate
            and one.percent <= spec.switch_percent
            and one.path not in self._unreadable
            and one.path.is_file()
        ]
        fork, start = None, 0.0
        if fitting:
            best = max(fitting, key=lambda one: one.percent)
            runs = completed_runs(self.store, self.study, self.store.trials(study=self.study))
            parent = runs[best.trial_number]
            start = best.percent
            fork = Fork(best.trial_number, start)
            until = start / 100 * spec.identity.total_worker_steps
            spec = replace(
                spec,
                fork_from=best.path,
                inherited_evaluations=tuple(
                    one for one in parent.evaluations if one.worker_step <= until
                ),
            )
        percents = self.strategy.grid()[:-1]
        spec = replace(
            spec,
            checkpoint_percents=tuple(
                one for one in percents if start < one <= spec.switch_percent
            ),
            checkpoint_directory=self._directory / str(number),
        )
        return spec, fork

    def distrust(self, path: Path) -> None:
        self._unreadable.add(path)

    def remove(self) -> None:
        if not self._is_shared:
            return
        recorded = [one.path for one in self.store.checkpoints(self.study)]
        self.store.forget_checkpoints(self.study)
        # Each run has a folder, and half-written files begin with a dot; whatever else is there is
        # not ours.
        runs = [folder for folder in self._directory.glob("*") if folder.name.isdigit()]
        unfinished = [path for folder in runs for path in folder.glob(".seed-*")]
        unrecorded = [path for folder in runs for path in folder.glob("seed-*")]
        for path in {*recorded, *unfinished, *unrecorded}:
            with contextlib.suppress(OSError):
                path.unlink()
        ours = self._directory.parent
        # A folder that the user named stays, even if it is empty.
        is_default = ours.parent.name == DEFAULT_FOLDER.name
        folders = (*runs, self._directory, ours, *((ours.parent,) if is_default else ()))
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()  # fails unless it is empty
