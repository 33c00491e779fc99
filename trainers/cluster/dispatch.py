"""Hands out worker-steps to worker threads as the protocol allows, and counts what is done."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from syncswitch.trainers.protocols import SyncProtocol

__all__ = ["Dispatcher", "LossMean", "StalenessCount", "Ticket"]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission for one worker to do one worker-step.

    Attributes:
        worker_step: Number of the step in the job, from 0; also the number of its batch.
        aggregates: The gradient goes into the worker's slot instead of being applied.
    """

    worker_step: int
    aggregates: bool


@dataclass
class StalenessCount:
    """Sum and maximum of what was measured at each push."""

    pushes: int = 0
    total: int = 0
    maximum: int = 0

    def add(self, staleness: int) -> None:
        """Counts one push."""
        self.pushes += 1
        self.total += staleness
        self.maximum = max(self.maximum, staleness)


@dataclass
class LossMean:
    """Mean training loss since it was last taken."""

    pushes: int = 0
    total: float = 0.0

    def add(self, loss: float) -> None:
        """Counts one push."""
        self.pushes += 1
        self.total += loss

    def take(self) -> float:
        """The mean, from which the next one starts anew; NaN where nothing was pushed."""
        mean = self.total / self.pushes if self.pushes else math.nan
        self.pushes, self.total = 0, 0.0
        return mean


@dataclass
class Dispatcher:
    """The protocol behind a lock.

    No ticket is handed out beyond the end of a segment, so there is no overshoot; a segment is over
    when no ticket is out (drained).

    Attributes:
        workers: Numbers of the workers.
        apply_round: `(workers, first worker-step)`: applies the mean of their gradients.
        on_done: `(worker-steps done)`: called after each update, while the lock is held.
        done: Worker-steps whose gradient has been applied.
        inboxes: Tickets for each worker; None tells its thread to end.
    """

    workers: Sequence[int]
    apply_round: Callable[[Sequence[int], int], None]
    on_done: Callable[[int], None]
    done: int = 0
    inboxes: dict[int, queue.SimpleQueue[Ticket | None]] = field(init=False)
    staleness: StalenessCount = field(default_factory=StalenessCount)
    loss: LossMean = field(default_factory=LossMean)
    last_update_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.inboxes = {worker: queue.SimpleQueue() for worker in self.workers}
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._protocol: SyncProtocol | None = None
        self._participants: list[int] = []
        self._in_flight = 0
        self._next_step = self._end_step = self.done
        self._stopping = False
        self.error: BaseException | None = None

    def begin(self, protocol: SyncProtocol, end_step: int) -> None:
        """Starts a segment that ends with worker-step `end_step`. The cluster must be drained."""
        with self._lock:
            self._protocol = protocol
            self._participants = []
            self._next_step, self._end_step = self.done, end_step
            self.staleness = StalenessCount()
            self._hand_out(protocol.start())

    def acknowledge(self, worker: int, ticket: Ticket, loss: float, staleness: int) -> None:
        """Takes note of a finished worker-step, applies a complete round, releases workers."""
        with self._lock:
            assert self._protocol is not None
            self.loss.add(loss)
            self.staleness.add(staleness)
            self._participants.append(worker)
            released = self._protocol.on_push(worker, time.monotonic())
            if not ticket.aggregates or released:
                self._count_update(ticket.aggregates)
            # Not before: an update that raises is reported to `fail`, which counts it off as well.
            self._in_flight -= 1
            self._hand_out(released)
            self._drained.notify_all()

    def fail(self, error: BaseException) -> None:
        """Takes note that a worker-step raised; the segment ends as soon as it is drained."""
        with self._lock:
            self._in_flight -= 1
            self.error = self.error or error
            self._stopping = True
            self._drained.notify_all()

    def stop(self) -> None:
        """Hands out no further tickets, now or in a later segment."""
        self._stopping = True

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called or a worker-step raised."""
        return self._stopping

    def wait_until_drained(self, timeout_seconds: float) -> bool:
        """Waits until no ticket is out, at most so long; says whether that is so."""
        with self._drained:
            return self._drained.wait_for(lambda: self._in_flight == 0, timeout_seconds)

    def dismiss(self) -> None:
        """Tells the worker threads to end."""
        for inbox in self.inboxes.values():
            inbox.put(None)

    def _count_update(self, aggregates: bool) -> None:
        if aggregates:
            self.apply_round(sorted(self._participants), self.done)
        self.done += len(self._participants)
        self._participants = []
        self.last_update_seconds = time.perf_counter()
        self.on_done(self.done)

    def _hand_out(self, released: Sequence[int]) -> None:
        assert self._protocol is not None
        waiting = deque(released)
        while waiting:
            worker = waiting.popleft()
            if self._next_step < self._end_step and not self._stopping:
                self.inboxes[worker].put(Ticket(self._next_step, self._protocol.aggregates))
                self._next_step += 1
                self._in_flight += 1
            else:
                # Nothing is left for it to do in this segment: nobody must wait for it.
                waiting.extend(self._protocol.remove(worker))
