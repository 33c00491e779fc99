"""What a search over pairs of protocols found of each of them; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.results.result import SearchResult
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.strategies.pairs import Dropped, is_preferred
from syncswitch.storage.records.job import WorkloadIdentity


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """What became of one pair.

    Attributes:
        study: Name of its search.
        found: The earliest switch that keeps the accuracy, or why nobody looked on for it.
        seconds: A training with that switch, at the pace of the runs behind it; infinite where
            nobody knows.
        runs: Completed runs of the pair, those of the first protocol alone included that it has
            from another pair.
        paid_seconds: Training time of its own.
    """

    identity: WorkloadIdentity
    study: str
    found: Decided | Dropped
    seconds: float
    runs: int
    paid_seconds: float

    @property
    def name(self) -> str:
        """For example `bsp,asp`."""
        return self.identity.pair


@dataclass(frozen=True, slots=True)
class PairsResult:
    """The end of a search over pairs: one policy.

    Attributes:
        pairs: In the order in which they were tried.
        best: The search of the pair whose policy it is.
    """

    pairs: tuple[PairOutcome, ...]
    best: SearchResult


def best_of(pairs: Sequence[PairOutcome]) -> PairOutcome | None:
    """The fastest pair that keeps the accuracy, of nearly equal ones the first; None for none.

    Args:
        pairs: In the order in which they were tried.
    """
    best = None
    for pair in pairs:
        if isinstance(pair.found, Decided) and (
            best is None or is_preferred(pair.seconds, best.seconds)
        ):
            best = pair
    return best


def paid_trainings(pairs: Sequence[PairOutcome], baseline_seconds: float | None) -> float | None:
    """What all pairs cost together, in trainings with the first protocol alone."""
    paid = math.fsum(one.paid_seconds for one in pairs)
    return paid / baseline_seconds if baseline_seconds else None
