"""The coordinator: hands out worker-steps as the protocol allows, and counts what is done."""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from syncswitch.trainers.protocols import Exchange, SyncProtocol
from syncswitch.trainers.protocols.steps import (
    Advance,
    Group,
    Groups,
    SegmentSteps,
    StepDone,
    Ticket,
)
from syncswitch.trainers.run.record import LossMean, StalenessCount
from syncswitch.trainers.stragglers.online import NO_DECISION, Decision


class Notice(enum.Enum):
    """A notice in a worker's inbox: END to stop, LOST if other workers could not reach it."""

    END = "end"
    LOST = "lost"


_SLICE_SECONDS = 0.1
_Read = TypeVar("_Read")


@dataclass
class Coordinator:
    """Shares the worker-steps of a segment among the threads of the workers.

    `join(group, first_worker_step)` joins the work of a group, and `prepare(workers)` is called
    before these begin their steps; both return the workers that could not be reached.
    `on_step(worker, compute_seconds, busy_seconds)` is called after each step, for a single batch,
    `on_done(done)` after each update, and `decide(worker, busy_seconds)` asks the online policy
    after each step. The lock is held during all of these but the averaging of replicas.

    `done` counts the worker-steps whose gradients have been applied, `resting` are the workers that
    the online policy excludes, `loss` is the mean since it was last taken, and `error` is what
    ended the segment.
    """

    workers: Sequence[int]
    join: Callable[[Group, int], Iterable[int]]
    on_done: Callable[[int], None]
    on_step: Callable[[int, float, float], None] = lambda *_: None
    decide: Callable[[int, float], Decision] = lambda worker, busy_seconds: NO_DECISION
    prepare: Callable[[Sequence[int]], Iterable[int]] = lambda workers: ()
    done: int = 0
    inboxes: dict[int, queue.SimpleQueue[Ticket | Notice]] = field(init=False)
    lost: set[int] = field(default_factory=set)
    stopping: bool = False
    resting: set[int] = field(default_factory=set)
    staleness: StalenessCount = field(default_factory=StalenessCount)
    loss: LossMean = field(default_factory=LossMean)

    def __post_init__(self) -> None:
        self.inboxes = {worker: queue.SimpleQueue() for worker in self.workers}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._steps: SegmentSteps | None = None
        self._busy: set[int] = set()
        # Groups of replicas are averaged in threads of their own, beside the steps of others.
        self._apart = ThreadPoolExecutor(max(1, len(self.workers)), thread_name_prefix="average")
        self._averaging: set[int] = set()
        self._kept_back: list[Ticket] = []
        self.error: BaseException | None = None

    @property
    def members(self) -> list[int]:
        """The workers that take part, in ascending order."""
        away = self.lost | self.resting
        return [worker for worker in self.workers if worker not in away]

    def begin(
        self,
        machine: Callable[[Iterable[int]], SyncProtocol],
        end_step: int,
        undone: Sequence[int] = (),
        batches: int = 1,
    ) -> None:
        """Starts a segment; the previous one must be drained.

        If all workers are lost, waits until one comes back or `stop` is called. For `undone` and
        `batches` see `SegmentSteps`.
        """
        with self._lock:
            self._steps, self.staleness = None, StalenessCount()
            while not self.members and not self.stopping:
                # In slices, as `stop` does not notify.
                self._changed.wait(_SLICE_SECONDS)
            if not self.members:
                return
            protocol = machine(self.members)
            self._steps = SegmentSteps(protocol, self.done, end_step, undone, batches)
            if self.stopping:
                self._steps.stop()
            self._go_on(self._steps.start())

    def acknowledge(
        self, worker: int, step: StepDone, busy_seconds: float = 0.0, batches: int = 1
    ) -> None:
        """Records a finished task, joins complete groups, and releases workers.

        `busy_seconds` are those of one of its batches, and do not include waiting for others.
        """
        with self._lock:
            assert self._steps is not None
            self.loss.add(step.loss)
            self.on_step(worker, step.compute_seconds / batches, busy_seconds)
            if step.staleness is not None:
                self.staleness.add(step.staleness)
            self._settle(self._steps.push(worker, time.monotonic(), step.replica))
            decision = self.decide(worker, busy_seconds)
            for straggler in decision.remove:
                self.resting.add(straggler)
                self._settle(self._steps.leave(straggler))
            if decision.protocol is not None:
                # Once it is drained, the run continues with the other protocol.
                self._steps.cut()
            self._busy.discard(worker)
            try:
                self._go_on()
            except BaseException:
                # The segment must not count as drained until the error is reported to `fail`.
                self._busy.add(worker)
                raise
            self._changed.notify_all()

    def tick(self) -> None:
        """Tells the protocol the time if it wants to know; to be called now and then."""
        try:
            with self._lock:
                now_seconds = time.monotonic()
                if self._steps is None or self.stopping or now_seconds < self._steps.next_seconds:
                    return
                self._settle(self._steps.on_time(now_seconds))
                self._go_on()
                self._changed.notify_all()
        except BaseException as error:
            self.fail(None, error)

    def lose(self, worker: int, *, is_applied: bool) -> None:
        """Records the loss of a worker; another one does its step unless that was applied."""
        with self._lock:
            self.lost.add(worker)
            if self._steps is not None:
                if is_applied and worker in self._steps.out:
                    self._settle(self._steps.push(worker, time.monotonic()))
                self._settle(self._steps.lose(worker))
                self._go_on()
            self._busy.discard(worker)
            self._changed.notify_all()

    def note_lost(self, worker: int) -> None:
        """Records, between segments, that a worker could not be reached."""
        with self._lock:
            self.lost.add(worker)
            self.inboxes[worker].put(Notice.LOST)

    def come_back(self, worker: int) -> None:
        with self._lock:
            self.lost.discard(worker)
            if self._steps is not None and not self._is_drained() and worker in self.members:
                self._settle(self._steps.join(worker))
                self._go_on()
            self._changed.notify_all()

    def recall(self) -> None:
        """Lets resting workers take part again if no others are left."""
        with self._lock:
            if self.members:
                return
            back, self.resting = sorted(self.resting - self.lost), set()
            if self._steps is not None:
                for worker in back:
                    self._settle(self._steps.join(worker))
                self._go_on()
            self._changed.notify_all()

    def fail(self, worker: int | None, error: BaseException) -> None:
        """Records an error, of a worker's step or not; the segment ends once it is drained."""
        with self._lock:
            if worker is not None:
                self._busy.discard(worker)
            self.error = self.error or error
            self.stop()
            self._changed.notify_all()

    def at_rest(self, read: Callable[[SegmentSteps], _Read]) -> _Read:
        """Calls `read` while no steps are handed out or acknowledged; returns its result."""
        with self._lock:
            assert self._steps is not None
            return read(self._steps)

    def cut(self) -> None:
        """Ends the segment here; to be called by `on_done`."""
        assert self._steps is not None
        self._steps.cut()

    def stop(self) -> None:
        # Without the lock, as the caller may hold it.
        self.stopping = True
        if self._steps is not None:
            self._steps.stop()

    def wait_until_drained(self, timeout_seconds: float) -> bool:
        """Waits at most so long for the segment to end with no ticket out; whether it did."""
        with self._changed:
            return self._changed.wait_for(self._is_drained, timeout_seconds)

    def dismiss(self) -> None:
        for inbox in self.inboxes.values():
            inbox.put(Notice.END)
        self._apart.shutdown(wait=False)

    def _is_drained(self) -> bool:
        is_over = self.stopping or self._steps is None or self._steps.is_over
        return is_over and not (self._busy or self._averaging)

    def _go_on(self, advance: Advance | None = None) -> None:
        """Hands out the next steps, after all groups that come before them are joined."""
        assert self._steps is not None
        advance = advance or self._steps.hand_out()
        tickets = list(advance.tickets)
        while advance.groups or self._lose_all(
            self.prepare([ticket.worker for ticket in tickets if ticket.worker in self._steps.out])
        ):
            self._settle(advance.groups)
            advance = self._steps.hand_out()
            tickets += advance.tickets
        self._hand(tickets)

    def _lose_all(self, lost: Iterable[int]) -> bool:
        lost = list(lost)
        for worker in lost:
            self._settle(self._lose_unreached(worker))
        return bool(lost)

    def _settle(self, groups: Groups) -> None:
        assert self._steps is not None
        waiting = deque(groups)
        while waiting:
            group = waiting.popleft()
            if self._steps.exchange is Exchange.REPLICA:
                self._averaging.update(group.workers)
                self._apart.submit(self._average, group, self.done)
                continue
            for worker in self.join(group, self.done):
                waiting.extend(self._lose_unreached(worker))
        if self._steps.done != self.done:
            self.done = self._steps.done
            self.on_done(self.done)

    def _average(self, group: Group, done: int) -> None:
        lost: Iterable[int] = ()
        try:
            lost = self.join(group, done)
        except BaseException as error:
            self.fail(None, error)
        with self._lock:
            self._averaging.difference_update(group.workers)
            self._lose_all(lost)
            self._go_on()
            self._changed.notify_all()

    def _lose_unreached(self, worker: int) -> Groups:
        assert self._steps is not None
        self.lost.add(worker)
        self.inboxes[worker].put(Notice.LOST)
        return self._steps.lose(worker)

    def _hand(self, tickets: Iterable[Ticket]) -> None:
        assert self._steps is not None
        waiting, self._kept_back = [*self._kept_back, *tickets], []
        for ticket in waiting:
            if ticket.worker in self._averaging:
                self._kept_back.append(ticket)
            elif ticket.worker in self._steps.out:
                self._busy.add(ticket.worker)
                self.inboxes[ticket.worker].put(ticket)
