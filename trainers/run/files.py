"""The checkpoints that a run has written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path


class CheckpointFiles:
    """Those of one run; which of them may go.

    Attributes:
        paths: By percent of W.
    """

    def __init__(self) -> None:
        self.paths: dict[float, Path] = {}

    def add(self, percents: Sequence[float], path: Path) -> None:
        """Records a file."""
        self.paths.update(dict.fromkeys(percents, path))

    def drop_all_but(self, kept: int, spared: float | None = None) -> list[Path]:
        """Forgets all but `kept` of them, those of the most worker-steps; returns the others.

        Args:
            kept: So many stay.
            spared: The percent of one that stays besides; None for no such.
        """
        at_spared = None if spared is None else self.paths.get(spared)
        files = dict.fromkeys(self.paths[one] for one in sorted(self.paths))
        there = [path for path in files if path != at_spared]
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
