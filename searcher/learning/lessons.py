"""What a training shows of its switch, as observations of a strategy; pure."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.records.trial import BASELINE_PERCENT

# Replicates of uses begin here, so that they are none of a search.
_FIRST_REPLICATE = 1_000_000


def lessons_of(use: Observation, number: int, seed: int) -> list[Observation]:
    """One observation; two of a use that the guard sent back to its switch.

    Its switch failed, and as it went on from there as if it had never switched, what it ended with
    is an accuracy of the first protocol alone. Of that the same seed gives the same run, which
    counts once; what comes after a switch differs from run to run.

    Args:
        use: With the accuracy of the model that it delivered.
        number: Of the use, from 0.
        seed: Of the use, 0 or more.
    """
    baseline = replace(
        use,
        switch_percent=BASELINE_PERCENT,
        trial_number=_FIRST_REPLICATE + number,
        replicate=-1 - seed,
        alarmed=False,
        cost=None if use.alarmed else use.cost,
    )
    if use.switch_percent == BASELINE_PERCENT:
        return [baseline]
    switched = replace(
        use, trial_number=_FIRST_REPLICATE + number, replicate=_FIRST_REPLICATE + number
    )
    return [switched, baseline] if use.alarmed else [switched]
