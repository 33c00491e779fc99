"""Marks of what may change soon, and of what goes: a warning at each use, a line in the docstring.

What changes without a mark keeps working: see `docs/formats.md`.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "DeprecatedWarning",
    "ExperimentalWarning",
    "deprecated",
    "experimental",
    "renamed_parameter",
    "warn_of_experimental",
]

_Marked = TypeVar("_Marked", bound=Callable[..., Any])


class ExperimentalWarning(FutureWarning):
    """What is used may change or go in any version, without having been deprecated."""


class DeprecatedWarning(FutureWarning):
    """What is used goes in the version that the warning names."""


def experimental(since: str) -> Callable[[_Marked], _Marked]:
    """Marks a function or a class as experimental since a version."""
    _ordered(since)

    def mark(thing: _Marked) -> _Marked:
        text = f"xperimental since {since}: it may change or go in any version"
        return _marked(thing, f"is e{text}", f"E{text}.", ExperimentalWarning)

    return mark


def deprecated(since: str, removal: str, instead: str) -> Callable[[_Marked], _Marked]:
    """Marks a function or a class that goes.

    Args:
        since: The version that deprecates it.
        removal: The version that no longer has it.
        instead: What to use, as a name or in a few words.
    """
    _ordered(since, removal)

    def mark(thing: _Marked) -> _Marked:
        text = f"eprecated since {since} and goes in {removal}; use {instead}"
        return _marked(thing, f"is d{text}", f"D{text}.", DeprecatedWarning)

    return mark


def renamed_parameter(old: str, new: str, since: str, removal: str) -> Callable[[_Marked], _Marked]:
    """Lets a function take a keyword by its former name, too, until that goes.

    Both at once raise a TypeError.
    """
    _ordered(since, removal)

    def mark(function: _Marked) -> _Marked:
        name = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            if old in options:
                if new in options:
                    raise TypeError(f"{name}() got {new} and its former name, {old}")
                _warn(
                    f"{old} of {name} is called {new} since {since}, and goes in {removal}",
                    DeprecatedWarning,
                )
                options[new] = options.pop(old)
            return function(*arguments, **options)

        return call  # type: ignore[return-value]

    return mark


def warn_of_experimental(what: str, since: str, stack_level: int = 1) -> None:
    """Warns that a value or a feature is experimental; at the line so many callers up."""
    text = f"{what} is experimental since {since}: it may change or go in any version"
    warnings.warn(text, ExperimentalWarning, stacklevel=stack_level + 1)


def _ordered(since: str, removal: str | None = None) -> None:
    """Raises ValueError unless these are versions, one after the other."""
    numbers = []
    for version in filter(None, (since, removal)):
        if not re.fullmatch(r"\d+(\.\d+){1,2}", version):
            raise ValueError(f"{version!r} is no version, such as 0.2")
        numbers.append([int(number) for number in version.split(".")])
    if numbers[1:] and numbers[1] <= numbers[0]:
        raise ValueError(f"what is deprecated since {since} cannot go in {removal}")


def _marked(thing: _Marked, said: str, note: str, kind: type[Warning]) -> _Marked:
    name: str = thing.__name__
    called: Callable[..., Any] = thing.__init__ if inspect.isclass(thing) else thing

    @functools.wraps(called)
    def call(*arguments: Any, **options: Any) -> Any:
        _warn(f"{name} {said}", kind)
        return called(*arguments, **options)

    summary, separator, rest = (thing.__doc__ or name).partition("\n\n")
    told = f"{summary.rstrip()}\n\n{_indent_of(rest)}{note}{separator}{rest}"
    if inspect.isclass(thing):
        setattr(thing, "__init__", call)  # noqa: B010 (not allowed in other words)
        thing.__doc__ = told
        return thing
    call.__doc__ = told
    return call  # type: ignore[return-value]


def _indent_of(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" "))] if text else "    "


def _warn(text: str, kind: type[Warning]) -> None:
    warnings.warn(text, kind, stacklevel=3)
