"""Trains with real gradients on the virtual clock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.model.embeddings.blocks import LocalEmbeddings
from syncswitch.trainers.model.embeddings.shard import Ids, RowGradient, mean_of_rows
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.optimizer import MomentumSGD, Optimizer
from syncswitch.trainers.model.tensorflow_api import tf
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group, Ticket
from syncswitch.trainers.run.record import LossMean
from syncswitch.trainers.simulated.events import Learner
from syncswitch.trainers.simulated.gradients import Computed, GradientSource, Outstanding

Update = Callable[[ModelState, Vector, float, float], ModelState]
"""`(state, gradient, rate, momentum) -> state`; the old one stays as it was."""


def make_update(optimizer: Optimizer) -> Update:
    """An optimizer on arrays."""
    if isinstance(optimizer, MomentumSGD):
        return _momentum_update(optimizer)
    traced = tf.function(optimizer.apply, autograph=False)

    def update(state: ModelState, gradient: Vector, rate: float, momentum: float) -> ModelState:
        parameters, slots = traced(
            tf.constant(state.parameters),
            tf.constant(state.slots),
            tf.constant(state.updates, tf.int64),
            tf.constant(gradient),
            tf.constant(rate, tf.float32),
            tf.constant(momentum, tf.float32),
        )
        return _updated(state, parameters.numpy(), slots.numpy())

    return update


def _momentum_update(optimizer: MomentumSGD) -> Update:
    def update(state: ModelState, gradient: Vector, rate: float, momentum: float) -> ModelState:
        # What diverges becomes infinite, and is noticed by its loss.
        with np.errstate(over="ignore", invalid="ignore"):
            moved: tuple[Any, Any] = optimizer.apply(
                state.parameters, state.slots, None, gradient, rate, momentum
            )
        return _updated(state, *moved)

    return update


def _updated(state: ModelState, parameters: Vector, slots: Vector) -> ModelState:
    return replace(state, parameters=parameters, slots=slots, updates=state.updates + 1)


class TrainingLearner(Learner):
    """Trains for real, in the order of the virtual time.

    What a worker pulled stays as it was, as an update makes new arrays. Gradients are computed
    several at once, while the events go on that do not need them.
    """

    def __init__(
        self,
        source: GradientSource,
        update: Update,
        configuration: Configuration,
        seed: int,
        state: ModelState,
        embeddings: LocalEmbeddings,
    ) -> None:
        self._embeddings = embeddings
        self._source = source
        self._update = update
        self._configuration = configuration
        self._seed = seed
        self._exchange = Exchange.PUSH
        self._second_since: int | None = None
        self.state = embeddings.load(state)
        self.loss = LossMean()
        self.is_finite = True
        self._replicas: dict[int, ModelState] = {}
        self._tickets: dict[int, Ticket] = {}
        # By worker-step.
        self._pulls: dict[int, Outstanding] = {}
        self._waiting: list[int] = []
        self._submitted: dict[int, tuple[Future[list[Computed]], int]] = {}
        # By worker for a round, by worker-step for a buffer.
        self._unjoined: dict[int, Computed] = {}

    def restore(self, state: ModelState) -> None:
        """Goes on with this state; nobody is at a step."""
        self.state, self.is_finite, self.loss = self._embeddings.load(state), True, LossMean()

    def readable_state(self) -> AbstractContextManager[ModelState]:
        """The state, to be read before the training goes on."""
        return self._embeddings.with_embeddings(self.state)

    def kept_state(self) -> ModelState:
        """The state, to go on with later."""
        return self._embeddings.kept(self.state)

    @override
    def batches(self, second_since: int | None) -> int:
        return self._configuration.batches(second_since)

    @override
    def begin(self, exchange: Exchange, members: Sequence[int], second_since: int | None) -> None:
        self._exchange, self._second_since = exchange, second_since
        is_replica = exchange is Exchange.REPLICA
        self._replicas = dict.fromkeys(members, self.state) if is_replica else {}

    @override
    def finish(self) -> None:
        if self._replicas:
            self.state = self._mean_replica()

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Parameters and statistics as they are now (of replicas, the mean), and embedding rows."""
        if not self._replicas:
            rows = self._embeddings.shard.pull(ids)
            return self.state.parameters, self.state.statistics, *rows
        return _mean_model(list(self._replicas.values()))

    @override
    def leave(self, worker: int) -> None:
        ticket = self._tickets.pop(worker, None)
        for step in () if ticket is None else ticket.worker_steps:
            del self._pulls[step]
            if step in self._waiting:
                self._waiting.remove(step)
            self._submitted.pop(step, None)
        replica = self._replicas.pop(worker, None)
        if replica is not None and not self._replicas:
            # Somebody has to know what was learnt when the first one is back.
            self.state = replica

    @override
    def come_back(self, worker: int) -> None:
        if self._exchange is Exchange.REPLICA:
            self._replicas[worker] = self._mean_replica() if self._replicas else self.state

    @override
    def pull(self, ticket: Ticket) -> None:
        is_replica = self._exchange is Exchange.REPLICA
        state = self._replicas[ticket.worker] if is_replica else self.state
        self._tickets[ticket.worker] = ticket
        for step in ticket.worker_steps:
            ids = self._source.wanted(step, self._seed)
            rows = self._embeddings.shard.pull(ids)
            self._pulls[step] = Outstanding(step, state.parameters, state.statistics, ids, rows)
            self._waiting.append(step)
            if len(self._waiting) == self._source.at_once:
                self._submit(list(self._waiting))

    @override
    def push(self, ticket: Ticket) -> None:
        worker, step = ticket.worker, ticket.worker_step
        computed = _mean_of([self._computed(one) for one in ticket.worker_steps])
        del self._tickets[worker]
        self.loss.add(computed.loss)
        self.is_finite = self.is_finite and math.isfinite(computed.loss)
        if self._exchange is Exchange.ROUND:
            self._unjoined[worker] = computed
            return
        if self._exchange is Exchange.BUFFER:
            self._unjoined[step] = computed
            return
        # Replicas are averaged, each as far as a round moves; see `gradients_per_update`.
        rate = self._configuration.rate(step, len(self._replicas) or ticket.batches)
        if self._exchange is Exchange.REPLICA:
            self._replicas[worker] = self._moved(self._replicas[worker], computed, rate, step)
        else:
            self.state = self._moved(self.state, computed, rate, step)
            self._push_rows([computed.rows], rate, step)

    @override
    def join(self, group: Group, worker_step: int) -> None:
        if self._exchange is Exchange.REPLICA:
            replicas = [self._replicas[worker] for worker in group.workers]
            parameters, statistics = _mean_model(replicas)
            for worker in group.workers:
                self._replicas[worker] = replace(
                    self._replicas[worker], parameters=parameters, statistics=statistics
                )
            return
        parts = [self._unjoined.pop(one) for one in group.worker_steps or group.workers]
        gradients = [
            np.zeros_like(part.gradient) if step in group.stale else part.gradient
            for part, step in itertools.zip_longest(parts, group.worker_steps)
        ]
        mean_of_round = Computed(
            0.0,
            _mean(gradients),
            _mean([part.contribution for part in parts]),
        )
        rate = self._configuration.rate(worker_step, len(parts))
        self.state = self._moved(self.state, mean_of_round, rate, worker_step)
        rows = [
            [one.none for one in part.rows] if step in group.stale else part.rows
            for part, step in itertools.zip_longest(parts, group.worker_steps)
        ]
        self._push_rows(rows, rate, worker_step)

    def _push_rows(self, rows: Sequence[Sequence[RowGradient]], rate: float, step: int) -> None:
        momentum = self._configuration.momentum(step, self._second_since)
        self._embeddings.shard.push(rows, rate, momentum)

    def _mean_replica(self) -> ModelState:
        replicas = list(self._replicas.values())
        parameters, statistics = _mean_model(replicas)
        slots = _mean([replica.slots for replica in replicas])
        updates = max(replica.updates for replica in replicas)
        return ModelState(parameters, slots, statistics, updates)

    def _moved(self, state: ModelState, computed: Computed, rate: float, step: int) -> ModelState:
        momentum = self._configuration.momentum(step, self._second_since)
        moved = self._update(state, computed.gradient, rate, momentum)
        statistics = self._source.move(state.statistics, computed.contribution)
        return replace(moved, statistics=statistics)

    def _submit(self, steps: Sequence[int]) -> None:
        future = self._source.submit([self._pulls[one] for one in steps], self._seed)
        for position, step in enumerate(steps):
            self._waiting.remove(step)
            self._submitted[step] = future, position

    def _computed(self, step: int) -> Computed:
        """The gradient of a worker-step; what is not yet being computed is taken along."""
        if step not in self._submitted:
            others = [one for one in self._waiting if one != step]
            self._submit([step, *others][: self._source.at_once])
        future, position = self._submitted.pop(step)
        del self._pulls[step]
        return future.result()[position]


def _mean_of(parts: Sequence[Computed]) -> Computed:
    """The mean of what batches give at the same parameters; of a single one itself."""
    if len(parts) == 1:
        return parts[0]
    return Computed(
        sum(part.loss for part in parts) / len(parts),
        _mean([part.gradient for part in parts]),
        _mean([part.contribution for part in parts]),
        [mean_of_rows(rows) for rows in zip(*(part.rows for part in parts), strict=True)],
    )


def _mean_model(states: Sequence[ModelState]) -> tuple[Vector, Vector]:
    """Mean parameters and statistics; slots stay each worker's own."""
    parameters = _mean([state.parameters for state in states])
    return parameters, _mean([state.statistics for state in states])


def _mean(vectors: Sequence[Vector]) -> Vector:
    mean: Vector = np.mean(vectors, axis=0, dtype=np.float32)
    return mean
