"""Hands out the worker-steps of a segment as its protocol allows; pure.

The threads of a cluster and the events of a simulation use it in the same way.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from syncswitch.trainers.protocols import AfterAverage, Exchange, Release, ReplicaStep, SyncProtocol


@dataclass(frozen=True, slots=True)
class Group:
    """A group of workers whose work is to be joined; see `Release.groups`.

    For a buffer, `worker_steps` has the step of each worker's gradient, and `stale` those of them
    that have no weight; otherwise both are empty. For replicas, `after` is what becomes of their
    optimizers.
    """

    workers: tuple[int, ...]
    worker_steps: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()
    after: AfterAverage = AfterAverage.KEPT


Groups = tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission for a worker to do one worker-step, or several as one gradient.

    `worker_step` is the number of the first one in the job, from 0, and that of its batch.
    """

    worker: int
    worker_step: int
    batches: int = 1

    @property
    def worker_steps(self) -> range:
        return range(self.worker_step, self.worker_step + self.batches)


@dataclass(frozen=True, slots=True)
class StepDone:
    """What came of a ticket."""

    loss: float  # that of its batches, before the update
    staleness: int | None = None  # number of updates between pull and push; None on a replica
    replica: ReplicaStep | None = None  # what the protocol sees of a step on a replica
    compute_seconds: float = 0.0  # of its gradients


@dataclass(frozen=True, slots=True)
class Advance:
    """Groups to join before anybody goes on, and the steps that may start after that.

    The groups are complete because other workers have no more steps to do.
    """

    groups: Groups = ()
    tickets: tuple[Ticket, ...] = ()


class SegmentSteps:
    """Hands out the worker-steps of a segment.

    No ticket goes beyond the end of the segment, so there is no overshoot. A step whose worker is
    lost is handed out again. Call `hand_out` after each call that may release a worker: `push`,
    `on_time`, `leave`, `lose` and `join`.

    `undone` are steps before `done` that are still to be done, while as many later ones are done. A
    ticket has `batches` worker-steps, the last one of the segment maybe fewer. The attribute `done`
    counts the worker-steps whose gradient has been applied, or will be by a group of the last
    answer; `next_step` is the first one that has not been handed out.
    """

    def __init__(
        self,
        protocol: SyncProtocol,
        done: int,
        end_step: int,
        undone: Sequence[int] = (),
        batches: int = 1,
    ) -> None:
        self.exchange, self.has_flags = protocol.exchange, protocol.has_flags
        self.done = done
        self._protocol = protocol
        self.next_step = done + len(undone)
        self._end_step = end_step
        self._batches = batches
        self._released: deque[int] = deque()
        self._out: dict[int, Ticket] = {}
        # First step and number of steps.
        self._again: list[tuple[int, int]] = _runs(undone, batches)
        # Pushed steps that are not yet in the mean of a round or buffer, in order, by worker.
        self._waiting: defaultdict[int, deque[int]] = defaultdict(deque)
        self._stale: set[int] = set()
        self._idle: set[int] = set()
        self._leaving: set[int] = set()
        self._is_stopped = False

    @property
    def out(self) -> frozenset[int]:
        return frozenset(self._out)

    def undone(self, applied: Collection[Ticket] = ()) -> list[int]:
        """Steps whose gradient has not been applied, while that of later ones may have been.

        Of the tickets that are out, those in `applied` are known to be applied.
        """
        out = [ticket.worker_steps for ticket in self._out.values() if ticket not in applied]
        again = [range(step, step + batches) for step, batches in self._again]
        return sorted(itertools.chain(*out, *again, *self._waiting.values()))

    @property
    def is_over(self) -> bool:
        """Whether no step is under way or still to be done."""
        if self._out:
            return False
        return self._is_stopped or (not self._again and self.next_step >= self._end_step)

    def start(self) -> Advance:
        self._released.extend(self._protocol.start().workers)
        return self.hand_out()

    def push(self, worker: int, now_seconds: float, step: ReplicaStep | None = None) -> Groups:
        """Records that `worker` has finished its step; returns groups whose work is to be joined.

        The protocol sees a `step` on a replica.

        Between this call and `hand_out`, workers may be told to leave, or the segment be stopped.
        """
        ticket = self._out.pop(worker)
        if self._is_joined:
            self._waiting[worker].append(ticket.worker_step)
        else:
            self.done += ticket.batches
        if step is not None:
            self._protocol.observe(worker, step)
        release = self._protocol.on_push(worker, now_seconds)
        if release.is_stale:
            self._stale.add(ticket.worker_step)
        groups = self._take(release)
        return groups + self._leave(worker) if worker in self._leaving else groups

    @property
    def next_seconds(self) -> float:
        """When `on_time` is to be called if nothing happens before; see `SyncProtocol`."""
        return self._protocol.next_seconds

    def on_time(self, now_seconds: float) -> Groups:
        """Notes that it is so late; returns groups whose work is to be joined."""
        return self._take(self._protocol.on_time(now_seconds))

    def leave(self, worker: int) -> Groups:
        """Gives `worker` no more steps; the one that it has still counts."""
        if worker in self._out:
            self._leaving.add(worker)
            return ()
        return self._leave(worker)

    def lose(self, worker: int) -> Groups:
        """Records that `worker` is lost; its step will be handed out again."""
        ticket = self._out.pop(worker, None)
        groups = self._leave(worker)
        if ticket is not None:
            heapq.heappush(self._again, (ticket.worker_step, ticket.batches))
            # Idle workers take part again.
            for other in sorted(self._idle):
                groups += self.join(other)
        return groups

    def join(self, worker: int) -> Groups:
        """Lets `worker` take part, be it new or back."""
        self._leaving.discard(worker)
        self._idle.discard(worker)
        return self._take(self._protocol.add(worker))

    def hand_out(self) -> Advance:
        groups: Groups = ()
        tickets = []
        while self._released:
            worker = self._released.popleft()
            following = self._following()
            if following is None:
                # It has nothing left to do in this segment, so nobody may wait for it.
                self._idle.add(worker)
                groups += self._take(self._protocol.remove(worker))
            else:
                self._out[worker] = Ticket(worker, *following)
                tickets.append(self._out[worker])
        return Advance(groups, tuple(tickets))

    def cut(self) -> None:
        """Ends the segment here; the step of a worker that is lost is still done by another."""
        self._end_step = self.next_step

    def stop(self) -> None:
        """Hands out no more tickets at all; may be called during another call."""
        self._is_stopped = True

    def _following(self) -> tuple[int, int] | None:
        if self._is_stopped:
            return None
        if self._again:
            return heapq.heappop(self._again)
        if self.next_step >= self._end_step:
            return None
        step, batches = self.next_step, min(self._batches, self._end_step - self.next_step)
        self.next_step += batches
        return step, batches

    def _leave(self, worker: int) -> Groups:
        self._leaving.discard(worker)
        self._idle.discard(worker)
        if worker in self._released:
            self._released.remove(worker)
        return self._take(self._protocol.remove(worker))

    def _take(self, release: Release) -> Groups:
        self._released.extend(release.workers)
        return tuple(map(self._joined, release.groups))

    @property
    def _is_joined(self) -> bool:
        """Whether a gradient counts only once it is joined with others."""
        return self.exchange in (Exchange.ROUND, Exchange.BUFFER)

    def _joined(self, workers: tuple[int, ...]) -> Group:
        if not self._is_joined:
            return Group(workers, after=self._protocol.after)
        self.done += len(workers)
        steps = tuple(self._waiting[worker].popleft() for worker in workers)
        if self.exchange is Exchange.ROUND:
            return Group(workers)
        return Group(workers, steps, tuple(step for step in steps if step in self._stale))


def _runs(steps: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Runs of consecutive steps, of at most this length, as first step and number; ascending.

    Tickets that were out are restored as they were, since some servers may have applied them.
    """
    runs: list[tuple[int, int]] = []
    for step in sorted(steps):
        first, batches = runs[-1] if runs else (step, most)
        if batches < most and first + batches == step:
            runs[-1] = first, batches + 1
        else:
            runs.append((step, 1))
    return runs
