"""Trains with real gradients on the virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.model.embeddings import Ids, LocalEmbeddings
from syncswitch.trainers.model.function import FlatUpdate, flat_update, trace_update
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.optimizer import MomentumSGD, Optimizer
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group, Ticket
from syncswitch.trainers.run.record import LossMean
from syncswitch.trainers.simulated.gradients import (
    Gradient,
    GradientSource,
    Pulled,
    mean_of,
    mean_vector,
)
from syncswitch.trainers.simulated.timeline import Learner


def make_update(optimizer: Optimizer, parameters: int) -> FlatUpdate:
    """The optimizer's update as a function of arrays, which it leaves unchanged."""
    if not isinstance(optimizer, MomentumSGD):
        return flat_update(trace_update(optimizer, parameters))

    def update(*state_and_gradient: Any) -> tuple[Vector, Vector]:
        # Values that diverge become infinite; the loss shows it.
        with np.errstate(over="ignore", invalid="ignore"):
            return optimizer.apply(*state_and_gradient)

    return update


class TrainingLearner(Learner):
    """Trains for real, in virtual-time order.

    An update makes new arrays, so the parameters that a worker has pulled never change. Several
    gradients are computed at once, while events that do not need them continue.
    """

    def __init__(
        self,
        source: GradientSource,
        update: FlatUpdate,
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
        # By worker: the inputs of its round, of a gradient not yet begun, and a begun gradient.
        self._pulled: dict[int, list[Pulled]] = {}
        self._waiting: dict[int, Pulled] = {}
        self._computing: dict[int, Callable[[], Gradient]] = {}
        self._in_round: dict[int, list[Pulled]] = {}
        # By worker-step.
        self._in_buffer: dict[int, Gradient] = {}

    def restore(self, state: ModelState) -> None:
        """Continues from this state, when no step is under way."""
        self.state, self.is_finite, self.loss = self._embeddings.load(state), True, LossMean()

    def readable_state(self) -> AbstractContextManager[ModelState]:
        """The current state, valid until training continues."""
        return self._embeddings.with_embeddings(self.state)

    def kept_state(self) -> ModelState:
        """A copy of the state, for `restore`."""
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
        """Current parameters and statistics (of replicas their mean), and embedding rows."""
        if not self._replicas:
            rows = self._embeddings.shard.pull(ids)
            return self.state.parameters, self.state.statistics, *rows
        return _mean_model(list(self._replicas.values()))

    @override
    def leave(self, worker: int) -> None:
        for one in (self._pulled, self._waiting, self._computing):
            one.pop(worker, None)
        replica = self._replicas.pop(worker, None)
        if replica is not None and not self._replicas:
            # For the first worker that comes back.
            self.state = replica

    @override
    def come_back(self, worker: int) -> None:
        if self._exchange is Exchange.REPLICA:
            self._replicas[worker] = self._mean_replica() if self._replicas else self.state

    @override
    def pull(self, ticket: Ticket) -> None:
        worker = ticket.worker
        state = self._replicas[worker] if self._exchange is Exchange.REPLICA else self.state
        pulled = []
        for step in ticket.worker_steps:
            ids = self._source.wanted(step, self._seed)
            rows = self._embeddings.shard.pull(ids)
            pulled.append(Pulled(step, state.parameters, state.statistics, ids, rows))
        if self._exchange is Exchange.ROUND:
            # One gradient for the whole round, once its members are known.
            self._pulled[worker] = pulled
        elif len(pulled) > 1:
            self._computing[worker] = self._source.submit_mean(pulled, self._seed)
        else:
            self._waiting[worker] = pulled[0]
            if len(self._waiting) == self._source.at_once:
                self._submit(list(self._waiting))

    @override
    def push(self, ticket: Ticket) -> None:
        worker, step = ticket.worker, ticket.worker_step
        if self._exchange is Exchange.ROUND:
            self._in_round[worker] = self._pulled.pop(worker)
            return
        if worker in self._waiting:
            # Fill the call with others that wait.
            others = [one for one in self._waiting if one != worker]
            self._submit([worker, *others][: self._source.at_once])
        gradient = self._computing.pop(worker)()
        self._count(gradient)
        if self._exchange is Exchange.BUFFER:
            self._in_buffer[step] = gradient
            return
        # A replica moves as far as a round does; see `Exchange.gradients_per_update`.
        rate = self._configuration.rate(step, len(self._replicas) or ticket.batches)
        if self._exchange is Exchange.REPLICA:
            self._replicas[worker] = self._moved(self._replicas[worker], gradient, rate, step)
        else:
            self._apply(gradient, rate, step)

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
        if self._exchange is Exchange.ROUND:
            pulled = [one for worker in group.workers for one in self._in_round.pop(worker)]
            mean = self._source.submit_mean(pulled, self._seed)()
            self._count(mean, len(group.workers))
        else:
            parts = {step: self._in_buffer.pop(step) for step in group.worker_steps}
            for step in group.stale:
                parts[step] = _without_weight(parts[step])
            mean = mean_of(list(parts.values()))
        rate = self._configuration.rate(worker_step, len(group.workers))
        self._apply(mean, rate, worker_step)

    def _count(self, gradient: Gradient, pushes: int = 1) -> None:
        self.loss.add(gradient.loss, pushes)
        self.is_finite = self.is_finite and math.isfinite(gradient.loss)

    def _apply(self, gradient: Gradient, rate: float, step: int) -> None:
        self.state = self._moved(self.state, gradient, rate, step)
        momentum = self._configuration.momentum(step, self._second_since)
        self._embeddings.shard.push([gradient.rows], rate, momentum)

    def _mean_replica(self) -> ModelState:
        replicas = list(self._replicas.values())
        parameters, statistics = _mean_model(replicas)
        slots = mean_vector([replica.slots for replica in replicas])
        updates = max(replica.updates for replica in replicas)
        return ModelState(parameters, slots, statistics, updates)

    def _moved(self, state: ModelState, gradient: Gradient, rate: float, step: int) -> ModelState:
        momentum = self._configuration.momentum(step, self._second_since)
        parameters, slots = self._update(
            state.parameters, state.slots, state.updates, gradient.values, rate, momentum
        )
        statistics = self._source.move(state.statistics, gradient.contribution)
        return ModelState(parameters, slots, statistics, state.updates + 1)

    def _submit(self, workers: Sequence[int]) -> None:
        pulled = [self._waiting.pop(worker) for worker in workers]
        call = self._source.submit(pulled, self._seed)
        for position, worker in enumerate(workers):
            self._computing[worker] = partial(lambda place: call.result()[place], position)


def _without_weight(gradient: Gradient) -> Gradient:
    """Its batch still moves the statistics."""
    rows = [one.none for one in gradient.rows]
    return replace(gradient, values=np.zeros_like(gradient.values), rows=rows)


def _mean_model(states: Sequence[ModelState]) -> tuple[Vector, Vector]:
    """Mean parameters and statistics of replicas."""
    parameters = mean_vector([state.parameters for state in states])
    return parameters, mean_vector([state.statistics for state in states])
