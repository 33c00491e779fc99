"""Counts of staleness and loss."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class StalenessCount:
    """Sum and maximum of what was measured at each push."""

    pushes: int = 0
    total: int = 0
    maximum: int = 0

    def add(self, staleness: int) -> None:
        """Counts one push."""
        self.pushes += 1
        self.total += staleness
        self.maximum = max(self.maximum, staleness)

    @property
    def mean(self) -> float | None:
        """None where nothing was measured."""
        return self.total / self.pushes if self.pushes else None


@dataclass
class LossMean:
    """Mean training loss since it was last taken."""

    pushes: int = 0
    total: float = 0.0

    def add(self, loss: float) -> None:
        """Counts one push."""
        self.pushes += 1
        self.total += loss

    def take(self) -> float:
        """The mean, from which the next one starts anew; NaN where nothing was pushed."""
        mean = self.total / self.pushes if self.pushes else math.nan
        self.pushes, self.total = 0, 0.0
        return mean
