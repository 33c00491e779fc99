"""Calls over a wire, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from syncswitch.storage.errors import UserError, WorkloadError, one_line
from syncswitch.trainers.cluster.exchange.parameter_server import FencedError
from syncswitch.trainers.cluster.exchange.plans import StepError
from syncswitch.trainers.cluster.exchange.wire import Wire
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
        lost: Raised where it is gone.

    Attributes:
        calling: Held from the beginning of a call to its end.
    """

    def __init__(self, wire: Wire, name: str, lost: type[Exception] = LostError) -> None:
        self.wire = wire
        self.name = name
        self._lost = lost
        self.calling = threading.Lock()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self.call, method)

    def call(
        self,
        method: str,
        *arguments: Any,
        into: Vector | None = None,
        descriptor: int | None = None,
    ) -> Any:
        """Calls a method and waits for what it returns.

        Args:
            method: Its name.
            arguments: Of it.
            into: See `Wire.receive`.
            descriptor: See `Wire.send_descriptor`; given after the call.

        Raises:
            LostError: The other end is gone; whether it has done it is not known.
            FencedError: The caller was replaced by another process.
            StepError: The step cannot be computed.
            RemoteError: It has raised something else.
        """
        with self.calling:
            self.ask(method, arguments, descriptor)
            return self.answer(into)

    def ask(self, method: str, arguments: Sequence[Any], descriptor: int | None = None) -> None:
        """Begins a call, while `calling` is held; `answer` ends it."""
        try:
            self.wire.send((method, tuple(arguments)))
            if descriptor is not None:
                self.wire.send_descriptor(descriptor)
        except (OSError, EOFError) as error:
            raise self._gone() from error

    def answer(self, into: Vector | None = None) -> Any:
        """Waits for the end of a call; see `call`."""
        try:
            failure, result = self.wire.receive(into)
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
                found.append(one.remote.answer(one.into))
            except Exception as error:
                errors.append(error)
    if errors:
        answered = (FencedError, StepError, UserError, RemoteError)
        raise min(errors, key=lambda error: isinstance(error, answered))
    return found


_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FencedError, LostError, StepError, UserError, WorkloadError)
}


def serve(wire: Wire, methods: Methods, into: Vector | None = None) -> None:
    """Answers calls until the other end is gone.

    Args:
        wire: To whoever calls.
        methods: What may be called.
        into: Takes the array of a call, if it is as long.
    """
    while True:
        try:
            method, arguments = wire.receive(into)
        except (OSError, EOFError):
            wire.close()
            return
        failure, result = None, None
        try:
            result = methods[method](*arguments)
        except Exception as error:
            failure = type(error).__name__
            result = str(error) if failure in _ERRORS else one_line(error)
        try:
            wire.send((failure, result))
        except OSError:
            wire.close()
            return
