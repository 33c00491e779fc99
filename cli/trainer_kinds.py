"""The kind of trainer that a command line chooses, and the options that go with each kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from syncswitch.cli.options import is_given, trainer_option
from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.storage.errors import UserError
from syncswitch.trainers.options import TrainerOption

_F = TypeVar("_F", bound=Callable[..., Any])


def options_of(kinds: Sequence[type[TrainerChoice]]) -> dict[str, TrainerOption]:
    """The options of all these kinds by the names of their parameters, in order."""
    return {option.parameter: option for kind in kinds for option in kind.options}


def trainer_chosen(kinds: Sequence[type[TrainerChoice]]) -> Callable[[_F], _F]:
    """The options of these kinds; with `trainer`, a name, they become one argument `trainer`."""
    own = options_of(kinds)

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def gathered(*arguments: Any, trainer: str, **values: Any) -> Any:
            chosen = {name: values.pop(name) for name in own}
            return function(*arguments, trainer=_choice(trainer, kinds, chosen), **values)

        decorated: Any = gathered
        for option in reversed(own.values()):
            decorated = trainer_option(option)(decorated)
        found: _F = decorated
        return found

    return decorate


def _choice(
    name: str, kinds: Sequence[type[TrainerChoice]], values: Mapping[str, Any]
) -> TrainerChoice:
    """The kind of that name with its options.

    Raises:
        UserError: An option was given that goes with other kinds, or one is missing.
    """
    kind = next(kind for kind in kinds if kind.name == name)
    own = options_of(kinds)
    mine = {option.parameter for option in kind.options}
    for parameter in own.keys() - mine:
        if is_given(parameter):
            flag = own[parameter].flag
            fitting = [k.name for k in kinds if own[parameter] in k.options]
            raise UserError(
                f"{flag} needs --trainer {' or '.join(fitting)}, and this is --trainer {name}:"
                " change that, or leave it out"
            )
    return kind(**{parameter: values[parameter] for parameter in mine})
