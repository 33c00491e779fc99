"""Parameter servers and workers as the chief sees them."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from syncswitch.storage.errors import FatalError, WorkloadError
from syncswitch.trainers.cluster.exchange.handshake import Part
from syncswitch.trainers.cluster.exchange.parameter_server import FencedError, ParameterServer
from syncswitch.trainers.cluster.exchange.plans import Push, StepError, Task
from syncswitch.trainers.cluster.exchange.remote import (
    Call,
    LostError,
    Remote,
    RemotePeer,
    call_all,
)
from syncswitch.trainers.cluster.exchange.shards import Undone, joined
from syncswitch.trainers.cluster.exchange.vectors import mean_of
from syncswitch.trainers.cluster.exchange.worker import Worker
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.model.embeddings.blocks import EmbeddingServers, kept_embeddings
from syncswitch.trainers.model.embeddings.shard import Ids, ids_for, rows_of
from syncswitch.trainers.model.layout import ModelState, Vector


class ServerLostError(Exception):
    """A parameter server is gone, and with it all that was trained since the last copy."""


class WorkerLostError(Exception):
    """A worker is gone, or cannot reach a parameter server."""


class Cluster(ABC):
    """Moves the numbers of one run after the other.

    Each call to the parameter servers goes to all of them at the same time. Pushes reach one after
    the other, so while workers push, what one has taken in another may not have yet.

    Args:
        program: The computations of workers and parameter servers.
        workers: Number of workers.
        servers: Number of parameter servers that share the state.

    Attributes:
        kind: What can be disturbed there on purpose, as `check_injections` calls it.
        has_processes: Whether its parts can be lost, stopped and disturbed one by one.
        numbers: Numbers for tasks, each of them used once; see `Task`.
        members: The workers; None for one that is gone.
        servers: The parameter servers: over wires, or a single one in this process.
        embeddings: The embeddings on them.
    """

    kind: str
    has_processes: bool
    servers: Sequence[ParameterServer | Remote]
    embeddings: EmbeddingServers

    def __init__(self, program: Program, workers: int, servers: int = 1) -> None:
        self.program = program
        self.numbers = itertools.count()
        self.members: list[Worker | None] = [None] * workers
        self._shards = program.shards(servers)
        # Updates of each worker's replica; none for a worker without one.
        self._replicas: dict[int, int] = {}
        self._committing = threading.Lock()
        self._pool = ThreadPoolExecutor(max(2, workers), thread_name_prefix="members")

    # The state on the parameter servers

    def load(self, state: ModelState, undone: Undone = MappingProxyType({})) -> None:
        """Puts a state onto the parameter servers.

        Args:
            state: The new state.
            undone: The worker-steps by which some servers are ahead of others in it.
        """
        count, dense = len(self.servers), replace(state, embeddings=None)
        ahead = [sum(number in taken for taken in undone.values()) for number in range(count)]
        parts = [
            replace(shard.of(dense), updates=state.updates + own - ahead[0])
            for shard, own in zip(self._shards, ahead, strict=True)
        ]
        self._call_servers("load", [(part,) for part in parts])
        if state.embeddings is not None:
            self.embeddings.load(state.embeddings)

    def state(self) -> ModelState:
        """A copy of the state."""
        self.mark()
        return self.marked()

    def mark(self) -> list[tuple[int, ...]]:
        """Remembers the state as it is now, for `marked`.

        Returns:
            For each worker the numbers of its last task that each server has taken in.
        """
        return list(zip(*self._call_servers("mark"), strict=True))

    def marked(self) -> ModelState:
        """The state at the last `mark`; may take a while, in which the training goes on.

        Raises:
            NoRoomForEmbeddingsError: There is no place for a copy of the embeddings.
        """
        with self._marked() as state:
            if state.embeddings is None:
                return state
            return replace(state, embeddings=kept_embeddings(state.embeddings))

    @contextmanager
    def readable_state(self) -> Iterator[ModelState]:
        """The state, whose embeddings are read from the servers before the training goes on."""
        self.mark()
        with self._marked() as state:
            yield state

    @contextmanager
    def _marked(self) -> Iterator[ModelState]:
        """The state at the last `mark`; its embeddings can be read meanwhile."""
        state = joined(self._call_servers("marked"), self._shards, self.program.sizes)
        if not self.program.form.forms:
            yield state
            return
        try:
            yield replace(state, embeddings=self.embeddings)
        finally:
            self.embeddings.end_read()

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Copies of parameters and statistics, and of these rows of embeddings.

        No later update is in them; while workers push, the parts of several parameter servers may
        be an update apart.
        """
        asked = ids_for(ids, len(self.servers))
        found = self._call_servers("snapshot", [(own,) for own in asked])
        rows = rows_of(ids, [own for _, _, *own in found])
        if len(found) == 1:
            return found[0][0], found[0][1], *rows
        parts = zip(*((one[0], one[1]) for one in found), strict=True)
        parameters, statistics = (np.concatenate(part) for part in parts)
        return parameters, statistics, *rows

    def step(self, worker: int, task: Task) -> Push:
        """Has a worker do a step; returns when that is done.

        Raises:
            WorkerLostError: The worker is gone; whether the step was taken in is not known.
            WorkloadError: The step cannot be computed.
        """
        try:
            push = self._member(worker).step(task)
        except (LostError, FencedError) as error:
            raise WorkerLostError(str(error)) from error
        except StepError as error:
            raise WorkloadError(
                f"workload {self.program.name!r}: a worker-step fails: {error}"
            ) from error
        if worker in self._replicas:
            self._replicas[worker] += 1
        return push

    def apply_round(self, workers: Sequence[int], rate: float, momentum: float) -> None:
        """Applies the mean of what these workers have pushed, in this order, as one update."""
        self._call_servers("apply_round", [(workers, rate, momentum)] * len(self.servers))

    def apply_buffer(
        self, worker_steps: Sequence[int], stale: Sequence[int], rate: float, momentum: float
    ) -> None:
        """Applies the mean of these gradients of the buffer, in this order, as one update."""
        arguments = (worker_steps, stale, rate, momentum)
        self._call_servers("apply_buffer", [arguments] * len(self.servers))

    def _call_servers(
        self, method: str, arguments: Sequence[tuple[Any, ...]] | None = None
    ) -> list[Any]:
        each = arguments or [()] * len(self.servers)
        calls, found = [], []
        for server, own in zip(self.servers, each, strict=True):
            if isinstance(server, Remote):
                calls.append(Call(server, method, own))
            else:
                found.append(getattr(server, method)(*own))
        return call_all(calls) if calls else found

    # Replicas, which lie on the workers

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
        """Gives these workers a copy of `state`; returns those that could not be reached."""
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
        """Has each of these workers get the mean of all of them; returns those that failed."""
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
        """Has all these workers do something at the same time; returns those that could not."""

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
        """The worker, or the connection, that gives pieces of its replica, even during a step."""
        return self._member(worker)

    def _found_by(self, worker: int) -> Any:
        """By what others in its group find a worker."""
        return self._member(worker)

    # Parts that are lost

    def fence(self, worker: int) -> tuple[int, ...]:
        """From now on nothing counts that comes from the process that was this worker.

        Returns:
            The numbers of its last task that each parameter server has taken in.

        Raises:
            ServerLostError: A parameter server does not answer either.
        """
        found = self._call_servers("fence", [(worker,)] * len(self.servers))
        incarnations, pushed = zip(*found, strict=True)
        self.forget_replica(worker)
        self._give_up(worker, incarnations[0])
        return pushed

    @abstractmethod
    def _give_up(self, worker: int, incarnation: int) -> None:
        """Gives up a worker; whoever takes its place is this incarnation of it."""

    @abstractmethod
    def revive(self, worker: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Replaces a lost worker, after `fence`.

        Args:
            worker: The worker to replace.
            is_wanted: Whether to go on waiting for it; asked now and then.

        Raises:
            RetryableError: It does not come back.
        """

    @abstractmethod
    def restart_servers(self) -> None:
        """Replaces the parameter servers, all of them; the state is to be loaded."""

    @abstractmethod
    def renew(self) -> None:
        """Replaces all parts; the state is to be loaded."""

    @abstractmethod
    def repair(self) -> None:
        """Replaces what was lost since the run before."""

    def look_after(self) -> None:  # noqa: B027 (threads do not hang)
        """Gives up on parts that hang; called again and again."""

    def signal(self, part: Part, number: int) -> None:
        """Sends a signal to the process of a part."""
        raise FatalError(f"{part[0]} {part[1]} is no process of its own")

    @abstractmethod
    def close(self) -> None:
        """Ends the cluster; may be called twice."""
