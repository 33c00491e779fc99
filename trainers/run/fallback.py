"""What a run does whose switch has failed: another second phase, a later switch, or none; pure.

The recorded jobs say how often a second phase keeps the accuracy (`second_phases.json`). Those that
would have lost it as this run has count for more.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncswitch.storage.policies.second_phases import RecordedPhase, recorded_phase
from syncswitch.storage.records.guard import ALARMED_AFTER
from syncswitch.storage.records.job import OWN_MOMENTUM, Protocols
from syncswitch.trainers.run.record import interpolated

_MOST_FAILED = 3
"""Who has failed so often fails for its seed, whatever it takes."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch to the second of these protocols, at this percent of W."""

    protocols: Protocols
    percent: float


@dataclass(frozen=True, slots=True)
class Following:
    """What follows a switch that has failed.

    Attributes:
        switch: The next one; None if the first protocol does the rest.
        share: How long the rest of the run is expected to take, relative to the whole job in the
            first protocol.
        first_share: The same if the first protocol does the rest.
    """

    switch: Switch | None
    share: float
    first_share: float


def following(
    failed: Sequence[Switch], later_percent: float | None, paces: Mapping[Protocols, float]
) -> Following | None:
    """Decides what follows a switch that has failed, by the least expected time.

    Args:
        failed: The switches of the run that have failed; it is back at the last of these.
        later_percent: Where it would switch again in any case; None if it would not.
        paces: The time of a worker-step relative to the first protocol, of each second phase that
            the run may take.

    Returns:
        The decision; None where nobody knows what the run would do in any case.
    """
    own, here = failed[-1].protocols, failed[-1].percent
    usual = None if later_percent is None else Switch(own, later_percent)
    options: list[Switch | None] = [usual, None]
    if len(failed) < _MOST_FAILED:
        options += [Switch(one, here) for one in paces]
        options += [Switch(one, later_percent) for one in paces if later_percent is not None]
    shares: dict[Switch | None, float] = {}
    for option in options:
        if option in failed or option in shares:
            continue
        share = _share(option, here, failed, paces)
        if share is not None:
            shares[option] = share
    if usual not in shares:
        return None
    best = min(shares, key=lambda option: shares[option])  # the first one of equal ones
    return Following(best, shares[best], shares[None])


def _share(
    option: Switch | None, here: float, failed: Sequence[Switch], paces: Mapping[Protocols, float]
) -> float | None:
    """How long the rest of a run is expected to take; None where that is not known."""
    if option is None:
        return 1 - here / 100
    pace, kept = paces.get(option.protocols), kept_share(option, failed)
    if pace is None or kept is None:
        return None
    return expected_share(option, pace, kept, here)


def expected_share(switch: Switch, pace: float, kept: float, begin: float = 0.0) -> float:
    """Returns the time from a percent on that is expected with a guarded switch after it.

    Args:
        switch: The switch.
        pace: The time of a worker-step after it, relative to the first protocol.
        kept: How likely it keeps the accuracy; else the first protocol does the rest again.
        begin: The percent.

    Returns:
        The time relative to that of the whole job in the first protocol.
    """
    second = pace * (kept + (1 - kept) * ALARMED_AFTER) + (1 - kept)
    return (switch.percent - begin) / 100 + (1 - switch.percent / 100) * second


def kept_share(switch: Switch, failed: Sequence[Switch] = ()) -> float | None:
    """Returns how likely a switch keeps the accuracy of a job; None if nobody has recorded it.

    Args:
        switch: The switch.
        failed: Switches that have failed. Each recorded job counts by the chance that these
            fail there.
    """
    recorded = _recorded(switch)
    if recorded is None:
        return None
    kept = _shares_at(recorded, switch.percent)
    weights = [1.0] * len(kept)
    for one in failed:
        phase = _recorded(one)
        if phase is not None and phase.jobs == len(kept):
            before = _shares_at(phase, one.percent)
            weights = [weight * (1 - share) for weight, share in zip(weights, before, strict=True)]
    if not any(weights):
        weights = [1.0] * len(kept)
    return math.fsum(map(operator.mul, weights, kept)) / math.fsum(weights)


def _recorded(switch: Switch) -> RecordedPhase | None:
    protocols = switch.protocols
    owns_momentum = protocols.momentum_after_switch == OWN_MOMENTUM
    return recorded_phase(protocols.second_protocol, owns_momentum=owns_momentum)


def _shares_at(phase: RecordedPhase, percent: float) -> list[float]:
    percents = list(phase.kept_shares)
    by_job = zip(*phase.kept_shares.values(), strict=True)
    return [interpolated(percent, percents, shares) for shares in by_job]
