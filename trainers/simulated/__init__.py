"""Training on a simulated cluster: real gradients and protocols on a virtual clock."""

from __future__ import annotations

from syncswitch.trainers.options import TrainerOption

DEFAULT_PROFILE = "uniform"
"""Name of the default profile."""

PROFILE = TrainerOption(
    "--profile",
    "Profile of the simulated cluster (--trainer simulated): see `syncswitch-search profile`.",
    metavar="NAME|FILE",
    default=DEFAULT_PROFILE,
)
