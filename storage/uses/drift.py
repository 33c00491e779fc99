"""Detects that the runs of a job no longer keep the accuracy; pure.

A search takes all runs of a job for equal. If the job changes, by new data or another machine, its
newest runs are the first to fail more often than the former ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Number of newest runs that are compared with all before them.
_NEWEST = 10
# With fewer former ones, even ten failures in a row may be nothing new.
_LEAST_FORMER = 5
# Largest chance to see so few kept in a job that has not changed. As it is computed after each
# use, one of 60 such jobs is reported by mistake within a hundred uses.
_CHANCE = 0.001


@dataclass(frozen=True, slots=True)
class Drift:
    """The newest runs keep the accuracy much less often than the former ones.

    Attributes:
        newest: Number of newest runs.
        newest_kept: How many of them keep it.
        former: Number of runs before them.
        former_kept: How many of those keep it.
    """

    newest: int
    newest_kept: int
    former: int
    former_kept: int


def drift_of(kept: Sequence[bool]) -> Drift | None:
    """Tests whether a job has changed; returns None if not.

    Fisher's exact test, one-sided, of the last ten runs against all before them; `kept` says
    whether the switch kept the accuracy, for each run at one switch point, oldest first.
    """
    former, newest = kept[:-_NEWEST], kept[-_NEWEST:]
    if len(former) < _LEAST_FORMER:
        return None
    found = Drift(len(newest), sum(newest), len(former), sum(former))
    return found if _chance(found) < _CHANCE else None


def _chance(drift: Drift) -> float:
    """Returns the chance that this few of the kept runs, or fewer, are among the newest."""
    everything = drift.newest + drift.former
    all_kept = drift.newest_kept + drift.former_kept
    ways = sum(
        math.comb(all_kept, number) * math.comb(everything - all_kept, drift.newest - number)
        for number in range(drift.newest_kept + 1)
    )
    return ways / math.comb(everything, drift.newest)
