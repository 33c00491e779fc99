"""The runs of a search that count, on the switch points of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from syncswitch.searcher.strategies.early_stopping import corrected
from syncswitch.searcher.strategies.observation import SHARES, AccuracyRange, Observation


@dataclass(frozen=True)
class History:
    """What was measured.

    Attributes:
        grid: Switch points in percent, ascending.
        runs: Completed ones in the order in which they were made: one for each switch point and
            replicate, as another with the same seed and the same start says little new.
    """

    grid: tuple[float, ...]
    runs: tuple[Observation, ...]

    @classmethod
    def of(
        cls,
        finished: Iterable[Observation],
        grid: tuple[float, ...],
        limits: AccuracyRange = SHARES,
    ) -> History:
        """Leaves out what does not count, whatever the order of the rest."""
        runs: dict[tuple[float, int], Observation] = {}
        for run in sorted(finished, key=_order):
            if run.switch_percent in grid:
                runs.setdefault((run.switch_percent, run.replicate), run)
        return cls(grid, tuple(corrected(runs.values(), limits)))

    def at(self, index: int) -> list[Observation]:
        """The completed runs of a switch point."""
        return [run for run in self.runs if run.switch_percent == self.grid[index]]

    def made(self, index: int) -> int:
        """How many those are."""
        return len(self.at(index))

    def next_replicate(self, index: int) -> int:
        """Of a further run at a switch point: the lowest that it does not have."""
        used = {run.replicate for run in self.at(index)}
        return next(number for number in itertools.count() if number not in used)


def _order(run: Observation) -> tuple[int, float, int, float, bool]:
    return (run.trial_number, run.switch_percent, run.replicate, run.accuracy, run.diverged)
