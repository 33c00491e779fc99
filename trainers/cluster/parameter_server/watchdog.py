"""Watches a run: injects what is due and kills servers that hang."""

from __future__ import annotations

import threading
from collections.abc import Callable

from syncswitch.trainers.cluster.parameter_server.coordinator import Coordinator
from syncswitch.trainers.cluster.parameter_server.program import Program
from syncswitch.trainers.cluster.servers.launchers import Launcher

_TICK_SECONDS = 0.02
# After so long without progress every server is asked for a sign of life.
_PATIENCE_SECONDS = 2.0
# What is stopped answers never; what is only slow, or far away, has longer for it.
_ANSWER_SECONDS = 2.0
_LONGEST_ANSWER_SECONDS = 15.0


class Watchdog(threading.Thread):
    """A thread that never waits for a server, nor for a lock that is held while one is waited for.

    A hung server raises nothing, so that everybody would wait for ever. What does not answer is
    killed, and from then on a loss like any other.
    """

    def __init__(
        self,
        program: Program,
        launcher: Launcher,
        coordinator: Coordinator,
        idle_seconds: Callable[[], float],
        disturb: Callable[[], None],
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._program = program
        self._launcher = launcher
        self._coordinator = coordinator
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
                if self._launcher.has_servers and self._is_suspicious():
                    self._look_after_servers()
            except BaseException as error:
                self._coordinator.fail(None, error)
                return

    def _is_suspicious(self) -> bool:
        if self._coordinator.overdue(_PATIENCE_SECONDS):
            return True
        # Between segments nobody has a ticket, and somebody may wait for a server.
        return self._idle_seconds() > _PATIENCE_SECONDS

    def _look_after_servers(self) -> None:
        """Replaces dead servers, asks the others, and kills those that do not answer."""
        # Also those without a ticket: whoever averages replicas waits for theirs. Not the dead: a
        # question to them may wait for ever, and others for it.
        self._launcher.replace_dead()
        living = self._launcher.living()
        waiting = {server: self._asked(server) for server in living}
        for limit_seconds in (_ANSWER_SECONDS, _LONGEST_ANSWER_SECONDS):
            self._ended.wait(limit_seconds)
            waiting = {one: answer for one, answer in waiting.items() if not answer.is_set()}
            if self._ended.is_set() or not waiting:
                return
            is_last = limit_seconds == _LONGEST_ANSWER_SECONDS
            guilty = [one for one in waiting if is_last or self._launcher.is_stopped(one)]
            # A worker that waits for the parameter server may answer no sooner than that does.
            for server in [None] if None in guilty else guilty:
                self._launcher.kill(server, living[server])
            if guilty:
                return

    def _asked(self, server: int | None) -> threading.Event:
        answer = threading.Event()

        def ask() -> None:
            # A dead one is a loss already, which those who wait for it find out.
            self._program.answers(server)
            answer.set()

        threading.Thread(target=ask, daemon=True).start()
        return answer
