"""Plays a run on a virtual clock, segment by segment, with or without training."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import Recipe, ScheduledJob
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import PhaseRecord, RunEvent, TrialSpec
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.injections import Extent, check_injections, injections
from syncswitch.trainers.job.schedule import Segment, switch_worker_step
from syncswitch.trainers.protocols import AfterAverage, Exchange, ReplicaStep, choose_protocol
from syncswitch.trainers.protocols.steps import Group, Groups, SegmentSteps, Ticket
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import StalenessCount
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.stragglers.online import (
    NO_DECISION,
    Decision,
    OnlineController,
    controller_of,
)
from syncswitch.trainers.trainer import Observer

T = TypeVar("T")

Moment = tuple[float, int]  # time of an event and its worker; ties go to the lower number
NEVER: Moment = (math.inf, -1)


class SharedLink(Generic[T]):
    """One direction of a link that many workers share, each behind its own link.

    Sharing is max-min fair: at any time all transfers get the same rate, except that none exceeds
    its worker's own link, and the others share what that leaves. The connections of a host share
    its link in about this way. Worker k has the k-th own link, or that modulo their number.

    Transfers over equally fast links have the same rate at any time. They are kept in one heap,
    ordered by the bytes that each would have received had it started with the first one, so that
    a start or an end takes time logarithmic in their number.
    """

    def __init__(self, bytes_per_second: float, worker_bytes_per_second: Sequence[float]) -> None:
        self._bytes_per_second = bytes_per_second
        by_limit = {limit: _LinkClass[T](limit) for limit in sorted(set(worker_bytes_per_second))}
        self._classes = list(by_limit.values())
        self._of_worker = [by_limit[limit] for limit in worker_bytes_per_second]
        self.is_limited = not all(map(math.isinf, (bytes_per_second, *by_limit)))
        self.next = NEVER
        self._first = self._classes[0]
        self._now = 0.0
        self._started = 0

    def start(self, now_seconds: float, worker: int, size: float, what: T) -> None:
        """Begins a transfer of `size` bytes, for which `end` returns `what`.

        It is neither after `next` nor before an earlier call.
        """
        self._advance(now_seconds)
        alike = self._of_worker[worker % len(self._of_worker)]
        self._started += 1
        heapq.heappush(alike.transfers, (alike.served + size, worker, self._started, what))
        self._share()

    def end(self) -> T:
        """Ends the next transfer, at the time `next`."""
        first = self._first
        self._advance(self.next[0])
        first.served, _, _, what = heapq.heappop(first.transfers)
        if not first.transfers:
            first.served = 0.0
        self._share()
        return what

    def _advance(self, now_seconds: float) -> None:
        elapsed = now_seconds - self._now
        self._now = now_seconds
        for alike in self._classes:
            if alike.transfers:
                alike.served += elapsed * alike.rate

    def _share(self) -> None:
        """Sets the rates until the next start or end, and finds the transfer that ends next."""
        waiting = sum(len(alike.transfers) for alike in self._classes)
        left = self._bytes_per_second
        self.next = NEVER
        for alike in self._classes:
            if not alike.transfers:
                continue
            alike.rate = min(alike.limit, left / waiting)
            left -= alike.rate * len(alike.transfers)
            waiting -= len(alike.transfers)
            target, worker = alike.transfers[0][:2]
            # By rounding, a transfer may have received a little more than its size.
            moment = self._now + max(0.0, target - alike.served) / alike.rate, worker
            if moment < self.next:
                self.next, self._first = moment, alike


class _LinkClass(Generic[T]):
    """Transfers over links of bandwidth `limit`, each with the value of `served` at its end."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.rate = 0.0
        self.served = 0.0
        self.transfers: list[tuple[float, int, int, T]] = []


BYTES_PER_VALUE = 4
# The worker asks, the parameters come, the gradient goes.
MESSAGES_OF_A_STEP = 3
# To average replicas, members fetch segments, fetch the means of segments, and agree that everybody
# is done; each takes a request and its answer.
_MESSAGES_OF_A_MEAN = 3 * 2


class StepTimes:
    """The times of one run on one cluster.

    The variation of a worker-step depends only on its number and the seed, so a fork has the same
    times as the run that wrote its checkpoint. A copy of the model, a pull or a push, has so many
    float32 values, P + S: its parameters, and statistics such as those of BatchNorm. The optimizer
    has so many `slots`; None for a momentum of the model's size.
    """

    def __init__(
        self,
        profile: ClusterProfile,
        values: int,
        total_worker_steps: int,
        seed: int,
        slots: int | None = None,
    ) -> None:
        self._profile = profile
        # What is sent for each byte of the model if the optimizers are averaged as well.
        self._bytes_with_slots = 2.0 if slots is None else 1 + slots / max(values, 1)
        self.model_bytes = profile.parameter_bytes or values * BYTES_PER_VALUE
        self.latency_seconds = profile.latency_seconds
        self.apply_seconds = profile.apply_seconds
        self.switch_seconds = profile.switch_seconds
        self._worker_bandwidths = profile.worker_bandwidths_bytes_per_second or (math.inf,)
        # Log-normal with mean 1 and this standard deviation.
        variance = np.log1p(profile.compute_variation**2)
        self._factors = np.random.default_rng(seed).lognormal(
            -variance / 2, np.sqrt(variance), total_worker_steps
        )

    def server_link(self) -> SharedLink[Any]:
        """One direction of the parameter server's link, idle."""
        server_bandwidth = self._profile.server_bandwidth_bytes_per_second or math.inf
        return SharedLink(server_bandwidth, self._worker_bandwidths)

    def compute_seconds(
        self, worker: int, worker_step: int, now_seconds: float, batches: int = 1
    ) -> float:
        """Time in which a worker computes its gradient, once the parameters have arrived."""
        profile = self._profile
        speed = profile.relative_speeds[worker % len(profile.relative_speeds)]
        factor = math.fsum(self._factors[worker_step : worker_step + batches])
        seconds = profile.compute_seconds * factor / speed
        for straggler in profile.stragglers:
            since = now_seconds - straggler.start_seconds
            if straggler.worker == worker and 0 <= since < straggler.duration_seconds:
                seconds = seconds * straggler.slowdown + straggler.delay_seconds
        return seconds

    def join_seconds(self, exchange: Exchange, group: Group) -> float:
        """Time in which the work of a group is joined, once the last member has arrived.

        Replicas are averaged by the members among themselves: each of the g members fetches one
        g-th of the model from the others, then the means of the other parts. This moves as many
        bytes as a ring all-reduce, 2 (g - 1) / g of the model in each direction, in the messages of
        three exchanges. The slowest link sets the pace.
        """
        if exchange is Exchange.ROUND:
            return self._profile.barrier_seconds + self.apply_seconds
        if exchange is Exchange.BUFFER:
            return self.apply_seconds
        links, size = self._worker_bandwidths, len(group.workers)
        slowest = min(links[worker % len(links)] for worker in group.workers)
        sent = self._bytes_with_slots if group.after is AfterAverage.AVERAGED else 1.0
        transfer_seconds = 2 * (size - 1) / size * sent * self.model_bytes / slowest
        return transfer_seconds + _MESSAGES_OF_A_MEAN * self.latency_seconds


_AWAY = Extent(3.0, is_percent=False)


class Membership:
    """Carries out injections and consults the online policy; without either nothing changes.

    Each event is noted for the run's record. On a detour (`is_detour`), the online policy wants the
    second protocol for now.
    """

    def __init__(
        self,
        workers: Iterable[int],
        active: ActiveInjections | None = None,
        online: OnlineController | None = None,
        note: Callable[[RunEvent], None] = lambda event: None,
    ) -> None:
        self._workers = tuple(workers)
        self._active = active or ActiveInjections((), 0)
        self._online = online
        self._note = note
        self.is_detour = False
        self._resting: set[int] = set()
        self._kills: Counter[int] = Counter()
        self._lost_seconds: dict[int, float] = {}
        self._switch_worker_step = math.inf

    @property
    def present(self) -> list[int]:
        away = self._lost_seconds.keys() | self._resting
        return [worker for worker in self._workers if worker not in away]

    @property
    def next_seconds(self) -> float:
        """Training time of the next scheduled change; infinite if there is none."""
        return self._active.next_seconds

    def begin(self, done: int, now_seconds: float, switch_worker_step: float) -> float:
        """Begins a segment as soon as a worker is present; returns the training time then.

        The worker-step of the timing policy's switch is infinite on a detour of the online policy.
        """
        self._switch_worker_step = switch_worker_step
        self.advance(done, now_seconds)
        while not self.present:
            now_seconds = self.wait(now_seconds)
            self.advance(done, now_seconds)
        return now_seconds

    def wait(self, now_seconds: float) -> float:
        """The training time of the next scheduled change, when all workers are away.

        Raises UserError if there is none, so no worker ever comes back.
        """
        if math.isinf(self.next_seconds):
            raise UserError(
                "the injections remove all workers at once until more of the job is done, which"
                " then never happens; give their length in seconds instead, as in for=3s",
                code="parameter-invalid",
            )
        return max(now_seconds, self.next_seconds)

    def advance(self, done: int, now_seconds: float) -> list[tuple[int, bool]]:
        """Begins and ends injections that are due; returns workers lost, or back if True."""
        changes = []
        for injection, is_start in self._active.advance(done, now_seconds):
            worker = injection.worker
            if is_start:
                self._note(RunEvent("injected", done, now_seconds, injection.text, worker))
            if injection.kind == "kill" and worker is not None:
                self._kills[worker] += 1 if is_start else -1
                if self._kills[worker] != is_start:
                    continue  # several kills of it overlap
                if is_start:
                    self._lost_seconds[worker] = now_seconds
                    kind, seconds = "lost", None
                    reason = (
                        f"worker {worker} was killed; another worker takes over its worker-step"
                    )
                else:
                    kind, seconds = "returned", now_seconds - self._lost_seconds.pop(worker)
                    reason = f"worker {worker} is back"
                if self._online is not None:
                    (self._online.lost if is_start else self._online.returned)(worker)
                self._note(RunEvent(kind, done, now_seconds, reason, worker, seconds))
                if is_start or worker not in self._resting:
                    changes.append((worker, not is_start))
        return changes

    def slowed(self, worker: int, seconds: float) -> float:
        """The duration, under the active injections, of a step that would take `seconds`."""
        active = self._active
        return seconds * active.slowdown(worker) + active.delay_seconds(worker)

    def decide(self, worker: int, busy_seconds: float, done: int, now_seconds: float) -> Decision:
        """Reports a step to the online policy, and asks it what to do.

        The decision is to be carried out before more steps are handed out; its events are noted.
        """
        if self._online is None:
            return NO_DECISION
        self._online.observe(worker, busy_seconds)
        decision = self._online.judge(done, now_seconds, done < self._switch_worker_step)
        for event in decision.events:
            self._note(event)
        self._resting.update(decision.remove)
        if decision.protocol is not None:
            self.is_detour = decision.protocol == "second"
        return decision

    def switch(self, done: int, now_seconds: float) -> None:
        """Brings every resting worker back, at the timing policy's switch."""
        if self._online is not None:
            for event in self._online.at_switch(done, now_seconds):
                self._note(event)
        self._resting.clear()


class StepExecutor:
    """Receives what happens to the parameters, in virtual-time order; this one does nothing."""

    def batches(self, second_since: int | None) -> int:
        return 1

    def begin(
        self,
        exchange: Exchange,
        members: Sequence[int],
        second_since: int | None,
        done: int | None = None,
        *,
        is_trial: bool = False,
    ) -> None:
        """A segment begins with these workers, none of which has a step under way.

        So many worker-steps are done; see `Configuration.own_updates`.
        """

    def finish(self) -> None:
        """The segment is over."""

    def pull(self, ticket: Ticket) -> None:
        """The worker takes the parameters with which it computes this step."""

    def push(self, ticket: Ticket) -> ReplicaStep | None:
        """The worker's gradient has arrived at the parameter server, or at its own replica.

        Of a step on a replica the protocol sees what is returned.
        """
        return None

    def join(self, group: Group, worker_step: int) -> None:
        """The work of a group is joined; `worker_step` is the first one of its round."""

    def leave(self, worker: int) -> None:
        """The worker drops out; those of its gradients that have arrived still count."""

    def come_back(self, worker: int) -> None:
        """The worker is back and about to begin a step."""


@dataclass(slots=True)
class _Step:
    ticket: Ticket
    start_seconds: float
    pulled_updates: int = 0
    compute_seconds: float = 0.0


class SegmentPlayer:
    """Plays one segment as a queue of events.

    With shared parameters, a step begins with a request to the server, which reads the parameters
    and starts sending them; the worker computes, then sends its gradient, which counts once it has
    arrived and the server has processed it. Concurrent transfers share the server's link, each
    direction separately. A step on a replica only computes.

    The segment begins at the training time `start_seconds`. `on_done` is called with the number of
    worker-steps done and the training time after each update; both ascend. `on_step` is called
    after each step with its worker, and the seconds of computing it and of all but waiting.
    """

    def __init__(
        self,
        steps: SegmentSteps,
        times: StepTimes,
        executor: StepExecutor,
        membership: Membership,
        start_seconds: float,
        on_done: Callable[[int, float], None],
        on_step: Callable[[int, float, float], None] = lambda *_: None,
    ) -> None:
        self._steps = steps
        self._times = times
        self._executor = executor
        self._membership = membership
        self._on_done = on_done
        self._on_step = on_step
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
        event: Moment = self._events[0][:2] if self._events else NEVER
        first = min(event, self._down.next, self._up.next)
        timed = self._steps.next_seconds
        if timed < min(first[0], self._membership.next_seconds):
            self._now = timed
            self._hand_out(self._join(self._steps.on_time(timed), timed), timed)
            return
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
            self._executor.come_back(ticket.worker)
        is_replica = self._steps.exchange is Exchange.REPLICA
        self._at(now if is_replica else now + self._times.latency_seconds, self._pull, step)

    def _pull(self, step: _Step, now: float) -> None:
        self._executor.pull(step.ticket)
        step.pulled_updates = self._updates
        if self._steps.exchange is Exchange.REPLICA:
            # A flag goes to all others, and theirs arrive at about the same time.
            flags_seconds = self._times.latency_seconds if self._steps.has_flags else 0.0
            seconds = self._compute_seconds(step, now) + flags_seconds
            self._at(now + seconds, self._finish, step)
        elif self._has_links:
            self._down.start(now, step.ticket.worker, self._times.model_bytes, step)
        else:
            self._compute(step, now)

    def _compute(self, step: _Step, now: float) -> None:
        there = now + self._times.latency_seconds
        seconds = self._compute_seconds(step, there)
        self._at(there + seconds + self._times.latency_seconds, self._push, step)

    def _compute_seconds(self, step: _Step, now: float) -> float:
        ticket = step.ticket
        worker = ticket.worker
        seconds = self._times.compute_seconds(worker, ticket.worker_step, now, ticket.batches)
        step.compute_seconds = self._membership.slowed(worker, seconds)
        return step.compute_seconds

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
        worker, batches = step.ticket.worker, step.ticket.batches
        del self._under_way[worker]
        busy_seconds = now - step.start_seconds
        self._on_step(worker, step.compute_seconds / batches, busy_seconds / batches)
        seen = self._executor.push(step.ticket)
        if self._steps.exchange is not Exchange.REPLICA:
            self._staleness.add(self._updates - step.pulled_updates)
        if self._steps.exchange is Exchange.PUSH:
            self._updates += 1
        ends = self._join(self._steps.push(worker, now, seen), now)
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
            self._executor.leave(worker)
        return ends

    def _change(self, changes: Sequence[tuple[int, bool]]) -> None:
        ends: dict[int, float] = {}
        for worker, is_back in changes:
            if is_back:
                self._back.add(worker)
                ends |= self._join(self._steps.join(worker), self._now)
            else:
                self._under_way.pop(worker, None)
                self._back.discard(worker)
                self._leaving.discard(worker)
                self._executor.leave(worker)
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
            self._executor.join(group, self._done)
            self._updates += 1
            end = now + self._times.join_seconds(self._steps.exchange, group)
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


class Timeline:
    """Plays a run from the position of its log to the end of the job; see `SegmentPlayer`."""

    def __init__(
        self,
        spec: TrialSpec,
        log: RunLog,
        times: StepTimes,
        executor: StepExecutor,
        on_done: Callable[[int, float], None] = lambda done, seconds: None,
    ) -> None:
        identity, conditions = spec.identity, spec.conditions
        if conditions.switch_mechanism != "hot":
            raise UserError(
                "a simulated cluster has no processes to start anew",
                parameter="switch",
                value=conditions.switch_mechanism,
                allowed="hot (switch_seconds of a profile says what that costs)",
                code="parameters-conflict",
            )
        chosen = injections(conditions.injections, identity.workers, spec.switch_percent)
        check_injections(chosen, "simulated")
        active = ActiveInjections(
            (
                # A killed worker that is not said to stay away for longer is back after 3 s.
                replace(injection, lasting=injection.lasting or _AWAY)
                if injection.kind == "kill"
                else injection
                for injection in chosen
            ),
            identity.total_worker_steps,
            done=log.done,
            now_seconds=log.elapsed_seconds,
            resumed=spec.resume,
        )
        workers = range(identity.workers)
        online = controller_of(conditions.online, workers)
        self._membership = Membership(workers, active, online, log.add_event)
        self._spec = spec
        self._log = log
        self._times = times
        self._executor = executor
        self._on_done = on_done
        self._steps: SegmentSteps | None = None

    def segments(self) -> Iterator[Segment]:
        """Plays the segments, and yields each when it is over; an online policy may cut it short.

        May be called again after the log has gone back.
        """
        log, membership = self._log, self._membership
        while (segment := log.next_segment(is_detour=membership.is_detour)) is not None:
            done, seconds = log.done, log.elapsed_seconds
            if log.is_switch(segment):
                log.add_switch(segment.protocol, self._times.switch_seconds, seconds)
                if not log.is_before_switch:
                    membership.switch(done, seconds)
                seconds += self._times.switch_seconds
            switch_at = math.inf
            if not membership.is_detour:
                switch_at = done + switch_worker_step(self._spec) - log.first_protocol_done
            start_seconds = membership.begin(done, seconds, switch_at)
            choice, members = choose_protocol(segment.protocol), membership.present
            second_since = log.second_since(segment)
            batches = self._executor.batches(second_since)
            machine = choice.machine(members, done, second_since)
            self._steps = SegmentSteps(machine, done, segment.end_worker_step, batches=batches)
            self._executor.begin(
                choice.exchange, members, second_since, done, is_trial=segment.is_trial
            )
            seconds, staleness = SegmentPlayer(
                self._steps,
                self._times,
                self._executor,
                membership,
                start_seconds,
                self._on_done,
                log.add_step,
            ).play()
            self._executor.finish()
            log.add_phase(segment, self._steps.done, seconds, staleness)
            yield segment

    def stop(self) -> None:
        if self._steps is not None:
            self._steps.stop()

    def cut(self) -> None:
        """Ends the segment here."""
        assert self._steps is not None
        self._steps.cut()


@dataclass(frozen=True, slots=True)
class TimedJob:
    """The properties of a job that determine its time."""

    workers: int
    total_worker_steps: int
    protocols: tuple[str, str]  # before and after the switch
    values: int = 0  # P + S of the model, used if the profile does not give its size


def simulate_phases(
    profile: ClusterProfile, job: TimedJob, switch_percent: float, seed: int
) -> tuple[PhaseRecord, ...]:
    """The phases of a run that is played on the virtual clock without computing anything."""
    steps = job.total_worker_steps
    unknown = ScheduledJob.undescribed("timed", steps, job.workers, job.protocols, Metric())
    recipe = Recipe(evaluation_interval_worker_steps=steps)
    identity = replace(unknown, job=replace(unknown.job, recipe=recipe))
    spec = TrialSpec(identity, switch_percent, seed)
    log = RunLog(spec, Observer(), lambda accuracy: False)
    times = StepTimes(profile, job.values, job.total_worker_steps, seed)
    for _ in Timeline(spec, log, times, StepExecutor()).segments():
        pass
    return log.position.phases
