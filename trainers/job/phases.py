"""A plan of phases, as users write it: `bsp:10,asp:80,bsp:10`."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from syncswitch.storage.errors import UserError
from syncswitch.trainers.protocols import alone, choose_protocol

_MOST_PHASES = 16


@dataclass(frozen=True)
class PhasePlan:
    """Two protocols that take turns.

    Attributes:
        protocols: Before and after the first switch.
        switch_percent: Percent of W at which that is.
        later_switches: Percents of W at which they change places again.
    """

    protocols: tuple[str, str]
    switch_percent: float
    later_switches: tuple[float, ...] = ()


def parse_phases(text: str) -> PhasePlan:
    """Reads `protocol:percent,...`, the phases of a training and their lengths.

    Raises UserError where they are no turns of two protocols, or no whole job.
    """
    wrong = UserError(
        f"--phases is {text!r}: give phases of two protocols in turns, each with its percent of the"
        " job, 100 in all, such as bsp:10,asp:80,bsp:10"
    )
    names: list[str] = []
    lengths: list[float] = []
    for part in text.split(","):
        protocol, _, length = part.rpartition(":")
        if not protocol.strip():
            raise wrong
        names.append(choose_protocol(protocol).text)
        try:
            lengths.append(float(length))
        except ValueError:
            raise wrong from None
    are_turns = names == [names[number % 2] for number in range(len(names))]
    is_whole = all(length > 0 for length in lengths) and math.isclose(sum(lengths), 100.0)
    if not are_turns or not is_whole or len(names) > _MOST_PHASES:
        raise wrong
    if len(names) == 1:
        return PhasePlan(alone(names[0]), 100.0)
    if names[0] == names[1]:
        raise wrong
    # Ten tenths are not quite one.
    first, *later = (round(end, 9) for end in itertools.accumulate(lengths[:-1]))
    return PhasePlan((names[0], names[1]), first, tuple(later))
