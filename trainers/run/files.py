"""The checkpoints that a run has written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path


class CheckpointFiles:
    """Those of one run; which of them may go.

    Attributes:
        paths: By percent of W.
        spared: The percent of one that always stays; None for no such.
    """

    def __init__(self, spared: float | None) -> None:
        self.paths: dict[float, Path] = {}
        self.spared = spared

    def add(self, percents: Sequence[float], path: Path) -> None:
        """Records a file."""
        self.paths.update(dict.fromkeys(percents, path))

    def drop_all_but(self, kept: int) -> list[Path]:
        """Forgets all but `kept` of them, those of the most worker-steps; returns the others."""
        spared = None if self.spared is None else self.paths.get(self.spared)
        files = dict.fromkeys(self.paths[one] for one in sorted(self.paths))
        there = [path for path in files if path != spared]
        dropped = there[: max(0, len(there) - kept)]
        self._forget(lambda percent: self.paths[percent] in dropped)
        return dropped

    def drop_after(self, percent: float) -> list[Path]:
        """Forgets those of later parts of the job, and returns them."""
        dropped = [path for one, path in self.paths.items() if one > percent]
        self._forget(lambda one: one > percent)
        return list(dict.fromkeys(dropped))

    def _forget(self, is_dropped: Callable[[float], bool]) -> None:
        self.paths = {one: path for one, path in self.paths.items() if not is_dropped(one)}
