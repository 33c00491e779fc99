"""`--trainer`, and the options that go with each kind of trainer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from syncswitch.searcher.backends.base import OwnOption, TrainerChoice
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.ray import RayCluster
from syncswitch.searcher.backends.replay import RecordedRuns
from syncswitch.searcher.backends.simulated import SimulatedCluster
from syncswitch.storage.errors import UserError

_F = TypeVar("_F", bound=Callable[..., Any])

TRAINERS: tuple[type[TrainerChoice], ...] = (
    LocalTrainer,
    SimulatedCluster,
    RecordedRuns,
    RayCluster,
    UsersCommand,
)
"""All kinds, the usual one first."""


def trainer_options(function: _F) -> _F:
    """`--trainer` and the options of all kinds, as one argument `trainer`."""
    own = {option.parameter: option for kind in TRAINERS for option in kind.options}

    @functools.wraps(function)
    def gathered(*arguments: Any, trainer: str, **values: Any) -> Any:
        chosen = {name: values.pop(name) for name in own}
        choice = _choice(trainer, own, chosen)
        if choice.take_part(values.get("reference")):
            return None
        return function(*arguments, trainer=choice, **values)

    decorated: Any = gathered
    for option in reversed(own.values()):
        decorated = option.add(decorated)
    found: _F = _kind_option(decorated)
    return found


def trainer_named(name: str, values: Mapping[str, Any]) -> TrainerChoice:
    """The kind of that name; `values` are its options by flag, with or without its dashes.

    Raises UserError where there is no such kind, or it has no such option.
    """
    kinds = {kind.name: kind for kind in TRAINERS}
    if name not in kinds:
        raise UserError(f"trainer is {name!r}: give one of {', '.join(kinds)}")
    kind = kinds[name]
    chosen = {option.parameter: option.default for option in kind.options}
    by_flag = {option.flag.lstrip("-"): option for option in kind.options}
    for key, value in values.items():
        option = by_flag.get(key.lstrip("-").replace("_", "-"))
        if option is None:
            known = ", ".join(sorted(by_flag)) or "none"
            raise UserError(f"trainer {name} has no option {key!r}; it has: {known}")
        chosen[option.parameter] = option.checked(value)
    return kind(**chosen)


def is_given(parameter: str) -> bool:
    """Whether the user said it, instead of leaving it to its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source == ParameterSource.COMMANDLINE


def _choice(name: str, own: Mapping[str, OwnOption], values: Mapping[str, Any]) -> TrainerChoice:
    """The kind of that name with its options.

    Raises:
        UserError: An option was given that goes with other kinds, or one is missing.
    """
    kind = next(kind for kind in TRAINERS if kind.name == name)
    mine = {option.parameter for option in kind.options}
    for parameter in own.keys() - mine:
        if is_given(parameter):
            flag = own[parameter].flag
            fitting = [k.name for k in TRAINERS if own[parameter] in k.options]
            raise UserError(
                f"{flag} needs --trainer {' or '.join(fitting)}, and this is --trainer {name}:"
                " change that, or leave it out"
            )
    return kind(**{parameter: values[parameter] for parameter in mine})


def _kind_option(function: _F) -> _F:
    kinds = "; ".join(f"{kind.name} = {kind.summary}" for kind in TRAINERS)
    return click.option(
        "--trainer",
        type=click.Choice([kind.name for kind in TRAINERS]),
        default=TRAINERS[0].name,
        show_default=True,
        help=f"What makes the runs: {kinds}.",
    )(function)
