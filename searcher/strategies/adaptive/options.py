"""What may be chosen of the adaptive strategy, and what follows from that alone."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.grids import halvings


@dataclass(frozen=True, slots=True)
class AdaptiveOptions(Strategy):
    """The fields of `AdaptiveStrategy`, which explains them."""

    share_prefix: bool = True
    early_stop: bool = True
    criterion: str = "kept"
    keep: float = 0.95
    uses: int = 30
    target_runs: int = 5
    least_runs: int | None = None
    budget: float | None = None
    recorded: tuple[tuple[float, int], ...] = ()
    switch_points: tuple[float, ...] = ()

    @property
    @override
    def name(self) -> str:
        return "adaptive"

    @property
    @override
    def most_runs(self) -> int:
        """Runs of a search that is never sure, which may measure a known target again."""
        return len(self.grid()) * self.runs

    @property
    def own_runs(self) -> int:
        """Runs that the answer itself needs."""
        usual = 1 if self.criterion == "mean" else 2
        return usual if self.least_runs is None else self.least_runs

    @override
    def grid(self) -> tuple[float, ...]:
        percents = {*self.switch_points, 100.0} if self.switch_points else self._usual_percents()
        width = self.highest_percent - self.lowest_percent
        return tuple(self.lowest_percent + width * percent / 100 for percent in sorted(percents))

    def _usual_percents(self) -> set[float]:
        usual = set(halvings(self.settings))
        return usual if self.criterion == "mean" else {*usual, 75.0}
