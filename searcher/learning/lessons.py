"""What a training shows of its switch, as observations of a strategy; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.records.trial import BASELINE_PERCENT

# Replicates of uses begin here, so that they are none of a search.
_FIRST_REPLICATE = 1_000_000


def lessons_of(
    use: Observation, number: int, seed: int, failed_percents: Sequence[float] = ()
) -> list[Observation]:
    """One observation of the switch that held, and one of each that the guard took back.

    A run that ended with the first protocol alone is one of that, whatever it tried before. Of
    these the same seed gives the same run, which counts once; what comes after a switch differs
    from run to run.

    Args:
        use: The switch that held, with the accuracy of the model that was delivered.
        number: Position among the uses, from 0.
        seed: Seed of the use, 0 or more.
        failed_percents: Switch points that the guard took back before.
    """
    numbered = replace(
        use, trial_number=_FIRST_REPLICATE + number, replicate=_FIRST_REPLICATE + number
    )
    if use.switch_percent == BASELINE_PERCENT:
        numbered = replace(numbered, replicate=-1 - seed)
    failed = (
        replace(
            numbered,
            switch_percent=percent,
            replicate=_FIRST_REPLICATE + number,
            diverged=False,
            alarmed=True,
            cost=None,
        )
        for percent in failed_percents
    )
    return [*failed, numbered]
