"""The executor: what the steps of a protocol do to the parameters on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from syncswitch.trainers.cluster.exchange.plans import NO_HOLD, Hold, Task
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError
from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.model.embeddings import Ids
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.updates import NO_OUTER, first_outer_state
from syncswitch.trainers.protocols import AfterAverage, Exchange, ReplicaStep
from syncswitch.trainers.protocols.steps import Group, StepDone, Ticket


class ClusterExecutor:
    """Does the steps of a run, with the exchange of gradients of the segment's protocol.

    The threads of workers call `step`; the coordinator calls the other methods, one at a time. The
    methods that return a list of workers return those that could not be reached, and raise
    `ServerLostError` if no replica is left.
    """

    def __init__(
        self,
        cluster: Cluster,
        configuration: Configuration,
        seed: int,
        members: Callable[[], Sequence[int]],
        note: Callable[..., None] = lambda *event: None,
    ) -> None:
        self.exchange = Exchange.PUSH
        self.has_own_slots = False
        self._cluster = cluster
        self._configuration = configuration
        self._seed = seed
        self._members = members
        self._note = note
        self._second_since: int | None = None
        self._is_trial = False
        # The initial state of the replicas in a segment; None once one of them has changed.
        self._start: ModelState | None = None
        self._has_outer = False
        # The mean of the workers' own slots, as last known.
        self._slots: Vector = np.zeros(0, np.float32)

    def begin(
        self,
        exchange: Exchange,
        members: Sequence[int],
        second_since: int | None,
        done: int | None = None,
        after: AfterAverage = AfterAverage.KEPT,
        *,
        is_trial: bool = False,
    ) -> list[int]:
        """Begins a segment with these workers, after so many worker-steps; see `own_updates`.

        `after` is what becomes of the workers' optimizers when their replicas are averaged. In a
        trial replicas move as the steps of one worker do, as some jobs do not bear more.
        """
        self._is_trial = is_trial
        self.exchange, self._second_since, self._start = exchange, second_since, None
        is_push = exchange is Exchange.PUSH
        self.has_own_slots = is_push and self._configuration.is_own(second_since)
        self._cluster.replicas.clear()
        if exchange is Exchange.REPLICA:
            self._start = self._cluster.state()
            self._has_outer = after is AfterAverage.NESTEROV
            return self._cluster.broadcast(self._start, members, self._outer_state())
        if self.has_own_slots:
            with self._cluster.readable_state() as state:
                self._slots, updates = state.slots, state.updates
            are_bounded = self._configuration.bounds_steps(updates)
            updates = self._configuration.own_updates(updates, second_since, done)
            return self._cluster.broadcast_slots(
                self._slots,
                updates,
                members,
                are_bounded=are_bounded,
                most_raise=self._configuration.most_raise,
            )
        return []

    @property
    def batches(self) -> int:
        return self._configuration.batches(self._second_since)

    def prepare(self, workers: Iterable[int]) -> list[int]:
        """Prepares workers that are new, before they begin a step.

        They get the mean of the replicas; or slots with which the optimizer begins, as what others
        have gathered in theirs is about to be pushed by them.
        """
        cluster = self._cluster
        if self.exchange is not Exchange.REPLICA and not self.has_own_slots:
            return []
        newcomers = [worker for worker in workers if worker not in cluster.replicas]
        if not newcomers:
            return []
        if self.has_own_slots:
            initial = cluster.program.optimizer.initial_slots()
            most_raise = self._configuration.most_raise
            return cluster.broadcast_slots(initial, 0, newcomers, most_raise=most_raise)
        state = self._start or cluster.mean_replica(self._holders())
        return cluster.broadcast(state, newcomers, self._outer_state())

    def step(
        self,
        ticket: Ticket,
        hold: Hold = NO_HOLD,
        number: int | None = None,
        taken: Collection[int] = (),
    ) -> StepDone:
        exchange, rate, momentum = self.exchange, 0.0, 0.0
        is_slow = self._is_trial and exchange is Exchange.REPLICA
        if exchange in (Exchange.PUSH, Exchange.REPLICA):
            is_replica = exchange is Exchange.REPLICA
            # Each replica moves as far as a round does, as they are averaged.
            gradients = len(self._holders()) if is_replica else ticket.batches
            rate = self._configuration.rate(ticket.worker_step, gradients)
            momentum = self._momentum(ticket.worker_step)
            if is_replica:
                self._start = None
        if number is None:
            number = next(self._cluster.numbers)
        task = Task(
            number,
            ticket.worker_step,
            self._seed,
            exchange,
            self._configuration.rate(ticket.worker_step, 1) if is_slow else rate,
            momentum,
            hold,
            tuple(taken),
            ticket.batches,
            self._configuration.workers if self.has_own_slots else 0,
        )
        push = self._cluster.step(ticket.worker, task)
        if exchange is Exchange.REPLICA:
            replica = ReplicaStep(push.gradient_square, rate)
            return StepDone(push.loss, replica=replica, compute_seconds=push.compute_seconds)
        # An update that is applied at once is itself in the count.
        own = 1 if exchange is Exchange.PUSH else 0
        staleness = push.pushed_updates - own - push.pulled_updates
        return StepDone(push.loss, staleness, compute_seconds=push.compute_seconds)

    def join(self, group: Group, worker_step: int) -> list[int]:
        """Joins the work of a group; `worker_step` is the first of its round."""
        if self.exchange is Exchange.REPLICA:
            return self._cluster.average(group.workers, group.after)
        rate = self._configuration.rate(worker_step, len(group.workers))
        self._cluster.apply(group, rate, self._momentum(worker_step))
        return []

    def leave(self, worker: int) -> None:
        """Discards the replica, or the slots, of a worker that rests from now on."""
        self._cluster.discard(worker)

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Copies parameters and statistics (means of replicas), and these rows of embeddings."""
        if self.exchange is Exchange.REPLICA:
            return self._cluster.replica_snapshot(self._holders())
        return self._cluster.snapshot(ids)

    def finish(self) -> None:
        """Ends the segment: loads the mean of the replicas, or of own slots, onto the servers."""
        if self.exchange is Exchange.REPLICA and self._start is None:
            state = self._cluster.mean_replica(self._holders())
            try:
                self._cluster.load(state)
            except ServerLostError as error:
                # The parameter servers may have been lost unnoticed.
                start = time.perf_counter()
                self._note("lost", str(error))
                self._cluster.restart_servers()
                self._cluster.load(state)
                reason = "another parameter server has the mean of the replicas"
                self._note("rebuilt", reason, None, time.perf_counter() - start)
        if self.has_own_slots:
            self._cluster.load_slots(self._mean_slots())
        self.exchange, self.has_own_slots = Exchange.PUSH, False

    def with_own_slots(self, state: ModelState) -> ModelState:
        """Returns a copy of the state, made while workers push, with the mean of their slots."""
        if not self.has_own_slots:
            return state
        return replace(state, slots=self._mean_slots())

    def _outer_state(self) -> Vector:
        if not self._has_outer:
            return NO_OUTER
        if self._start is not None:
            return first_outer_state(self._start.parameters)
        return self._cluster.outer_state(self._holders())

    def _mean_slots(self) -> Vector:
        """Returns the mean of the workers' own slots.

        While no worker has any, as all are being replaced, it is the last mean that was asked for:
        the servers have nothing newer than the slots at the switch.
        """
        with suppress(ServerLostError):
            self._slots = self._cluster.mean_slots(self._holders())
        return self._slots

    def _momentum(self, worker_step: int) -> float:
        return self._configuration.momentum(worker_step, self._second_since)

    def _holders(self) -> list[int]:
        """Returns the members with a replica; a worker that has just come back has none."""
        return [worker for worker in self._members() if worker in self._cluster.replicas]
