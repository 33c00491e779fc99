"""Handles the loss of workers and of the parameter server."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from syncswitch.storage.errors import RetryableError, one_line
from syncswitch.trainers.cluster.parameter_server.coordinator import Coordinator
from syncswitch.trainers.cluster.parameter_server.fault_injector import Note
from syncswitch.trainers.cluster.parameter_server.program import Program
from syncswitch.trainers.cluster.servers.launchers import Casualty, Launcher, WorkerLostError
from syncswitch.trainers.model.tensorflow_api import tf

_LOG = logging.getLogger(__name__)

# A server that is lost so often in one run will be lost again.
_MOST_LOSSES = 10
_MOST_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2
_LONGEST_REASON = 120


class ServerLostError(Exception):
    """The parameter server is gone, and with it all that was trained since the last checkpoint."""


class Recovery:
    """Takes lost workers out of the run and brings them back; called in their own threads."""

    def __init__(
        self, program: Program, launcher: Launcher, coordinator: Coordinator, note: Note
    ) -> None:
        self._program = program
        self._launcher = launcher
        self._coordinator = coordinator
        self._note = note
        self._losses: Counter[int] = Counter()
        self._lost_at: dict[int, float] = {}
        self._given_up: set[int] = set()

    def lose(self, worker: int, error: BaseException, *, counts_pushes: bool) -> bool:
        """Decides what an error in a worker's step means, and tells the coordinator.

        Args:
            worker: Whose step; this is its thread.
            error: The error.
            counts_pushes: The step may have been applied, though nobody acknowledged it.

        Returns:
            Whether the worker is lost, and nothing else.
        """
        casualty = self._launcher.casualty(worker, error)
        _LOG.debug("taken for a loss: %s", casualty, exc_info=error)
        try:
            if casualty is Casualty.WORKER:
                # Asked in any case: a lost parameter server shows as the loss of all workers.
                is_applied = self._program.was_applied(worker) and counts_pushes
                self._coordinator.lose(worker, is_applied=is_applied)
                is_told = isinstance(error, WorkerLostError)
                self.note_lost(worker, str(error) if is_told else _no_answer(error))
                return True
            if casualty is Casualty.PARAMETER_SERVER:
                error = ServerLostError(_no_answer(error))
        except tf.errors.OpError as further:
            error = ServerLostError(_no_answer(further))
        self._coordinator.fail(worker, error)
        return False

    def note_lost(self, worker: int, reason: str) -> None:
        """Records the loss of a worker that the coordinator knows of already."""
        self._losses[worker] += 1
        self._lost_at[worker] = time.perf_counter()
        self._note("lost", f"worker {worker}: {reason}", worker)

    def bring_back(self, worker: int) -> bool:
        """Gives a lost worker a new server and lets it take part again; in its own thread.

        Returns:
            False where it cannot come back, or needs not.
        """
        for _ in range(_MOST_ATTEMPTS):
            if self._coordinator.stopping:
                return False
            if self._losses[worker] > _MOST_LOSSES:
                self._give_up(worker, f"it was lost {_MOST_LOSSES + 1} times")
                return False
            try:
                self._launcher.revive(worker)
                self._program.place(worker)
            except (RetryableError, tf.errors.OpError) as error:
                problem = one_line(error)
                time.sleep(_PAUSE_SECONDS)
                continue
            seconds = time.perf_counter() - self._lost_at[worker]
            self._note("returned", f"worker {worker} is back", worker, seconds)
            self._coordinator.come_back(worker)
            return True
        self._give_up(worker, problem)
        return False

    def named(self, error: BaseException) -> BaseException:
        """The error, or `ServerLostError` where that is what it means."""
        return _named(self._launcher, error)

    def _give_up(self, worker: int, problem: str) -> None:
        reason = f"worker {worker} stays away: {problem}"
        self._note("lost", reason, worker)
        self._given_up.add(worker)
        if self._given_up == set(self._coordinator.workers):
            self._coordinator.fail(None, RetryableError(f"no worker is left: {reason}"))
        self._coordinator.recall()


@contextmanager
def lost_servers_named(launcher: Launcher) -> Iterator[None]:
    """Raises `ServerLostError` where an error means that the parameter server is lost.

    Raises:
        ServerLostError: The parameter server is gone.
    """
    try:
        yield
    except tf.errors.OpError as error:
        raise _named(launcher, error) from error


def _named(launcher: Launcher, error: BaseException) -> BaseException:
    if launcher.casualty(None, error) is Casualty.PARAMETER_SERVER:
        _LOG.debug("taken for a loss of the parameter server", exc_info=error)
        return ServerLostError(_no_answer(error))
    return error


def _no_answer(error: BaseException) -> str:
    text = one_line(error)
    short = text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
    return f"no answer ({short})"
