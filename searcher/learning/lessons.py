"""What a training shows of its switch, as observations of a strategy; pure."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.records.trial import BASELINE_PERCENT

# Replicates of uses begin here, so that they are none of a search.
_FIRST_REPLICATE = 1_000_000


def lessons_of(
    use: Observation, number: int, seed: int, failed_percents: tuple[float, ...] = ()
) -> list[Observation]:
    """One observation of each switch that failed, and one of that which held.

    As a run goes on from a failed switch as if it had never been, what it ends with is an accuracy
    of the last one, or of the first protocol alone. Of that the same seed gives the same run, which
    counts once; what comes after a switch differs from run to run.

    Args:
        use: With the switch that held, and the accuracy of the model that it delivered. Where it is
            alarmed, that switch failed as well, and the first protocol alone held.
        number: Of the use, from 0.
        seed: Of the use, 0 or more.
        failed_percents: Switches that failed before.
    """
    if use.alarmed:
        failed_percents = (*failed_percents, use.switch_percent)
        use = replace(use, switch_percent=BASELINE_PERCENT, alarmed=False)
    use = replace(use, trial_number=_FIRST_REPLICATE + number, replicate=_FIRST_REPLICATE + number)
    lessons = [replace(use, switch_percent=one, alarmed=True) for one in failed_percents]
    alone = use.switch_percent == BASELINE_PERCENT
    lessons.append(replace(use, replicate=-1 - seed) if alone else use)
    # The run was paid for once.
    return [one if place == 0 else replace(one, cost=None) for place, one in enumerate(lessons)]
