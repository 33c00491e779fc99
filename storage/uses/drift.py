"""Whether the runs of a job stop keeping the accuracy; pure.

Whatever a search believes of a job takes all its runs for equal. One that changes, by new data or
another machine, shows first in that its newest runs fail as the former ones did not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# So many of the newest runs are held against all before them.
_NEWEST = 10
# With fewer former ones, even ten failures in a row may be what they always did.
_LEAST_FORMER = 5
# Chance to see so few kept in a job that stays as it is. As it is asked after every use, one of 60
# such jobs is called so by mistake within a hundred uses.
_CHANCE = 0.001


@dataclass(frozen=True, slots=True)
class Drift:
    """The newest runs keep the accuracy much less often than the former ones.

    Attributes:
        newest: So many runs are looked at.
        newest_kept: Of these, those that keep it.
        former: All before them.
        former_kept: The same of those.
    """

    newest: int
    newest_kept: int
    former: int
    former_kept: int


def drift_of(kept: Sequence[bool]) -> Drift | None:
    """Looks whether a job has changed.

    Fisher's exact test, one-sided, of the last ten runs against all before them.

    Args:
        kept: Of each run at one switch point whether the switch kept the accuracy, oldest first.
    """
    former, newest = kept[:-_NEWEST], kept[-_NEWEST:]
    if len(former) < _LEAST_FORMER:
        return None
    found = Drift(len(newest), sum(newest), len(former), sum(former))
    return found if _chance(found) < _CHANCE else None


def _chance(drift: Drift) -> float:
    """The chance of drawing this few of the kept runs, or fewer, into the newest ones."""
    everything = drift.newest + drift.former
    all_kept = drift.newest_kept + drift.former_kept
    ways = sum(
        math.comb(all_kept, number) * math.comb(everything - all_kept, drift.newest - number)
        for number in range(drift.newest_kept + 1)
    )
    return ways / math.comb(everything, drift.newest)
