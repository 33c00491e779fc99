"""Calls over a wire, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from syncswitch.storage.errors import UserError, WorkloadError, one_line
from syncswitch.trainers.cluster.exchange.parameter_server import FencedError
from syncswitch.trainers.cluster.exchange.plans import Calls, StepError
from syncswitch.trainers.cluster.exchange.wire import Message, Wire
from syncswitch.trainers.model.layout import Vector


class LostError(Exception):
    """The other process is gone, or has been given up."""


class RemoteError(Exception):
    """What was called has raised something; the other process goes on."""


Methods = Mapping[str, Callable[..., Any]]


class Remote:
    """What is served at the other end of a wire: its methods are here as well, for any thread.

    Args:
        wire: To it.
        name: Of it, for people.
        calls: What it is asked.
        lost: Raised where it is gone.

    Attributes:
        calling: Held from the beginning of a call to its end.
    """

    def __init__(
        self, wire: Wire, name: str, calls: Calls, lost: type[Exception] = LostError
    ) -> None:
        self.wire = wire
        self.name = name
        self._calls = calls
        self._lost = lost
        self.calling = threading.Lock()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self.call, method)

    def call(self, method: str, *arguments: Any, into: Vector | None = None) -> Any:
        """Calls a method and waits for what it returns.

        Args:
            method: Its name.
            arguments: Of it.
            into: See `Wire.receive`.

        Raises:
            LostError: The other end is gone; whether it has done it is not known.
            FencedError: The caller was replaced by another process.
            StepError: The step cannot be computed.
            RemoteError: It has raised something else.
        """
        with self.calling:
            self.ask(method, arguments)
            return self.answer(method, into)

    def ask(self, method: str, arguments: Sequence[Any]) -> None:
        """Begins a call, while `calling` is held; `answer` ends it."""
        try:
            self.wire.send((method, tuple(arguments)))
        except OSError as error:
            raise self._gone() from error

    def answer(self, method: str, into: Vector | None = None) -> Any:
        """Waits for the end of a call; see `call`."""
        try:
            message = self.wire.receive(into)
            failure, _ = message.read(_ANSWER)
            kind = str if failure is not None else self._calls[method][1]
            _, result = message.read(tuple[str | None, kind])  # type: ignore[valid-type]
        except (OSError, EOFError) as error:
            raise self._gone() from error
        if failure is not None:
            raise _ERRORS.get(failure, RemoteError)(result)
        return result

    def close(self) -> None:
        """Ends the wire, also for a thread that waits for an answer."""
        self.wire.close()

    def _gone(self) -> Exception:
        self.wire.close()
        return self._lost(f"{self.name} is gone")


@dataclass(frozen=True)
class Call:
    """One of several calls at the same time.

    Attributes:
        remote: Who is called.
        method: Its name.
        arguments: Of it.
        into: See `Wire.receive`.
    """

    remote: Remote
    method: str
    arguments: Sequence[Any]
    into: Vector | None = None


def call_all(calls: Sequence[Call]) -> list[Any]:
    """Calls them all before it waits for the first answer; what each has returned.

    It has waited for all of them when it raises, so that the others can be called again.

    Raises:
        Exception: See `Remote.call`; that somebody is gone rather than anything else.
    """
    if len(calls) == 1:
        (one,) = calls
        return [one.remote.call(one.method, *one.arguments, into=one.into)]
    found: list[Any] = []
    asked: list[Call] = []
    errors: list[Exception] = []
    with ExitStack() as held:
        for one in calls:
            held.enter_context(one.remote.calling)
        for one in calls:
            try:
                one.remote.ask(one.method, one.arguments)
                asked.append(one)
            except Exception as error:
                errors.append(error)
        for one in asked:
            try:
                found.append(one.remote.answer(one.method, one.into))
            except Exception as error:
                errors.append(error)
    if errors:
        answered = (FencedError, StepError, UserError, RemoteError)
        raise min(errors, key=lambda error: isinstance(error, answered))
    return found


_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FencedError, LostError, StepError, UserError, WorkloadError)
}


_REFUSED = RemoteError.__name__
_ANSWER = tuple[str | None, msgspec.Raw]
_ASKED = tuple[str, msgspec.Raw]


def serve(wire: Wire, calls: Calls, methods: Methods, into: Vector | None = None) -> None:
    """Answers calls until the other end is gone.

    Args:
        wire: To whoever calls.
        calls: What it may ask.
        methods: What does it, as far as that can be done yet.
        into: Takes the array of a call, if it is as long.
    """
    with suppress(OSError, EOFError):
        while True:
            wire.send(_answer(wire.receive(into), calls, methods))
    wire.close()


def _answer(message: Message, calls: Calls, methods: Methods) -> tuple[str | None, Any]:
    """What came of a call: the name of an error and its text, or None and the result."""
    method, _ = message.read(_ASKED)
    if method not in calls:
        return _REFUSED, f"nobody may ask for {method!r} here"
    if method not in methods:
        return _REFUSED, f"it is too early for {method!r}"
    try:
        _, arguments = message.read(tuple[str, calls[method][0]])  # type: ignore[misc]
        return None, methods[method](*arguments)
    except Exception as error:
        failure = type(error).__name__
        return failure, str(error) if failure in _ERRORS else one_line(error)
