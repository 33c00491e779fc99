"""The events of a segment on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.running_counts import StalenessCount
from syncswitch.trainers.segment_steps import SegmentSteps, Ticket
from syncswitch.trainers.simulated.timing import Link, StepTimes

__all__ = ["Idle", "Learner", "Played", "play_segment"]


class Learner(Protocol):
    """What happens to the parameters, in the order of the virtual time."""

    def pull(self, ticket: Ticket) -> None:
        """The worker takes the parameters with which it computes this step."""

    def push(self, ticket: Ticket) -> None:
        """Its gradient has arrived: at the parameter server, or at its own replica."""

    def join(self, group: Sequence[int], worker_step: int) -> None:
        """The work of these workers is joined; `worker_step` is the first of their round."""


class Idle:
    """Learns nothing: for when only the time is asked for."""

    def pull(self, ticket: Ticket) -> None:
        """Does nothing."""

    def push(self, ticket: Ticket) -> None:
        """Does nothing."""

    def join(self, group: Sequence[int], worker_step: int) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class Played:
    """A segment that was played.

    Attributes:
        seconds: Training time at its last update; that of its start where there was none.
        staleness: Updates between pull and push; of replicas nothing is counted.
    """

    seconds: float
    staleness: StalenessCount


def play_segment(
    steps: SegmentSteps,
    times: StepTimes,
    learner: Learner,
    start_seconds: float,
    on_done: Callable[[int, float], None],
) -> Played:
    """Plays a segment to its end.

    Args:
        steps: Of the segment, not yet started.
        times: Of the run.
        learner: Told what happens.
        start_seconds: Training time at which the segment begins.
        on_done: `(worker-steps done, training time)`: called after each update; both ascend.
    """
    return _Play(steps, times, learner, start_seconds, on_done).to_its_end()


class _Play:
    """An event is a moment, and what happens in it. Used once.

    A step of a worker that shares parameters: the server's connection is reserved for the pull, the
    parameters are read as the transfer begins, the worker computes, the connection is reserved for
    the push, the gradient counts as the transfer ends. A step of a replica only computes.
    """

    def __init__(
        self,
        steps: SegmentSteps,
        times: StepTimes,
        learner: Learner,
        start_seconds: float,
        on_done: Callable[[int, float], None],
    ) -> None:
        self._steps = steps
        self._times = times
        self._learner = learner
        self._on_done = on_done
        self._down, self._up = Link(), Link()
        self._done = steps.done
        self._seconds = start_seconds
        self._updates = 0
        self._pulled_updates: dict[int, int] = {}
        self._staleness = StalenessCount()
        self._events: list[tuple[float, int, Callable[[Ticket, float], None], Ticket]] = []

    def to_its_end(self) -> Played:
        """Plays all events."""
        for ticket in self._steps.start().tickets:
            self._begin(ticket, self._seconds)
        while self._events:
            seconds, _, happen, ticket = heapq.heappop(self._events)
            happen(ticket, seconds)
        return Played(self._seconds, self._staleness)

    def _at(self, seconds: float, happen: Callable[[Ticket, float], None], ticket: Ticket) -> None:
        # In one moment lower numbers come first; a worker has one event at a time. So of equal
        # workers that push at once each pulls before the next one's push, and DSSP's ties are
        # those of its known times.
        heapq.heappush(self._events, (seconds, ticket.worker, happen, ticket))

    def _begin(self, ticket: Ticket, now: float) -> None:
        if self._steps.exchange is Exchange.REPLICA:
            self._at(now, self._compute, ticket)
        else:
            self._at(now + self._times.latency_seconds, self._ask, ticket)

    def _ask(self, ticket: Ticket, now: float) -> None:
        start, _ = self._down.reserve(now, self._times.pull_seconds)
        self._at(start, self._compute, ticket)

    def _compute(self, ticket: Ticket, now: float) -> None:
        self._learner.pull(ticket)
        self._pulled_updates[ticket.worker] = self._updates
        if self._steps.exchange is Exchange.REPLICA:
            seconds = self._times.compute_seconds(ticket.worker, ticket.worker_step, now)
            self._at(now + seconds, self._finish, ticket)
            return
        there = now + self._times.pull_seconds + self._times.latency_seconds
        seconds = self._times.compute_seconds(ticket.worker, ticket.worker_step, there)
        self._at(there + seconds + self._times.latency_seconds, self._send, ticket)

    def _send(self, ticket: Ticket, now: float) -> None:
        _, end = self._up.reserve(now, self._times.push_seconds(self._steps.exchange))
        self._at(end, self._finish, ticket)

    def _finish(self, ticket: Ticket, now: float) -> None:
        self._learner.push(ticket)
        if self._steps.exchange is not Exchange.REPLICA:
            self._staleness.add(self._updates - self._pulled_updates[ticket.worker])
        if self._steps.exchange is Exchange.PUSH:
            self._updates += 1
        ends = self._join(self._steps.push(ticket.worker, now), now)
        advance = self._steps.hand_out()
        ends |= self._join(advance.groups, now)
        for following in advance.tickets:
            self._begin(following, ends.get(following.worker, now))

    def _join(self, groups: Sequence[Sequence[int]], now: float) -> dict[int, float]:
        """Joins the work of groups, each by itself; when its members can go on."""
        ends = {}
        for group in groups:
            self._learner.join(group, self._done)
            self._updates += 1
            end = now + self._times.join_seconds(self._steps.exchange, len(group))
            ends.update(dict.fromkeys(group, end))
        is_update = self._steps.done != self._done
        if is_update or groups:
            # Groups that join at the same time may end in another order.
            self._seconds = max(self._seconds, *ends.values(), now)
        if is_update:
            self._done = self._steps.done
            self._on_done(self._done, self._seconds)
        return ends
