"""What a belief begins with and what it is told, whatever the criterion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prior:
    """What is thought before the first run.

    Attributes:
        grid: Switch points in percent, ascending; the last is the first protocol alone.
        threshold: beta, the accuracy that may be lost. The scale of everything.
        largest_loss: The most accuracy that a run can lose.
        noisy_share: Of jobs far noisier than usual, as some lose a run now and then (by the mean).
    """

    grid: tuple[float, ...]
    threshold: float
    largest_loss: float = 1.0
    noisy_share: float = 0.0

    @property
    def octaves(self) -> Floats:
        """(m,) how often the range is halved down to each switch point; 0 at the last."""
        octaves: Floats = np.log2(self.grid[-1] / np.array(self.grid))
        return octaves


@dataclass(frozen=True, slots=True)
class Datum:
    """One run that counts.

    Attributes:
        index: Of its switch point in the grid.
        replicate: Runs of one replicate share the start of the training.
        failed: A guard ended it: it lost more than beta, and nobody knows how much.
    """

    index: int
    accuracy: float
    diverged: bool = False
    replicate: int = 0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """A target that is known from earlier runs: their mean accuracy, and how many they were."""

    accuracy: float
    runs: int
