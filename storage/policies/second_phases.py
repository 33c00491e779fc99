"""What recorded jobs bear in their second phase: kept shares and times by switch point.

The file is made by `python -m benchmarks.second_phases --write`. It needs the standard library
alone, as training loops of users import it.
"""

from __future__ import annotations

import functools
import json
import statistics
from dataclasses import dataclass
from pathlib import Path

_OTHER = {"kept", "zeroed", "growing"}
"""Words of a second phase that has another one's name and is not what was recorded."""
_FILE = Path(__file__).with_name("second_phases.json")


@dataclass(frozen=True, slots=True)
class RecordedPhase:
    """The recorded jobs of a second phase.

    Attributes:
        second_protocol: As it is written, with RATE for the highest rate of a worker.
        provenance: Where the recordings come from, and how they were made.
        runs: Recorded runs of each job at each switch point.
        kept_shares: By switch point in percent, ascending, the share of each job's runs that end at
            most 0.01 below the mean of BSP.
        times: By switch point the mean time of each job, relative to BSP.
    """

    second_protocol: str
    provenance: str
    runs: int
    kept_shares: dict[float, tuple[float, ...]]
    times: dict[float, tuple[float, ...]]

    @property
    def jobs(self) -> int:
        return len(next(iter(self.kept_shares.values())))

    def mean_kept_share(self, percent: float) -> float:
        return statistics.fmean(self.kept_shares[percent])

    def mean_time(self, percent: float) -> float:
        return statistics.fmean(self.times[percent])


def recorded_phase(second_protocol: str, *, owns_momentum: bool) -> RecordedPhase | None:
    """Returns the recorded jobs of a second phase, or None where nobody has recorded any.

    Args:
        second_protocol: As it is recorded.
        owns_momentum: Whether each worker keeps its own momentum, where pushes are applied one by
            one.
    """
    words = second_protocol.split(":")
    is_recorded = (
        words[0] in ("local-sgd", "qsr") and "semi-sync" in words and not _OTHER & {*words}
    )
    name = "semi-sync" if is_recorded else "asp" if words == ["asp"] and owns_momentum else None
    return next((one for one in recorded_phases() if name in one.second_protocol.split(":")), None)


@functools.cache
def recorded_phases() -> tuple[RecordedPhase, ...]:
    """Returns what the file holds."""
    return tuple(
        RecordedPhase(
            phase["second_protocol"],
            phase["provenance"],
            phase["runs"],
            *(
                {
                    percent: tuple(job[what][place] for job in phase["jobs"].values())
                    for place, percent in enumerate(phase["percents"])
                }
                for what in ("kept_shares", "times")
            ),
        )
        for phase in json.loads(_FILE.read_text("utf-8"))["phases"]
    )
