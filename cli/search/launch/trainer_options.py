"""`--trainer`, and the options that go with each kind of trainer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from syncswitch.cli.console import print_note
from syncswitch.cli.options import is_given, trainer_option
from syncswitch.searcher.backends.base import Job, TrainerChoice
from syncswitch.searcher.backends.registry import TRAINERS
from syncswitch.storage.errors import UserError
from syncswitch.trainers.options import TrainerOption

_F = TypeVar("_F", bound=Callable[..., Any])


def trainer_options(function: _F) -> _F:
    """`--trainer` and the options of all kinds, as one argument `trainer`."""
    own = {option.parameter: option for kind in TRAINERS for option in kind.options}

    @functools.wraps(function)
    def gathered(*arguments: Any, trainer: str, **values: Any) -> Any:
        chosen = {name: values.pop(name) for name in own}
        choice = _choice(trainer, own, chosen)
        if choice.take_part(values.get("reference"), print_note):
            return None
        return function(*arguments, trainer=choice, **values)

    decorated: Any = gathered
    for option in reversed(own.values()):
        decorated = trainer_option(option)(decorated)
    found: _F = _kind_option(decorated)
    return found


def noted(job: Job) -> Job:
    """The job; says what the user should know of it beforehand."""
    if job.note is not None:
        print_note(job.note)
    return job


def _choice(
    name: str, own: Mapping[str, TrainerOption], values: Mapping[str, Any]
) -> TrainerChoice:
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
        metavar="KIND",
        default=TRAINERS[0].name,
        show_default=True,
        help=f"What makes the runs: {kinds}.",
    )(function)
