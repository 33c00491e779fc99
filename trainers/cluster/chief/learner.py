"""Trains on a cluster: what steps, groups and losses do to the parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from syncswitch.trainers.cluster.exchange.plans import NO_HOLD, Hold, Task
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError
from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.model.embeddings.shard import Ids
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group, Ticket


class ClusterLearner:
    """Does the steps of a run as the protocol of the segment exchanges gradients.

    Workers' threads call `step`; the rest is called by whoever hands out the steps, one call at a
    time. What reaches for workers returns those that could not be reached, and raises a
    `ServerLostError` where no replica is left.
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
        self._cluster = cluster
        self._configuration = configuration
        self._seed = seed
        self._members = members
        self._note = note
        self._second_since: int | None = None
        # With which the replicas of a segment begin; None once one of them has moved on.
        self._start: ModelState | None = None

    def begin(
        self, exchange: Exchange, members: Sequence[int], second_since: int | None
    ) -> list[int]:
        """A segment begins with these workers."""
        self.exchange, self._second_since, self._start = exchange, second_since, None
        if exchange is not Exchange.REPLICA:
            return []
        self._start = self._cluster.state()
        self._cluster.forget_replicas()
        return self._cluster.scatter(self._start, members)

    @property
    def batches(self) -> int:
        """Batches in each gradient of the segment."""
        return self._configuration.batches(self._second_since)

    def prepare(self, workers: Iterable[int]) -> list[int]:
        """Gives workers without a replica the mean of the others, before they begin a step."""
        if self.exchange is not Exchange.REPLICA:
            return []
        cluster = self._cluster
        newcomers = [worker for worker in workers if not cluster.holds_replica(worker)]
        if not newcomers:
            return []
        state = self._start or cluster.mean_replica(self._holders())
        return cluster.scatter(state, newcomers)

    def step(
        self,
        ticket: Ticket,
        hold: Hold = NO_HOLD,
        number: int | None = None,
        taken: Collection[int] = (),
    ) -> tuple[float, int | None]:
        """Does what a ticket is for; its loss and, where parameters are shared, its staleness.

        Args:
            ticket: The worker, and its worker-steps.
            hold: Slows it.
            number: Number of the task, see `Task`; by default the next one.
            taken: See `Task`.
        """
        exchange, rate, momentum = self.exchange, 0.0, 0.0
        if exchange in (Exchange.PUSH, Exchange.REPLICA):
            is_replica = exchange is Exchange.REPLICA
            # Replicas are averaged, each as far as a round moves; see `gradients_per_update`.
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
            rate,
            momentum,
            hold,
            tuple(taken),
            ticket.batches,
        )
        push = self._cluster.step(ticket.worker, task)
        if exchange is Exchange.REPLICA:
            return push.loss, None
        # An update that is applied at once counts itself.
        own = 1 if exchange is Exchange.PUSH else 0
        return push.loss, push.pushed_updates - own - push.pulled_updates

    def join(self, group: Group, worker_step: int) -> list[int]:
        """Joins the work of a group; `worker_step` is the first of their round."""
        if self.exchange is Exchange.REPLICA:
            return self._cluster.average(group.workers)
        rate = self._configuration.rate(worker_step, len(group.workers))
        momentum = self._momentum(worker_step)
        if self.exchange is Exchange.BUFFER:
            self._cluster.apply_buffer(group.worker_steps, group.stale, rate, momentum)
        else:
            self._cluster.apply_round(group.workers, rate, momentum)
        return []

    def leave(self, worker: int) -> None:
        """Discards the replica of a worker that rests from now on."""
        if self.exchange is Exchange.REPLICA:
            self._cluster.forget_replica(worker)

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Parameters and statistics as they are now (of replicas, the mean), and embedding rows."""
        if self.exchange is Exchange.REPLICA:
            return self._cluster.replica_snapshot(self._holders())
        return self._cluster.snapshot(ids)

    def finish(self) -> None:
        """The segment is over: from now on the parameter server has the mean of the replicas.

        Raises:
            ServerLostError: No replica is left.
        """
        if self.exchange is Exchange.REPLICA and self._start is None:
            self._put(self._cluster.mean_replica(self._holders()))
        self.exchange = Exchange.PUSH

    def _put(self, state: ModelState) -> None:
        """Puts a state onto the parameter server, which may have been lost unnoticed."""
        try:
            self._cluster.load(state)
        except ServerLostError as error:
            start = time.perf_counter()
            self._note("lost", str(error))
            self._cluster.restart_servers()
            self._cluster.load(state)
            reason = "another parameter server has the mean of the replicas"
            self._note("rebuilt", reason, None, time.perf_counter() - start)

    def _momentum(self, worker_step: int) -> float:
        return self._configuration.momentum(worker_step, self._second_since)

    def _holders(self) -> list[int]:
        """Members with a replica; a worker that has just come back has none."""
        return [one for one in self._members() if self._cluster.holds_replica(one)]
