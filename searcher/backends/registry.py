"""All kinds of trainers: those that come with syncswitch, and those of other packages."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from syncswitch.searcher.backends.base import ClusterChoice, TrainerChoice
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.ray import RayCluster
from syncswitch.searcher.backends.replay import RecordedRuns
from syncswitch.searcher.backends.simulated import SimulatedCluster
from syncswitch.storage.errors import UserError
from syncswitch.trainers.extensions import registered

_LOG = logging.getLogger(__name__)

ENTRY_POINTS = "syncswitch.trainers"
"""The group of entry points by which other packages add kinds of trainers."""


def _added() -> Iterator[type[TrainerChoice]]:
    taken = {kind.name for kind in _BUILT_IN}
    for found in registered(ENTRY_POINTS, TrainerChoice):  # type: ignore[type-abstract]
        if isinstance(found, UserError):
            _LOG.warning("%s", found)
        elif getattr(found, "name", None) in {None, *taken}:
            _LOG.warning("trainer %s is not used: it has no name of its own", found.__qualname__)
        else:
            taken.add(found.name)
            yield found


_BUILT_IN: tuple[type[TrainerChoice], ...] = (
    LocalTrainer,
    SimulatedCluster,
    RecordedRuns,
    RayCluster,
    UsersCommand,
)

TRAINERS = *_BUILT_IN, *_added()
"""All kinds, the usual one first."""

TRAINING = tuple(kind for kind in TRAINERS if issubclass(kind, ClusterChoice))
"""Those that train workloads."""


def trainer_named(name: str, values: Mapping[str, Any]) -> TrainerChoice:
    """Returns the kind of that name, given its options; dashes in their names are understood.

    Raises UserError if there is no such kind, or it has no such option.
    """
    kinds = {kind.name: kind for kind in TRAINERS}
    if name not in kinds:
        raise UserError(
            f"trainer is {name!r}: give one of {', '.join(kinds)}", code="parameter-invalid"
        )
    kind = kinds[name]
    options, chosen = kind.options(), {}
    for key, value in values.items():
        field = key.lstrip("-").replace("-", "_")
        if field not in options:
            names = ", ".join(sorted(options)) or "none"
            raise UserError(
                f"trainer {name} has no option {key!r}; it has: {names}", code="parameter-invalid"
            )
        chosen[field] = options[field].checked(field, value)
    return kind(**chosen)
