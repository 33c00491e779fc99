"""The runs of a search that count, and those under way, on the settings of a grid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncswitch.searcher.decision import Observation
from syncswitch.searcher.stopping import corrected

__all__ = ["History"]


@dataclass(frozen=True)
class History:
    """What was measured, and what is being measured.

    Attributes:
        grid: Settings in percent, ascending.
        runs: Completed ones in the order in which they were made: one for each setting and
            replicate, as another with the same seed and the same start says little new.
        in_flight: Runs under way, by index of their setting.
    """

    grid: tuple[float, ...]
    runs: tuple[Observation, ...]
    in_flight: tuple[int, ...]

    @classmethod
    def of(
        cls,
        finished: Iterable[Observation],
        in_flight_percents: Iterable[float],
        grid: tuple[float, ...],
    ) -> History:
        """Leaves out what does not count, whatever the order of the rest."""
        runs: dict[tuple[float, int], Observation] = {}
        for run in sorted(finished, key=_order):
            if run.switch_percent in grid:
                runs.setdefault((run.switch_percent, run.replicate), run)
        under_way = sorted(grid.index(p) for p in in_flight_percents if p in grid)
        return cls(grid, tuple(corrected(runs.values())), tuple(under_way))

    def at(self, index: int) -> list[Observation]:
        """The completed runs of a setting."""
        return [run for run in self.runs if run.switch_percent == self.grid[index]]

    def made(self, index: int) -> int:
        """How many those are."""
        return len(self.at(index))

    def taken(self, index: int) -> int:
        """With those under way."""
        return self.made(index) + self.in_flight.count(index)

    def replicates(self, index: int) -> list[int]:
        """Of the runs under way at a setting, and at the end that of a next one.

        Nobody says which they are, but whoever starts a run takes the lowest that is free.
        """
        used = {run.replicate for run in self.at(index)}
        free = (number for number in range(len(self.runs) + len(self.in_flight) + 1))
        wanted = self.in_flight.count(index) + 1
        return [number for number in free if number not in used][:wanted]


def _order(run: Observation) -> tuple[int, float, int, float, bool]:
    return (run.trial_number, run.switch_percent, run.replicate, run.accuracy, run.diverged)
