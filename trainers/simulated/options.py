"""The option of the simulated cluster."""

from __future__ import annotations

from syncswitch.trainers.options import TrainerOption
from syncswitch.trainers.simulated import DEFAULT_PROFILE

PROFILE = TrainerOption(
    "--profile",
    "What the cluster is like (--trainer simulated): see `syncswitch-search profile`.",
    metavar="NAME|FILE",
    default=DEFAULT_PROFILE,
)
