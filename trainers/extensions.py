"""Classes that other packages register under a group of entry points."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from types import FrameType
from typing import TypeVar

from syncswitch.storage.errors import UserError, one_line

_Kind = TypeVar("_Kind")


@cache
def _in_group(group: str) -> EntryPoints:
    """To look through all that is installed takes 10 ms."""
    return entry_points(group=group)


def registered(
    group: str, base: type[_Kind], name: str | None = None
) -> Iterator[type[_Kind] | UserError]:
    """Yields the subclasses of `base` in a group, and an error for each that cannot be used.

    With a `name` only those of this name.
    """
    noun = group.rpartition(".")[2].removesuffix("s")
    for entry in _in_group(group):
        if name not in (None, entry.name):
            continue
        with _signals() as came:
            try:
                kind, failure = entry.load(), None
            except BaseException as error:  # foreign code, which may even end the program
                if came:
                    raise
                kind, failure = None, one_line(error)
        if failure is not None:
            yield UserError(
                f"{noun} {entry.name!r}: loading {entry.value} failed with {failure}; "
                "mend or uninstall the package that registers it",
                code="extension-unusable",
            )
        elif isinstance(kind, type) and issubclass(kind, base):
            yield kind
        else:
            yield UserError(
                f"{noun} {entry.name!r}: {entry.value} is not a subclass of"
                f" syncswitch.plugins.{base.__qualname__}",
                code="extension-unusable",
            )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects the signals that come meanwhile, and leaves them to whoever handles them.

    A module may raise KeyboardInterrupt itself.
    """
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if not callable(handler):
                continue

            def handle(
                number: int, frame: FrameType | None, handler: signal._HANDLER = handler
            ) -> None:
                came.append(number)
                if callable(handler):
                    handler(number, frame)

            handlers[number] = handle, handler
            signal.signal(number, handle)
    try:
        yield came
    finally:
        for number, (ours, handler) in handlers.items():
            if signal.getsignal(number) is ours:  # the module may have set its own
                signal.signal(number, handler)
