"""Copies of the state that workers train each for itself, and that are averaged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from syncswitch.trainers.cluster.exchange.remote import LostError
from syncswitch.trainers.cluster.exchange.update import mean_of
from syncswitch.trainers.cluster.exchange.worker import Worker
from syncswitch.trainers.cluster.exchange.worker_part import RemotePeer
from syncswitch.trainers.cluster.members.lost import ServerLostError
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.model.layout import ModelState, Vector


class Replicas:
    """Workers, and the replicas that some of them hold.

    Args:
        program: What is computed.
        workers: n.

    Attributes:
        members: The workers; None for one that is gone.
    """

    def __init__(self, program: Program, workers: int) -> None:
        self.program = program
        self.members: list[Worker | None] = [None] * workers
        # Updates of each worker's replica; none for a worker without one.
        self._replicas: dict[int, int] = {}
        self._committing = threading.Lock()
        self._pool = ThreadPoolExecutor(max(2, workers), thread_name_prefix="members")

    def holds_replica(self, worker: int) -> bool:
        """Whether a worker has a replica, which `scatter` gave it."""
        return worker in self._replicas

    def forget_replica(self, worker: int) -> None:
        """Discards the replica of a worker."""
        self._replicas.pop(worker, None)

    def forget_replicas(self) -> None:
        """Discards all replicas."""
        self._replicas.clear()

    def scatter(self, state: ModelState, workers: Iterable[int]) -> list[int]:
        """Gives these workers a copy of `state`; those that could not be reached."""
        workers = list(workers)
        lost = self._each(workers, lambda _, worker: self._member(worker).take(state))
        self._replicas |= dict.fromkeys(set(workers) - set(lost), state.updates)
        return lost

    def average(self, workers: Sequence[int]) -> list[int]:
        """Gives these workers the mean of their parameters and statistics; slots stay local.

        They exchange pieces among themselves. A replica changes only when all have the whole mean,
        so that the others begin again where one is lost.

        Returns:
            Those that could not be reached, which have no part in it.
        """
        left, lost = list(workers), list[int]()
        while len(left) > 1:
            gone = self._exchange_means(left)
            if not gone:
                # Nobody reads some of them before and some after.
                with self._committing:
                    return lost + self._each(left, lambda _, worker: self._member(worker).commit())
            # Who could not be reached, or could not reach them: ask each.
            gone = self._each(left, lambda _, one: self._peer(one).fetch("model", 0, 0)) or gone
            lost += gone
            left = [worker for worker in left if worker not in gone]
        return lost

    def _exchange_means(self, workers: Sequence[int]) -> list[int]:
        """Has each of these workers get the mean of all of them; those that failed."""
        if gone := [worker for worker in workers if self.members[worker] is None]:
            return gone
        group = [self._found_by(worker) for worker in workers]
        return self._each(
            workers, lambda place, worker: self._member(worker).reduce(place, group)
        ) or self._each(workers, lambda place, worker: self._member(worker).gather(place, group))

    def mean_replica(self, workers: Iterable[int]) -> ModelState:
        """The mean of these replicas, slots included; the workers keep what they have.

        Raises:
            ServerLostError: None of them could be reached.
        """
        sizes = self.program.sizes
        found = self._fetched(workers, ("model", sizes.model), ("slots", sizes.slots))
        model, slots = (mean_of(vectors) for vectors in zip(*found.values(), strict=True))
        parameters, statistics = np.split(model, [sizes.parameters])
        return ModelState(
            parameters, slots, statistics, max(self._replicas[worker] for worker in found)
        )

    def replica_snapshot(self, workers: Iterable[int]) -> tuple[Vector, Vector]:
        """Mean parameters and statistics; see `mean_replica`.

        A replica may be a step ahead of another.
        """
        sizes = self.program.sizes
        found = self._fetched(workers, ("model", sizes.model))
        model = mean_of([one for (one,) in found.values()])
        return model[: sizes.parameters], model[sizes.parameters :]

    def _fetched(
        self, workers: Iterable[int], *wanted: tuple[str, int]
    ) -> dict[int, tuple[Vector, ...]]:
        found: dict[int, tuple[Vector, ...]] = {}
        with self._committing:
            for worker in workers:
                try:
                    peer = self._peer(worker)
                    found[worker] = tuple(peer.fetch(what, 0, size) for what, size in wanted)
                except LostError:
                    continue
        if not found:
            raise ServerLostError("all replicas are lost")
        return found

    def _each(self, workers: Sequence[int], do: Callable[[int, int], object]) -> list[int]:
        """Has all these workers do something at the same time; those that could not."""

        def attempt(position: int) -> bool:
            try:
                do(position, workers[position])
            except LostError:
                return False
            return True

        done = list(self._pool.map(attempt, range(len(workers))))
        return [worker for worker, is_done in zip(workers, done, strict=True) if not is_done]

    def _member(self, worker: int) -> Worker:
        member = self.members[worker]
        if member is None:
            raise LostError(f"worker {worker} is gone")
        return member

    def _peer(self, worker: int) -> Worker | RemotePeer:
        """Of whom pieces of a replica can be had, also while it does a step."""
        return self._member(worker)

    def _found_by(self, worker: int) -> Any:
        """By what others in its group find a worker."""
        return self._member(worker)
