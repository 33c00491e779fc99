"""What becomes of a run when a part of its cluster is lost."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from syncswitch.storage.errors import RetryableError, one_line
from syncswitch.trainers.cluster.dispatch import Dispatcher
from syncswitch.trainers.cluster.disturbances import Note
from syncswitch.trainers.cluster.launchers import Casualty, Launcher, WorkerLostError
from syncswitch.trainers.cluster.program import Program
from syncswitch.trainers.model.tensorflow_api import tf

__all__ = ["Recovery", "ServerLostError"]

_LOG = logging.getLogger(__name__)

# A server that is lost so often in one run will be lost again.
_MOST_LOSSES = 10
_MOST_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2


class ServerLostError(Exception):
    """The parameter server is gone, and with it all that was trained since the last checkpoint."""


class Recovery:
    """Counts workers out and in again; used by their own threads.

    Args:
        program: On the cluster.
        launcher: Of the cluster.
        dispatcher: Hands the steps of lost workers to others.
        note: Puts an event into the book of the run.
    """

    def __init__(
        self, program: Program, launcher: Launcher, dispatcher: Dispatcher, note: Note
    ) -> None:
        self._program = program
        self._launcher = launcher
        self._dispatcher = dispatcher
        self._note = note
        self._losses: Counter[int] = Counter()
        self._lost_at: dict[int, float] = {}

    def lose(self, worker: int, error: BaseException, *, counts_pushes: bool) -> bool:
        """Finds out what an error in a worker's step means, and tells the dispatcher.

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
                self._dispatcher.lose(worker, is_applied=is_applied)
                is_told = isinstance(error, WorkerLostError)
                name = type(error).__name__
                self.note_lost(worker, str(error) if is_told else f"no answer ({name})")
                return True
            if casualty is Casualty.PARAMETER_SERVER:
                error = ServerLostError(f"no answer ({type(error).__name__})")
        except tf.errors.OpError as further:
            error = ServerLostError(f"no answer ({type(further).__name__})")
        self._dispatcher.fail(worker, error)
        return False

    def note_lost(self, worker: int, reason: str) -> None:
        """Takes note that a worker, which the dispatcher knows as lost, is lost."""
        self._losses[worker] += 1
        self._lost_at[worker] = time.perf_counter()
        self._note("lost", f"worker {worker}: {reason}", worker)

    def bring_back(self, worker: int, others: Sequence[int]) -> bool:
        """Gives a lost worker a new server and lets it take part again.

        Args:
            worker: Who; this is its thread.
            others: Workers that train now.

        Returns:
            False where it cannot come back, or needs not.
        """
        for _ in range(_MOST_ATTEMPTS):
            if self._dispatcher.stopping:
                return False
            if self._losses[worker] > _MOST_LOSSES:
                self._give_up(worker, f"it was lost {_MOST_LOSSES + 1} times")
                return False
            try:
                self._launcher.revive(worker)
                self._program.place(worker, others)
            except (RetryableError, tf.errors.OpError) as error:
                problem = one_line(error)
                time.sleep(_PAUSE_SECONDS)
                continue
            seconds = time.perf_counter() - self._lost_at[worker]
            self._note("returned", f"worker {worker} takes part again", worker, seconds)
            self._dispatcher.come_back(worker)
            return True
        self._give_up(worker, problem)
        return False

    def named(self, error: BaseException) -> BaseException:
        """The error, or `ServerLostError` where that is what it means."""
        if self._launcher.casualty(None, error) is Casualty.PARAMETER_SERVER:
            _LOG.debug("taken for a loss of the parameter server", exc_info=error)
            return ServerLostError(f"no answer ({type(error).__name__})")
        return error

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Raises `ServerLostError` where an error means that.

        Raises:
            ServerLostError: The parameter server is gone.
        """
        try:
            yield
        except tf.errors.OpError as error:
            raise self.named(error) from error

    def _give_up(self, worker: int, problem: str) -> None:
        reason = f"worker {worker} stays away: {problem}"
        self._note("lost", reason, worker)
        if not self._dispatcher.members:
            self._dispatcher.fail(None, RetryableError(f"no worker is left: {reason}"))
