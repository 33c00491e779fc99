"""What a run teaches, as observations of a strategy; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.trial import BASELINE_PERCENT, PhaseRecord

# Replicates of uses begin here, beyond those of any search.
_FIRST_REPLICATE = 1_000_000


def lessons_of(
    use: Observation, number: int, seed: int, failed: Iterable[tuple[float, float | None]] = ()
) -> list[Observation]:
    """One observation of each switch that failed in a run, and one of the switch that held.

    A run goes on from a failed switch as if it had never been, so the accuracy of `use` is one of
    the last switch; if it is alarmed, that failed as well, and it is one of the first protocol
    alone. Of the switches that `failed` before, those that trained to their end have an accuracy.

    With the first protocol alone the same seed gives the same run, which counts once; what comes
    after a switch differs from run to run. `number` counts the uses from 0.
    """
    if use.alarmed:
        failed = (*failed, (use.switch_percent, None))
        use = replace(use, switch_percent=BASELINE_PERCENT, alarmed=False)
    use = replace(use, trial_number=_FIRST_REPLICATE + number, replicate=_FIRST_REPLICATE + number)
    lessons = [
        replace(
            use,
            switch_percent=percent,
            accuracy=use.accuracy if accuracy is None else accuracy,
            diverged=False,
            alarmed=accuracy is None,
        )
        for percent, accuracy in failed
    ]
    alone = use.switch_percent == BASELINE_PERCENT
    lessons.append(replace(use, replicate=-1 - seed) if alone else use)
    # The run is paid for once.
    return [lessons[0], *(replace(lesson, cost=None) for lesson in lessons[1:])]


def shown_percent(percent: float, first_protocol: str, diverged_in: Sequence[PhaseRecord]) -> float:
    """The switch that a run is a lesson of: one that diverged before it shows nothing of it."""
    is_before = percent > 0 and {one.protocol for one in diverged_in} == {first_protocol}
    return BASELINE_PERCENT if is_before else percent


def tried_switches(failed: Iterable[FailedSwitch], steps: int) -> list[tuple[float, float | None]]:
    """The switches that failed, with the accuracy of those that trained to the end of the job."""
    return [
        (switch.switch_percent, switch.accuracy if switch.worker_step >= steps else None)
        for switch in failed
    ]
