"""The worker-steps of one segment, handed out as a protocol allows; pure.

Threads of a cluster and events of a simulation use it in the same way.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from syncswitch.trainers.protocols import Exchange, Release, SyncProtocol


@dataclass(frozen=True, slots=True)
class Group:
    """Work that is to be joined; see `Release.groups`.

    Attributes:
        workers: Workers that did it.
        worker_steps: Steps of the gradients in a buffer, one for each of `workers`; empty
            otherwise.
        stale: Steps among these whose gradient has no weight.
    """

    workers: tuple[int, ...]
    worker_steps: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()


Groups = tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission for one worker to do one worker-step, or several at once.

    Attributes:
        worker: The worker.
        worker_step: Number of the step in the job, from 0; also the number of its batch.
        batches: So many worker-steps, from that one on, are done at once: one gradient of the
            batches of all of them.
    """

    worker: int
    worker_step: int
    batches: int = 1

    @property
    def worker_steps(self) -> range:
        """Numbers of all its worker-steps."""
        return range(self.worker_step, self.worker_step + self.batches)


@dataclass(frozen=True, slots=True)
class Advance:
    """Groups to join and steps to start.

    Attributes:
        groups: Groups whose work is to be joined before anybody goes on: they are complete because
            others have no more steps to do.
        tickets: Steps that may start then.
    """

    groups: Groups = ()
    tickets: tuple[Ticket, ...] = ()


class SegmentSteps:
    """Hands out the worker-steps from one number to another.

    No ticket is handed out beyond the end of the segment, so there is no overshoot. A step whose
    worker is lost is handed out again. `hand_out` follows each call that may release somebody:
    `push`, `leave`, `lose` and `join`.

    Args:
        protocol: A fresh state machine.
        done: Number of worker-steps done before.
        end_step: Number of worker-steps done where the segment ends.
        undone: Steps that were not done, though later ones were.
        batches: Worker-steps of a ticket; the last one of the segment may have fewer.

    Attributes:
        exchange: The use of a gradient.
        done: Worker-steps whose gradient counts: it has been applied, or is about to be by one of
            the groups of the last answer.
    """

    def __init__(
        self,
        protocol: SyncProtocol,
        done: int,
        end_step: int,
        undone: Sequence[int] = (),
        batches: int = 1,
    ) -> None:
        self.exchange = protocol.exchange
        self.done = done
        self._protocol = protocol
        self._next_step = done + len(undone)
        self._end_step = end_step
        self._batches = batches
        self._released: deque[int] = deque()
        self._out: dict[int, Ticket] = {}
        # First step, and how many.
        self._again: list[tuple[int, int]] = _runs(undone, batches)
        # Pushed, but not yet in the mean of a round or of a buffer; of a worker in their order.
        self._waiting: defaultdict[int, deque[int]] = defaultdict(deque)
        self._stale: set[int] = set()
        self._idle: set[int] = set()
        self._leaving: set[int] = set()
        self._is_stopped = False

    @property
    def out(self) -> frozenset[int]:
        """Workers that have a ticket."""
        return frozenset(self._out)

    def undone(self, applied: Collection[Ticket] = ()) -> list[int]:
        """Steps whose gradient has not been applied, though that of later ones may have been.

        Args:
            applied: Tickets that are known to be applied, though they were not acknowledged.
        """
        out = [one.worker_steps for one in self._out.values() if one not in applied]
        again = [range(step, step + batches) for step, batches in self._again]
        return sorted(itertools.chain(*out, *again, *self._waiting.values()))

    @property
    def next_step(self) -> int:
        """The first step that nobody has been given."""
        return self._next_step

    @property
    def is_over(self) -> bool:
        """Whether every step was done (drained), or will not be."""
        if self._out:
            return False
        return self._is_stopped or (not self._again and self._next_step >= self._end_step)

    def start(self) -> Advance:
        """The first steps; called once."""
        self._released.extend(self._protocol.start().workers)
        return self.hand_out()

    def push(self, worker: int, now_seconds: float) -> Groups:
        """Records that `worker` has finished its step.

        Between this and `hand_out` others may be told to leave, or all be stopped.

        Returns:
            Groups whose work is to be joined.
        """
        ticket = self._out.pop(worker)
        if self._is_joined:
            self._waiting[worker].append(ticket.worker_step)
        else:
            self.done += ticket.batches
        release = self._protocol.on_push(worker, now_seconds)
        if release.is_stale:
            self._stale.add(ticket.worker_step)
        groups = self._take(release)
        return groups + self._leave(worker) if worker in self._leaving else groups

    def leave(self, worker: int) -> Groups:
        """Gives `worker` no more steps; the one that it has counts, and is its last.

        Returns:
            Groups that waited for nobody else.
        """
        if worker in self._out:
            self._leaving.add(worker)
            return ()
        return self._leave(worker)

    def lose(self, worker: int) -> Groups:
        """Records that `worker` is gone: the step that it had is handed out again.

        Returns:
            Groups that waited for nobody else.
        """
        ticket = self._out.pop(worker, None)
        groups = self._leave(worker)
        if ticket is not None:
            heapq.heappush(self._again, (ticket.worker_step, ticket.batches))
            groups += self._call_back()
        return groups

    def join(self, worker: int) -> Groups:
        """Lets `worker` take part, new or back again.

        Returns:
            Groups that this completes.
        """
        self._leaving.discard(worker)
        self._idle.discard(worker)
        return self._take(self._protocol.add(worker))

    def hand_out(self) -> Advance:
        """Gives the workers that were released their next steps."""
        groups: Groups = ()
        tickets = []
        while self._released:
            worker = self._released.popleft()
            following = self._following()
            if following is None:
                # Nothing is left for it to do in this segment: nobody must wait for it.
                self._idle.add(worker)
                groups += self._take(self._protocol.remove(worker))
            else:
                self._out[worker] = Ticket(worker, *following)
                tickets.append(self._out[worker])
        return Advance(groups, tuple(tickets))

    def cut(self) -> None:
        """Ends the segment here; a step whose worker is lost is still done by another one."""
        self._end_step = self._next_step

    def stop(self) -> None:
        """Hands out no further tickets at all; may be called while another call is under way."""
        self._is_stopped = True

    def _following(self) -> tuple[int, int] | None:
        """The first step of the next ticket, and how many it has."""
        if self._is_stopped:
            return None
        if self._again:
            return heapq.heappop(self._again)
        if self._next_step >= self._end_step:
            return None
        step, batches = self._next_step, min(self._batches, self._end_step - self._next_step)
        self._next_step += batches
        return step, batches

    def _leave(self, worker: int) -> Groups:
        self._leaving.discard(worker)
        self._idle.discard(worker)
        if worker in self._released:
            self._released.remove(worker)
        return self._take(self._protocol.remove(worker))

    def _call_back(self) -> Groups:
        """Gives idle workers something to do again."""
        groups: Groups = ()
        for worker in sorted(self._idle):
            groups += self.join(worker)
        return groups

    def _take(self, release: Release) -> Groups:
        self._released.extend(release.workers)
        return tuple(map(self._joined, release.groups))

    @property
    def _is_joined(self) -> bool:
        """Whether a gradient counts only once it has been joined with others."""
        return self.exchange in (Exchange.ROUND, Exchange.BUFFER)

    def _joined(self, workers: tuple[int, ...]) -> Group:
        if not self._is_joined:
            return Group(workers)
        self.done += len(workers)
        steps = tuple(self._waiting[worker].popleft() for worker in workers)
        if self.exchange is Exchange.ROUND:
            return Group(workers)
        stale = tuple(step for step in steps if step in self._stale)
        self._stale.difference_update(stale)
        return Group(workers, steps, stale)


def _runs(steps: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Steps that follow each other, at most so many, as first step and number; ascending.

    So tickets that were out come back as they were, in which they may have reached some servers.
    """
    found: list[tuple[int, int]] = []
    for step in sorted(steps):
        first, batches = found[-1] if found else (step, most)
        if batches < most and first + batches == step:
            found[-1] = first, batches + 1
        else:
            found.append((step, 1))
    return found
