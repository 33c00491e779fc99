"""All kinds of trainers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.ray import RayCluster
from syncswitch.searcher.backends.replay import RecordedRuns
from syncswitch.searcher.backends.simulated import SimulatedCluster
from syncswitch.storage.errors import UserError

TRAINERS: tuple[type[TrainerChoice], ...] = (
    LocalTrainer,
    SimulatedCluster,
    RecordedRuns,
    RayCluster,
    UsersCommand,
)
"""All kinds, the usual one first."""


def trainer_named(name: str, values: Mapping[str, Any]) -> TrainerChoice:
    """Returns the kind of that name, given its options by flag, with or without dashes.

    Raises UserError if there is no such kind, or it has no such option.
    """
    kinds = {kind.name: kind for kind in TRAINERS}
    if name not in kinds:
        raise UserError(f"trainer is {name!r}: give one of {', '.join(kinds)}")
    kind = kinds[name]
    by_flag = {option.flag.lstrip("-"): (field, option) for field, option in kind.options().items()}
    chosen = {}
    for key, value in values.items():
        flag = key.lstrip("-").replace("_", "-")
        if flag not in by_flag:
            known = ", ".join(sorted(by_flag)) or "none"
            raise UserError(f"trainer {name} has no option {key!r}; it has: {known}")
        field, option = by_flag[flag]
        chosen[field] = option.checked(value)
    return kind(**chosen)
