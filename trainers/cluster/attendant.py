"""Looks after a run from beside it: injects what is due, and finds servers that hang."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from syncswitch.trainers.cluster.dispatch import Dispatcher
from syncswitch.trainers.cluster.launchers import Launcher
from syncswitch.trainers.cluster.program import Program

__all__ = ["Attendant"]

_TICK_SECONDS = 0.02
# A server whose step takes longer than this is asked for a sign of life, and has so long for it.
_PATIENCE_SECONDS = 2.0
_ANSWER_SECONDS = 2.0


class Attendant(threading.Thread):
    """A thread that never waits for a server, nor for a lock that is held while one is waited for.

    A hung server raises nothing, so that everybody would wait for ever. What does not answer is
    killed, and from then on a loss like any other.

    Args:
        program: On the cluster.
        launcher: Of the cluster.
        dispatcher: Of the run.
        idle_seconds: Says how long nothing has been updated.
        disturb: Called again and again; what it raises ends the run.
    """

    def __init__(
        self,
        program: Program,
        launcher: Launcher,
        dispatcher: Dispatcher,
        idle_seconds: Callable[[], float],
        disturb: Callable[[], None],
    ) -> None:
        super().__init__(name="attendant", daemon=True)
        self._program = program
        self._launcher = launcher
        self._dispatcher = dispatcher
        self._idle_seconds = idle_seconds
        self._disturb = disturb
        self._ended = threading.Event()

    def end(self) -> None:
        """Ends the thread."""
        self._ended.set()

    def run(self) -> None:
        """Body of the thread."""
        while not self._ended.wait(_TICK_SECONDS):
            try:
                self._disturb()
                is_suspicious = self._launcher.has_servers and self._is_suspicious()
                if is_suspicious and not self._launcher.replace_dead():
                    self._kill_what_hangs()
            except BaseException as error:
                self._dispatcher.fail(None, error)
                return

    def _is_suspicious(self) -> bool:
        if self._dispatcher.overdue(_PATIENCE_SECONDS):
            return True
        # Between segments nobody has a ticket, and somebody may wait for a server.
        return self._idle_seconds() > _PATIENCE_SECONDS

    def _kill_what_hangs(self) -> None:
        # Also of those without a ticket: whoever averages replicas waits for theirs.
        servers = (None, *self._dispatcher.workers)
        answered: dict[int | None, threading.Event] = {one: threading.Event() for one in servers}

        def ask(server: int | None) -> None:
            # A dead one is a loss already, which those who wait for it find out.
            self._program.answers(server)
            answered[server].set()

        for server in servers:
            threading.Thread(target=ask, args=(server,), daemon=True).start()
        self._ended.wait(_ANSWER_SECONDS)
        if self._ended.is_set():
            return
        for server, has_answered in answered.items():
            if not has_answered.is_set():
                self._launcher.signal(server, signal.SIGKILL)
