"""Hands out worker-steps to worker threads as the protocol allows, and counts what is done."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from syncswitch.trainers.protocols import SyncProtocol
from syncswitch.trainers.running_counts import LossMean, StalenessCount
from syncswitch.trainers.segment_steps import SegmentSteps, Ticket

__all__ = ["Dispatcher"]


@dataclass
class Dispatcher:
    """The worker-steps of a segment behind a lock.

    Attributes:
        workers: Numbers of the workers.
        join: `(workers, first worker-step)`: joins the work of a group, see `Release.groups`.
        on_done: `(worker-steps done)`: called after each update, while the lock is held.
        done: Worker-steps whose gradient has been applied.
        inboxes: Tickets for each worker; None tells its thread to end.
    """

    workers: Sequence[int]
    join: Callable[[Sequence[int], int], None]
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
        self._steps: SegmentSteps | None = None
        self._in_flight = 0
        self._stopping = False
        self.error: BaseException | None = None

    def begin(self, protocol: SyncProtocol, end_step: int) -> None:
        """Starts a segment that ends with worker-step `end_step`. The cluster must be drained."""
        with self._lock:
            self._steps = SegmentSteps(protocol, self.done, end_step)
            if self._stopping:
                self._steps.stop()
            self.staleness = StalenessCount()
            self._hand_out(self._steps.start().tickets)

    def acknowledge(self, worker: int, loss: float, staleness: int | None) -> None:
        """Takes note of a finished worker-step, joins complete groups, releases workers."""
        with self._lock:
            assert self._steps is not None
            self.loss.add(loss)
            if staleness is not None:
                self.staleness.add(staleness)
            self._settle(self._steps.push(worker, time.monotonic()))
            advance = self._steps.hand_out()
            self._settle(advance.groups)
            # Not before: an update that raises is reported to `fail`, which counts it off as well.
            self._in_flight -= 1
            self._hand_out(advance.tickets)
            self._drained.notify_all()

    def fail(self, error: BaseException) -> None:
        """Takes note that a worker-step raised; the segment ends as soon as it is drained."""
        with self._lock:
            self._in_flight -= 1
            self.error = self.error or error
            self._stop_steps()
            self._drained.notify_all()

    def stop(self) -> None:
        """Hands out no further tickets, now or in a later segment."""
        # Without the lock, which the caller may hold.
        self._stop_steps()

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

    def _settle(self, groups: Sequence[Sequence[int]]) -> None:
        """Joins the work of groups, and says what is done now."""
        assert self._steps is not None
        for group in groups:
            self.join(group, self.done)
        if self._steps.done != self.done:
            self.done = self._steps.done
            self.last_update_seconds = time.perf_counter()
            self.on_done(self.done)

    def _stop_steps(self) -> None:
        self._stopping = True
        if self._steps is not None:
            self._steps.stop()

    def _hand_out(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            self.inboxes[ticket.worker].put(ticket)
            self._in_flight += 1
