"""Calls over a wire, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from syncswitch.storage.errors import UserError, one_line
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
    """

    def __init__(self, wire: Wire, name: str, lost: type[Exception] = LostError) -> None:
        self.wire = wire
        self.name = name
        self._lost = lost
        self._calling = threading.Lock()

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
        with self._calling:
            try:
                self.wire.send((method, arguments))
                if descriptor is not None:
                    self.wire.send_descriptor(descriptor)
                failure, result = self.wire.receive(into)
            except (OSError, EOFError) as error:
                self.wire.close()
                raise self._lost(f"{self.name} is gone") from error
        if failure is not None:
            raise _ERRORS.get(failure, RemoteError)(result)
        return result

    def close(self) -> None:
        """Ends the wire, also for a thread that waits for an answer."""
        self.wire.close()


_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FencedError, LostError, StepError, UserError)
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
