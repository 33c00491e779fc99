"""Simulated clusters with known times, and trials on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.timeline import StepTimes
from tests.records import changed
from tests.trainers import jobs

EVEN = ClusterProfile(compute_seconds=1.0)
"""Equal workers, nothing else takes time: every time is a whole number."""

VARIED = ClusterProfile(compute_seconds=0.05, compute_variation=0.3, latency_seconds=0.001)

PROTOCOLS_OF_FOUR = (
    "bsp",
    "asp",
    "ssp:1",
    "dssp:1-3",
    "ds-sync:2",
    "local-sgd:3",
    "local-sgd:2:semi-sync",
    "selsync:1",
    "gba:1",
)
"""Each protocol, as 4 workers can use it."""


def spec_of(*arguments: Any, profile: ClusterProfile = VARIED, **fields: Any) -> TrialSpec:
    """A trial on a simulated cluster."""
    spec = jobs.spec_of(*arguments, **fields)
    return replace(spec, identity=changed(spec.identity, simulated_cluster=profile.digest))


def times_of(profile: ClusterProfile, steps: int, values: int = 0, seed: int = 1) -> StepTimes:
    return StepTimes(profile, values, steps, seed)
