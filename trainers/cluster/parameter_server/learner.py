"""Trains on a cluster: what steps, groups and losses do to the parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from syncswitch.trainers.cluster.parameter_server.program import HoldUp, Program
from syncswitch.trainers.cluster.parameter_server.recovery import ServerLostError
from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.model.state import ModelState
from syncswitch.trainers.model.tensorflow_api import tf
from syncswitch.trainers.protocols import Exchange

_Read = TypeVar("_Read")


class ClusterLearner:
    """Does the steps of a run as the protocol of the segment exchanges gradients.

    Workers' threads call `step`; the rest is called by whoever hands out the steps, one call at a
    time.
    """

    def __init__(
        self,
        program: Program,
        configuration: Configuration,
        seed: int,
        members: Callable[[], Sequence[int]],
    ) -> None:
        self.exchange = Exchange.PUSH
        self._program = program
        self._configuration = configuration
        self._seed = seed
        self._members = members
        self._second_since: int | None = None
        # With which the replicas of a segment begin; None once one of them has moved on.
        self._start: ModelState | None = None

    def begin(
        self, exchange: Exchange, members: Sequence[int], second_since: int | None
    ) -> list[int]:
        """A segment begins with these workers.

        Returns:
            Those that could not be reached.
        """
        self.exchange, self._second_since, self._start = exchange, second_since, None
        if exchange is not Exchange.REPLICA:
            return []
        self._start = self._program.state()
        self._program.replicas.forget_all()
        return self._program.replicas.scatter(self._start, members)

    def prepare(self, workers: Iterable[int]) -> list[int]:
        """Gives workers without a replica the mean of the others, before they begin a step.

        Returns:
            Those that could not be reached.

        Raises:
            ServerLostError: No replica is left.
        """
        if self.exchange is not Exchange.REPLICA:
            return []
        replicas = self._program.replicas
        newcomers = [worker for worker in workers if not replicas.holds(worker)]
        if not newcomers:
            return []
        state = self._start or self._read(replicas.mean)
        return replicas.scatter(state, newcomers)

    def step(
        self, worker: int, worker_step: int, hold_up: HoldUp | None = None
    ) -> tuple[float, int | None]:
        """One worker-step; its loss and, where parameters are shared, its staleness.

        Args:
            worker: Whose.
            worker_step: Which.
            hold_up: Blocks the worker before anybody learns of its gradient.
        """
        program, seed = self._program, self._seed
        if self.exchange is Exchange.ROUND:
            push = program.push_gradient(worker, worker_step, seed, hold_up)
            return push.loss, push.pushed_updates - push.pulled_updates
        momentum = self._momentum(worker_step)
        if self.exchange is Exchange.REPLICA:
            rate = self._rate(worker_step, len(self._holders()))
            self._start = None
            start = time.perf_counter()
            loss = program.replicas.step(worker, worker_step, seed, rate, momentum)
            if hold_up is not None:
                hold_up(time.perf_counter() - start)
            return loss, None
        rate = self._rate(worker_step, 1)
        push = program.push_update(worker, worker_step, seed, rate, momentum, hold_up)
        return push.loss, push.pushed_updates - 1 - push.pulled_updates

    def join(self, workers: Sequence[int], worker_step: int) -> list[int]:
        """Joins the work of a group; `worker_step` is the first of their round.

        Returns:
            Those that could not be reached.
        """
        if self.exchange is Exchange.REPLICA:
            return self._program.replicas.average(workers)
        rate = self._configuration.rate(worker_step, len(workers))
        self._program.apply_round(workers, rate, self._momentum(worker_step))
        return []

    def leave(self, worker: int) -> None:
        """Discards the replica of a worker that rests from now on."""
        if self.exchange is Exchange.REPLICA:
            self._program.replicas.forget(worker)

    def snapshot(self) -> tuple[Any, Any]:
        """Parameters and statistics as they are now; of replicas the mean.

        Raises:
            ServerLostError: No replica is left.
        """
        if self.exchange is Exchange.REPLICA:
            return self._read(self._program.replicas.snapshot)
        return self._program.snapshot()

    def finish(self) -> None:
        """The segment is over: from now on the parameter server has the mean of the replicas.

        Raises:
            ServerLostError: No replica is left.
        """
        if self.exchange is Exchange.REPLICA and self._start is None:
            self._program.load(self._read(self._program.replicas.mean))
        self.exchange = Exchange.PUSH

    def _rate(self, worker_step: int, workers: int) -> float:
        return self._configuration.rate(worker_step, self.exchange.gradients_per_update(workers))

    def _momentum(self, worker_step: int) -> float:
        return self._configuration.momentum(worker_step, self._second_since)

    def _holders(self) -> list[int]:
        """Members with a replica; a worker that has just come back has none."""
        return [one for one in self._members() if self._program.replicas.holds(one)]

    def _read(self, read: Callable[[list[int]], _Read]) -> _Read:
        try:
            return read(self._holders())
        except tf.errors.OpError as error:
            raise ServerLostError("all replicas are lost") from error
