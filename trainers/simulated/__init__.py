"""A cluster on a virtual clock: real gradients, true staleness, the same protocols."""

from __future__ import annotations

from syncswitch.trainers.options import TrainerOption

DEFAULT_PROFILE = "uniform"
"""Name of the profile that is simulated by default."""

PROFILE = TrainerOption(
    "--profile",
    "What the cluster is like (--trainer simulated): see `syncswitch-search profile`.",
    metavar="NAME|FILE",
    default=DEFAULT_PROFILE,
)
