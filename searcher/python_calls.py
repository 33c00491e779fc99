"""Calls of the commands' Python functions: arguments are checked, errors speak Python."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from pydantic import ConfigDict, ValidationError, validate_call
from typing_extensions import override

from syncswitch.searcher.experimental import used_features
from syncswitch.storage.errors import (
    CommandHint,
    OptionHint,
    Said,
    SyncSwitchError,
    UserError,
    Words,
)
from syncswitch.storage.marks import warn_of_experimental

_LOG = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def checked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Checks the arguments of each call against the annotations; wrong ones raise a UserError.

    Experimental ones are warned of, if the call makes runs.
    """
    signature = inspect.signature(function)
    names = list(signature.parameters)
    checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)

    @functools.wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
        if "tell" in names and "tell" not in options:
            options["tell"] = tell
        if "trainer" in names:
            with suppress(TypeError):  # the check says what is wrong
                for used, value in used_features(signature.bind(*arguments, **options).arguments):
                    what = f"{used.parameter}={value!r}"
                    warn_of_experimental(what, used.since, stack_level=2)
        try:
            return checked(*arguments, **options)
        except ValidationError as error:
            first = error.errors()[0]
            place = first["loc"][0]
            name = names[place] if isinstance(place, int) else place
            raise UserError(
                f"{name} is {first['input']!r}: {first['msg']} (see help({function.__name__}))",
                code="parameter-invalid",
            ) from error
        except SyncSwitchError as error:
            error.words = WORDS
            raise

    return call


class _PythonWords(Words):
    """Names options of trainers as `trainer_options` holds them."""

    @override
    def parameter(self, name: str, value: Any = None) -> str:
        if not _is_of_trainer(name):
            return super().parameter(name, value)
        return f'trainer_options["{name}"]' + ("" if value is None else f" = {value!r}")

    @override
    def command(self, run: CommandHint) -> str:
        sets = [one for one in run.arguments if isinstance(one, OptionHint)]
        own = {one.parameter: one.value for one in sets if _is_of_trainer(one.parameter)}
        given = [one for one in run.arguments if isinstance(one, str) or one.parameter not in own]
        if own:
            given.append(OptionHint("trainer_options", own))
        return super().command(replace(run, arguments=tuple(given)))


def _is_of_trainer(name: str) -> bool:
    from syncswitch.searcher.backends.registry import TRAINERS  # which a look-up does not need

    return any(name in kind.options() for kind in TRAINERS)


WORDS = _PythonWords()
"""What messages call parameters and commands in Python."""


def tell(said: Said) -> None:
    """Tells people by the log, in the words of Python."""
    _LOG.warning("%s", WORDS.say(said))
