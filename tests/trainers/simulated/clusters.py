"""Simulated clusters with known times, and trials on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.protocols.steps import Group, SegmentSteps, Ticket
from syncswitch.trainers.simulated.events import Learner, SegmentPlayer
from syncswitch.trainers.simulated.membership import Membership
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.step_times import StepTimes
from tests.trainers import jobs

EVEN = ClusterProfile(compute_seconds=1.0)
"""Equal workers, nothing else takes time: every time is a whole number."""

VARIED = ClusterProfile(compute_seconds=0.05, compute_variation=0.3, latency_seconds=0.001)

PROTOCOLS_OF_FOUR = ("bsp", "asp", "ssp:1", "dssp:1-3", "ds-sync:2", "local-sgd:3", "gba:1")
"""Each protocol, as 4 workers can use it."""


def spec_of(*arguments: Any, profile: ClusterProfile = VARIED, **fields: Any) -> TrialSpec:
    """A trial on a simulated cluster."""
    spec = jobs.spec_of(*arguments, **fields)
    return replace(spec, identity=replace(spec.identity, simulated_cluster=profile.digest))


def times_of(profile: ClusterProfile, steps: int, values: int = 0, seed: int = 1) -> StepTimes:
    return StepTimes(profile, values, steps, seed)


class Ledger(Learner):
    """Checks the order and the workers of all notifications, and counts each gradient."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.pushed: Counter[int] = Counter()
        self.staleness: list[int] = []
        self.rounds: list[tuple[int, ...]] = []
        self.members: list[tuple[int, ...]] = []
        self.came_back: list[int] = []
        self._present: set[int] = set()
        self._under_way: dict[int, tuple[Ticket, int]] = {}
        self._arrived: Counter[int] = Counter()
        self._exchange = Exchange.PUSH

    def begin(self, exchange: Exchange, members: Sequence[int], second_since: int | None) -> None:
        assert not self._under_way
        assert not self._arrived, "the gradients of a round were forgotten"
        self._exchange = exchange
        self._present = set(members)
        self.members.append(tuple(members))

    def pull(self, ticket: Ticket) -> None:
        assert ticket.worker in self._present
        assert ticket.worker not in self._under_way
        self.started.append(ticket.worker_step)
        self._under_way[ticket.worker] = ticket, self.pushed.total()

    def push(self, ticket: Ticket) -> None:
        started, before = self._under_way.pop(ticket.worker)
        assert started is ticket
        self.staleness.append(self.pushed.total() - before)
        self.pushed[ticket.worker_step] += 1
        if self._exchange in (Exchange.ROUND, Exchange.BUFFER):
            self._arrived[ticket.worker] += 1

    def join(self, group: Group, worker_step: int) -> None:
        self.rounds.append(group.workers)
        assert group.worker_steps or not self._under_way.keys() & set(group.workers)
        if self._exchange in (Exchange.ROUND, Exchange.BUFFER):
            assert self._arrived >= Counter(group.workers)
            self._arrived -= Counter(group.workers)
        else:
            assert self._present >= set(group.workers)

    def leave(self, worker: int) -> None:
        self._present.discard(worker)
        self._under_way.pop(worker, None)

    def come_back(self, worker: int) -> None:
        assert worker not in self._present
        self._present.add(worker)
        self.came_back.append(worker)


def play(
    protocol: str,
    profile: ClusterProfile,
    workers: int,
    steps: int,
    learner: Learner | None = None,
    values: int = 0,
) -> list[tuple[int, float]]:
    """Worker-steps done, and when, after each update of a segment."""
    machine = choose_protocol(protocol).machine(range(workers))
    learner = learner or Learner()
    learner.begin(machine.exchange, range(workers), None)
    done: list[tuple[int, float]] = []
    SegmentPlayer(
        SegmentSteps(machine, 0, steps),
        times_of(profile, steps, values),
        learner,
        Membership(range(workers)),
        0.0,
        lambda *update: done.append(update),
    ).play()
    return done


def asp_throughput(workers: int, compute_seconds: float, transfer_seconds: float) -> float:
    """Worker-steps per second in ASP if one transfer at a time has the whole link.

    Exact for a network of queues with two stations whose customers share it evenly, whatever the
    distribution of the times (Reiser and Lavenberg, Mean-Value Analysis of Closed Multichain
    Queuing Networks, 1980).
    """
    throughput = waiting = 0.0
    for customers in range(1, workers + 1):
        seconds = transfer_seconds * (1 + waiting)
        throughput = customers / (compute_seconds + 2 * seconds)
        waiting = throughput * seconds
    return throughput
