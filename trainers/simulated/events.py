"""The events of a segment on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group, Groups, SegmentSteps, Ticket
from syncswitch.trainers.run.record import StalenessCount
from syncswitch.trainers.simulated.membership import Membership
from syncswitch.trainers.simulated.step_times import NEVER, Moment, SharedLink, StepTimes


class Learner:
    """Receives what happens to the parameters, in virtual-time order; this one learns nothing."""

    def batches(self, second_since: int | None) -> int:
        """Number of batches in each gradient; see `Configuration.batches`."""
        return 1

    def begin(self, exchange: Exchange, members: Sequence[int], second_since: int | None) -> None:
        """A segment begins with these workers, none of which has a step under way."""

    def finish(self) -> None:
        """The segment is over."""

    def pull(self, ticket: Ticket) -> None:
        """The worker takes the parameters with which it computes this step."""

    def push(self, ticket: Ticket) -> None:
        """The worker's gradient has arrived at the parameter server, or at its own replica."""

    def join(self, group: Group, worker_step: int) -> None:
        """The work of a group is joined; `worker_step` is the first one of its round."""

    def leave(self, worker: int) -> None:
        """The worker drops out; those of its gradients that have arrived still count."""

    def come_back(self, worker: int) -> None:
        """The worker is back and about to begin a step."""


@dataclass(slots=True)
class _Step:
    """A step under way."""

    ticket: Ticket
    start_seconds: float
    pulled_updates: int = 0


class SegmentPlayer:
    """Plays one segment as a queue of events.

    With shared parameters, a step begins with a request to the server, which reads the parameters
    and starts sending them; the worker computes, then sends its gradient, which counts once it has
    arrived and the server has processed it. Concurrent transfers share the server's link, each
    direction separately. A step on a replica only computes.

    The segment begins at the training time `start_seconds`. `on_done` is called with the number of
    worker-steps done and the training time after each update; both ascend.
    """

    def __init__(
        self,
        steps: SegmentSteps,
        times: StepTimes,
        learner: Learner,
        membership: Membership,
        start_seconds: float,
        on_done: Callable[[int, float], None],
    ) -> None:
        self._steps = steps
        self._times = times
        self._learner = learner
        self._membership = membership
        self._on_done = on_done
        self._down: SharedLink[_Step] = times.server_link()
        self._up: SharedLink[_Step] = times.server_link()
        self._has_links = self._down.is_limited and times.model_bytes > 0
        self._applied_seconds = 0.0
        self._done = steps.done
        self._now = self._seconds = start_seconds
        self._updates = 0
        self._staleness = StalenessCount()
        self._under_way: dict[int, _Step] = {}
        self._leaving: set[int] = set()
        self._back: set[int] = set()
        self._events: list[tuple[float, int, int, Callable[[_Step, float], None], _Step]] = []
        self._scheduled = 0

    def play(self) -> tuple[float, StalenessCount]:
        """Plays the segment: the training time of its last update, and the gradients' staleness."""
        for ticket in self._steps.start().tickets:
            self._begin(ticket, self._seconds)
        while not self._steps.is_over:
            self._go_on()
        return self._seconds, self._staleness

    def _go_on(self) -> None:
        """Handles the next event, or a change of membership if that comes first."""
        event: Moment = self._events[0][:2] if self._events else NEVER
        first = min(event, self._down.next, self._up.next)
        if self._membership.next_seconds <= first[0]:
            self._now = self._membership.wait(self._now)
            self._change(self._membership.advance(self._steps.done, self._now))
            return
        self._now = first[0]
        if first == event:
            *_, happen, step = heapq.heappop(self._events)
        elif first == self._down.next:
            happen, step = self._compute, self._down.end()
        else:
            happen, step = self._arrive, self._up.end()
        # Events of a lost worker are dropped.
        if self._under_way.get(step.ticket.worker) is step:
            happen(step, self._now)

    def _at(self, seconds: float, happen: Callable[[_Step, float], None], step: _Step) -> None:
        # Ties go to the lower worker; each worker has one event at a time. So when equal workers
        # push at once, each pulls before the next one's push, and DSSP breaks ties as the paper's
        # times do.
        self._scheduled += 1
        event = (seconds, step.ticket.worker, self._scheduled, happen, step)
        heapq.heappush(self._events, event)

    def _begin(self, ticket: Ticket, now: float) -> None:
        step = self._under_way[ticket.worker] = _Step(ticket, now)
        if ticket.worker in self._back:
            self._back.remove(ticket.worker)
            self._learner.come_back(ticket.worker)
        is_replica = self._steps.exchange is Exchange.REPLICA
        self._at(now if is_replica else now + self._times.latency_seconds, self._pull, step)

    def _pull(self, step: _Step, now: float) -> None:
        self._learner.pull(step.ticket)
        step.pulled_updates = self._updates
        if self._steps.exchange is Exchange.REPLICA:
            self._at(now + self._compute_seconds(step.ticket, now), self._finish, step)
        elif self._has_links:
            self._down.start(now, step.ticket.worker, self._times.model_bytes, step)
        else:
            self._compute(step, now)

    def _compute(self, step: _Step, now: float) -> None:
        there = now + self._times.latency_seconds
        seconds = self._compute_seconds(step.ticket, there)
        self._at(there + seconds + self._times.latency_seconds, self._push, step)

    def _compute_seconds(self, ticket: Ticket, now: float) -> float:
        worker = ticket.worker
        seconds = self._times.compute_seconds(worker, ticket.worker_step, now, ticket.batches)
        return self._membership.slowed(worker, seconds)

    def _push(self, step: _Step, now: float) -> None:
        if self._has_links:
            self._up.start(now, step.ticket.worker, self._times.model_bytes, step)
        else:
            self._arrive(step, now)

    def _arrive(self, step: _Step, now: float) -> None:
        if self._steps.exchange is Exchange.PUSH:
            # One update after the other.
            now = max(now, self._applied_seconds) + self._times.apply_seconds
            self._applied_seconds = now
        elif self._steps.exchange is Exchange.BUFFER:
            # The parameter server may be busy with the update of a full buffer.
            now = max(now, self._applied_seconds)
        self._at(now, self._finish, step)

    def _finish(self, step: _Step, now: float) -> None:
        worker = step.ticket.worker
        del self._under_way[worker]
        self._learner.push(step.ticket)
        if self._steps.exchange is not Exchange.REPLICA:
            self._staleness.add(self._updates - step.pulled_updates)
        if self._steps.exchange is Exchange.PUSH:
            self._updates += 1
        ends = self._join(self._steps.push(worker, now), now)
        ends |= self._decide(step, now)
        self._hand_out(ends, now)
        self._change(self._membership.advance(self._steps.done, now))

    def _decide(self, step: _Step, now: float) -> dict[int, float]:
        """Carries out the online policy's decision; says when each worker it releases can go on."""
        busy_seconds = (now - step.start_seconds) / step.ticket.batches
        decision = self._membership.decide(step.ticket.worker, busy_seconds, self._steps.done, now)
        ends: dict[int, float] = {}
        for worker in decision.remove:
            self._leaving.add(worker)
            ends |= self._join(self._steps.leave(worker), now)
        if decision.protocol is not None:
            self._steps.cut()
        for worker in sorted(self._leaving - self._under_way.keys()):
            self._leaving.remove(worker)
            self._learner.leave(worker)
        return ends

    def _change(self, changes: Sequence[tuple[int, bool]]) -> None:
        """Carries out that workers are lost or back; see `Membership.advance`."""
        ends: dict[int, float] = {}
        for worker, is_back in changes:
            if is_back:
                self._back.add(worker)
                ends |= self._join(self._steps.join(worker), self._now)
            else:
                self._under_way.pop(worker, None)
                self._back.discard(worker)
                self._leaving.discard(worker)
                self._learner.leave(worker)
                ends |= self._join(self._steps.lose(worker), self._now)
        if changes:
            self._hand_out(ends, self._now)

    def _hand_out(self, ends: dict[int, float], now: float) -> None:
        advance = self._steps.hand_out()
        ends |= self._join(advance.groups, now)
        is_round = self._steps.exchange is Exchange.ROUND
        # A worker that is new to a round begins together with the others.
        others = max(ends.values(), default=now) if is_round else now
        for ticket in advance.tickets:
            self._begin(ticket, ends.get(ticket.worker, others))

    def _join(self, groups: Groups, now: float) -> dict[int, float]:
        """Joins the work of each group; returns the time at which each member can go on."""
        ends = {}
        for group in groups:
            self._learner.join(group, self._done)
            self._updates += 1
            end = now + self._times.join_seconds(self._steps.exchange, group.workers)
            ends.update(dict.fromkeys(group.workers, end))
            if self._steps.exchange is Exchange.BUFFER:
                self._applied_seconds = end
        is_update = self._steps.done != self._done
        if is_update or groups:
            # Groups that are joined at the same time may finish in another order.
            self._seconds = max(self._seconds, *ends.values(), now)
        if is_update:
            self._done = self._steps.done
            self._on_done(self._done, self._seconds)
        return ends
