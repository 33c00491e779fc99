"""Calls over a wire, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from syncswitch.storage.errors import UserError, one_line
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, FencedError
from syncswitch.trainers.cluster.exchange.tasks import StepError
from syncswitch.trainers.cluster.exchange.wire import Wire
from syncswitch.trainers.model.layout import Vector


class LostError(Exception):
    """The other process is gone, or has been given up."""


class RemoteError(Exception):
    """What was called has raised something; the other process goes on."""


Methods = Mapping[str, Callable[..., Any]]


class Remote:
    """What is served at the other end of a wire; any thread may call it.

    Args:
        wire: To it.
        name: Of it, for people.
    """

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire = wire
        self.name = name
        self._calling = threading.Lock()

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
        with self._calling:
            try:
                self.wire.send((method, arguments))
                failure, result = self.wire.receive(into)
            except (OSError, EOFError) as error:
                self.wire.close()
                raise LostError(f"{self.name} is gone") from error
        if failure is not None:
            raise _ERRORS.get(failure, RemoteError)(result)
        return result

    def close(self) -> None:
        """Ends the wire, also for a thread that waits for an answer."""
        self.wire.close()


_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FencedError, LostError, StepError, UserError)
}


def serve(wire: Wire, methods: Methods, into: Callable[[], Vector | None] = lambda: None) -> None:
    """Answers calls until the other end is gone.

    Args:
        wire: To whoever calls.
        methods: What may be called.
        into: Vector that takes the array of a call, if it is as long.
    """
    while True:
        try:
            method, arguments = wire.receive(into())
        except (OSError, EOFError):
            wire.close()
            return
        failure, result = None, None
        try:
            result = methods[method](*arguments)
        except Exception as error:
            failure, result = type(error).__name__, _told(error)
        try:
            wire.send((failure, result))
        except OSError:
            wire.close()
            return


def _told(error: Exception) -> str:
    return str(error) if type(error).__name__ in _ERRORS else one_line(error)


class RemoteServer:
    """A parameter server over a wire, as one worker sees it; see `ServerPort`.

    Args:
        remote: To it.
        pulled: Takes what is pulled; None where memory is shared.
        buffers: Of the parameter server, where memory is shared.
    """

    def __init__(
        self, remote: Remote, pulled: Vector | None, buffers: list[Vector] | None = None
    ) -> None:
        self._remote = remote
        self._pulled = pulled
        self._buffers = buffers

    def pull(self, caller: Caller) -> tuple[int, Vector]:
        """See `ServerPort`."""
        updates, found = self._remote.call("pull", caller, into=self._pulled)
        return updates, found if self._buffers is None else self._buffers[found]

    def push_update(
        self, caller: Caller, number: int, computed: Vector, rate: float, momentum: float
    ) -> int:
        """See `ServerPort`."""
        content = computed if self._buffers is None else None
        updates: int = self._remote.call("push_update", caller, number, content, rate, momentum)
        return updates

    def push_gradient(self, caller: Caller, number: int, computed: Vector) -> int:
        """See `ServerPort`."""
        content = computed if self._buffers is None else None
        updates: int = self._remote.call("push_gradient", caller, number, content)
        return updates

    def close(self) -> None:
        """Ends the wire."""
        self._remote.close()
