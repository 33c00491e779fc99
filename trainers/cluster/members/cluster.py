"""A cluster as its chief sees it: parameter servers and workers; and one inside this process."""

from __future__ import annotations

import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import FatalError, WorkloadError
from syncswitch.trainers.cluster.exchange.parameter_server import FencedError, ParameterServer
from syncswitch.trainers.cluster.exchange.plans import Caller, Push, StepError, Task
from syncswitch.trainers.cluster.exchange.remote import (
    Call,
    LostError,
    Piece,
    Remote,
    RemoteError,
    RemotePeer,
    RemoteWorker,
    call_all,
)
from syncswitch.trainers.cluster.exchange.security import Part
from syncswitch.trainers.cluster.exchange.shards import Undone, joined
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.cluster.exchange.worker import Worker
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.model.embeddings import (
    EmbeddingServers,
    Ids,
    ids_for,
    kept_embeddings,
    rows_of,
)
from syncswitch.trainers.model.feed import Feed, HeldFeed, feed_of
from syncswitch.trainers.model.function import EmbeddingSteps
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.tensorflow_api import for_threads
from syncswitch.trainers.model.updates import NO_OUTER, mean_of
from syncswitch.trainers.protocols import AfterAverage
from syncswitch.trainers.protocols.steps import Group


class ServerLostError(Exception):
    """A parameter server is gone, and with it all training since the last copy."""


class WorkerLostError(Exception):
    """A worker is gone, or cannot reach a parameter server."""


def _all_lost() -> ServerLostError:
    return ServerLostError("all replicas are lost")


class Cluster(ABC):
    """A cluster that makes one run after the other.

    Each call to the parameter servers goes to all of them at the same time. They receive pushes
    independently: while workers push, one may have a gradient that another does not have yet. What
    asks workers for means raises ServerLostError if none of them can be reached.

    Attributes:
        kind: The kind of launcher, by which `check_injections` knows what can be disturbed.
        has_processes: Whether its parts are processes, which can be killed and stopped one by one.
        numbers: The task numbers, each used once; see `Task`.
        members: The workers; None for one that is gone.
        servers: The parameter servers: over wires, or a single one in this process.
        replicas: The number of updates in each worker's replica, or in slots of its own.
    """

    kind: str
    has_processes: bool
    servers: Sequence[ParameterServer | Remote]
    embeddings: EmbeddingServers

    def __init__(self, program: Program, workers: int, servers: int = 1) -> None:
        self.program = program
        self.numbers = itertools.count()
        self.members: list[Worker | RemoteWorker | None] = [None] * workers
        self._shards = program.shards(servers)
        self.replicas: dict[int, int] = {}
        self._committing = threading.Lock()
        self._counting = threading.Lock()
        self._pool = ThreadPoolExecutor(max(2, workers), thread_name_prefix="members")

    # The state on the parameter servers

    def load(self, state: ModelState, undone: Undone = MappingProxyType({})) -> None:
        """Puts a state onto the parameter servers.

        `undone` are the worker-steps that only some of the servers have in it.
        """
        count, dense = len(self.servers), replace(state, embeddings=None)
        ahead = [sum(number in taken for taken in undone.values()) for number in range(count)]
        states = [
            (replace(shard.of(dense), updates=state.updates + own - ahead[0]),)
            for shard, own in zip(self._shards, ahead, strict=True)
        ]
        self._call_servers("load", states)
        if state.embeddings is not None:
            self.embeddings.load(state.embeddings)

    def state(self) -> ModelState:
        self.mark()
        return self.marked()

    def mark(self) -> list[tuple[int, ...]]:
        """Marks the current state, for `marked`.

        Returns, for each worker, the number of its last task that each server has received.
        """
        return list(zip(*self._call_servers("mark"), strict=True))

    def marked(self) -> ModelState:
        """Copies the state at the last `mark`, while the training goes on.

        Raises NoRoomForEmbeddingsError if there is no room for a copy of the embeddings.
        """
        with self._marked() as state:
            if state.embeddings is None:
                return state
            return replace(state, embeddings=kept_embeddings(state.embeddings))

    @contextmanager
    def readable_state(self) -> Iterator[ModelState]:
        """Yields the state; its embeddings can be read from the servers inside the context."""
        self.mark()
        with self._marked() as state:
            yield state

    @contextmanager
    def _marked(self) -> Iterator[ModelState]:
        """Yields the state at the last `mark`; see `readable_state`."""
        state = joined(self._call_servers("marked"), self._shards, self.program.sizes)
        if not self.program.checkpoints.layouts:
            yield state
            return
        try:
            yield replace(state, embeddings=self.embeddings)
        finally:
            self.embeddings.end_read()

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Copies parameters and statistics, and these rows of embeddings.

        While workers push, the pieces of several parameter servers may be an update apart.
        """
        wanted = [(own,) for own in ids_for(ids, len(self.servers))]
        snapshots = self._call_servers("snapshot", wanted)
        rows = rows_of(ids, [own for _, _, *own in snapshots])
        if len(snapshots) == 1:
            return *snapshots[0][:2], *rows
        parameters, statistics = zip(*(snapshot[:2] for snapshot in snapshots), strict=True)
        return np.concatenate(parameters), np.concatenate(statistics), *rows

    def step(self, worker: int, task: Task) -> Push:
        """Has a worker do a task, and waits for it.

        Raises:
            WorkerLostError: The worker is gone; whether its gradient was received is not known.
            WorkloadError: The step cannot be computed.
        """
        try:
            push = self._member(worker).step(task)
        except (LostError, FencedError) as error:
            raise WorkerLostError(str(error)) from error
        except StepError as error:
            raise WorkloadError(
                f"workload {self.program.workload.name!r}: a worker-step fails: {error}"
            ) from error
        with self._counting:
            if worker in self.replicas:
                self.replicas[worker] += 1
        return push

    def apply(self, group: Group, rate: float, momentum: float) -> None:
        self._call_servers("apply", [(group, rate, momentum)] * len(self.servers))

    def _call_servers(
        self, method: str, arguments: Sequence[tuple[Any, ...]] | None = None
    ) -> list[Any]:
        each = arguments or [()] * len(self.servers)
        calls, results = [], []
        for server, own in zip(self.servers, each, strict=True):
            if isinstance(server, Remote):
                calls.append(Call(server, method, own))
            else:
                results.append(getattr(server, method)(*own))
        return call_all(calls) if calls else results

    # Replicas, which are on the workers

    def broadcast(
        self, state: ModelState, workers: Iterable[int], outer: Vector = NO_OUTER
    ) -> list[int]:
        """Copies a state to these workers; returns those that could not be reached.

        `outer` is the outer state, see `outer_step`; empty without outer steps.
        """
        workers = list(workers)
        lost = self._each(workers, lambda _, worker: self._member(worker).take(state, outer))
        self.replicas |= dict.fromkeys(set(workers) - set(lost), state.updates)
        return lost

    def broadcast_slots(
        self,
        slots: Vector,
        updates: int,
        workers: Iterable[int],
        *,
        are_bounded: bool = False,
        most_raise: float = 1.0,
    ) -> list[int]:
        """Has these workers begin with slots of their own; see `broadcast` and `OwnSlots`."""
        workers, given = list(workers), (slots, updates, are_bounded, most_raise)
        lost = self._each(workers, lambda _, worker: self._member(worker).take_slots(*given))
        self.replicas |= dict.fromkeys(set(workers) - set(lost), updates)
        return lost

    def discard(self, worker: int) -> None:
        """Forgets the replica of a worker, or its slots; it may be in a step."""
        with self._counting:
            self.replicas.pop(worker, None)

    def mean_slots(self, workers: Iterable[int]) -> Vector:
        """Returns the mean of these workers' slots; some may be a step ahead."""
        total, count = np.zeros(0, np.float32), 0
        # One after the other: those of all workers together may be more than fits into memory.
        for _, (slots,) in self._each_fetched(workers, ("slots", self.program.sizes.slots)):
            with np.errstate(over="ignore", invalid="ignore"):
                total = total + slots if count else slots
            count += 1
        if not count:
            raise _all_lost()
        return total / np.float32(count)

    def load_slots(self, slots: Vector) -> None:
        empty = np.zeros(0, np.float32)
        state = ModelState(empty, slots, empty)
        self._call_servers("load_slots", [(shard.of(state).slots,) for shard in self._shards])

    def average(self, workers: Sequence[int], after: AfterAverage = AfterAverage.KEPT) -> list[int]:
        """Replaces these workers' parameters and statistics by their means.

        They exchange pieces among themselves. Replicas change only when all workers have the whole
        mean, so that the others can begin again if one is lost. Returns the workers that could not
        be reached; they are left out of the mean.
        """
        left, lost = list(workers), list[int]()
        while len(left) > 1:
            gone = self._exchange_means(left, after)
            if not gone:
                # Nobody may read some replicas before and others after the commit.
                with self._committing:
                    if after is AfterAverage.ZEROED:
                        self.replicas |= dict.fromkeys(left, 0)
                    return lost + self._each(
                        left, lambda _, worker: self._member(worker).commit(after)
                    )
            # Those that failed may only have been unable to reach another: ask each.
            gone = self._each(left, lambda _, one: self._peer(one).fetch("model", 0, 0)) or gone
            lost += gone
            left = [worker for worker in left if worker not in gone]
        return lost

    def _exchange_means(self, workers: Sequence[int], after: AfterAverage) -> list[int]:
        """Has each worker compute and fetch the mean of all; returns those that failed."""
        if gone := [worker for worker in workers if self.members[worker] is None]:
            return gone
        group = [self._found_by(worker) for worker in workers]
        return self._each(
            workers, lambda place, worker: self._member(worker).reduce(place, group, after)
        ) or self._each(
            workers, lambda place, worker: self._member(worker).gather(place, group, after)
        )

    def outer_state(self, workers: Iterable[int]) -> Vector:
        """Returns the outer state of these workers, which is the same on all; see `outer_step`."""
        found = self._each_fetched(workers, ("outer", 2 * self.program.sizes.parameters))
        for _, (outer,) in found:
            return outer
        raise _all_lost()

    def mean_replica(self, workers: Iterable[int]) -> ModelState:
        """Returns the mean of these replicas, slots included, with the highest update count."""
        sizes = self.program.sizes
        replicas = self._fetched(workers, ("model", sizes.model), ("slots", sizes.slots))
        model, slots = (mean_of(vectors) for vectors in zip(*replicas.values(), strict=True))
        parameters, statistics = np.split(model, [sizes.parameters])
        if self.program.project is not None:
            self.program.project(parameters)
        updates = max(self.replicas[worker] for worker in replicas)
        return ModelState(parameters, slots, statistics, updates)

    def replica_snapshot(self, workers: Iterable[int]) -> tuple[Vector, Vector]:
        """Returns the mean parameters and statistics of replicas; some may be a step ahead."""
        sizes, program = self.program.sizes, self.program
        averages: list[tuple[Piece, int]] = []
        if program.optimizer.has_averages:
            averages = [("slots", sizes.parameters)]
        replicas = self._fetched(workers, ("model", sizes.model), *averages)
        model, *of_averages = (mean_of(vectors) for vectors in zip(*replicas.values(), strict=True))
        parameters, statistics = np.split(model, [sizes.parameters])
        if any(map(self.replicas.__getitem__, replicas)) and of_averages:
            parameters = of_averages[0]
        elif program.project is not None:
            program.project(parameters)
        return parameters, statistics

    def _fetched(
        self, workers: Iterable[int], *wanted: tuple[Piece, int]
    ) -> dict[int, tuple[Vector, ...]]:
        vectors = dict(self._each_fetched(workers, *wanted))
        if not vectors:
            raise _all_lost()
        return vectors

    def _each_fetched(
        self, workers: Iterable[int], *wanted: tuple[Piece, int]
    ) -> Iterator[tuple[int, tuple[Vector, ...]]]:
        """Yields these vectors of each worker that can be reached and has them."""
        with self._committing:
            for worker in workers:
                try:
                    peer = self._peer(worker)
                    pieces = tuple(peer.fetch(what, 0, size) for what, size in wanted)
                except (LostError, RemoteError):
                    continue
                # One that has just taken the place of another has nothing yet.
                if [piece.size for piece in pieces] == [size for _, size in wanted]:
                    yield worker, pieces

    def _each(self, workers: Sequence[int], do: Callable[[int, int], object]) -> list[int]:
        """Calls `do(position, worker)` for all at the same time; returns those that failed."""

        def attempt(position: int) -> bool:
            try:
                do(position, workers[position])
            except LostError:
                return False
            return True

        done = list(self._pool.map(attempt, range(len(workers))))
        return [worker for worker, is_done in zip(workers, done, strict=True) if not is_done]

    def _member(self, worker: int) -> Worker | RemoteWorker:
        member = self.members[worker]
        if member is None:
            raise LostError(f"worker {worker} is gone")
        return member

    @abstractmethod
    def _peer(self, worker: int) -> Worker | RemotePeer:
        """Returns what serves pieces of a worker's replica to the chief, even during a step."""

    def _found_by(self, worker: int) -> Any:
        """Returns what others in its group need to reach a worker."""
        return self._member(worker)

    # Parts that are lost

    def fence(self, worker: int) -> tuple[int, ...]:
        """Refuses every further call of the process that was this worker, and gives it up.

        Returns the number of its last task that each parameter server has received; raises
        ServerLostError if one is gone as well.
        """
        answers = self._call_servers("fence", [(worker,)] * len(self.servers))
        incarnations, pushed = zip(*answers, strict=True)
        self.discard(worker)
        self._give_up(worker, incarnations[0])
        return pushed

    @abstractmethod
    def _give_up(self, worker: int, incarnation: int) -> None:
        """Gives up a worker; `incarnation` is the number of the process that replaces it."""

    def revive(  # noqa: B027 (threads go on)
        self, worker: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Replaces a lost worker, after `fence`.

        `is_wanted` tells whether to go on waiting for it, and is called repeatedly.

        Raises:
            RetryableError: It does not come back.
            ServerLostError: A parameter server is gone.
        """

    def restart_servers(self) -> None:
        """Replaces all parameter servers; the state has to be loaded afterwards."""
        self.renew()

    @abstractmethod
    def renew(self) -> None:
        """Replaces all parts; the state has to be loaded afterwards."""

    def repair(self) -> None:  # noqa: B027 (threads are not lost)
        """Replaces the parts that were lost since the previous run."""

    def look_after(self) -> None:  # noqa: B027 (threads do not hang)
        """Gives up parts that hang; called repeatedly."""

    def signal(self, part: Part, number: int) -> None:
        raise FatalError(f"{part[0]} {part[1]} is not a process of its own")

    @abstractmethod
    def close(self) -> None:
        """Shuts the cluster down; may be called twice."""


class ThreadsCluster(Cluster):
    """A cluster whose workers run in the threads that call them; nothing is sent anywhere.

    Its workers can only be lost on purpose.
    """

    kind = "in-process"
    has_processes = False

    def __init__(self, program: Program, workers: int) -> None:
        super().__init__(program, workers)
        self._feed: Feed = HeldFeed(())
        # A worker pulls only once it has a core: parameters pulled earlier would grow stale.
        cores = os.cpu_count() or 1
        self._computing = threading.Semaphore(cores)
        self._step = for_threads(program.step, cores)
        self.renew()

    @override
    def renew(self) -> None:
        program, sizes, tables = self.program, self.program.sizes, self.program.function.embeddings
        # All workers share one copy of the data.
        self._feed.close()
        self._feed = feed_of(program.data.train, program.function.batch_size, len(self.members))
        self._server = ParameterServer(
            sizes,
            len(self.members),
            program.new_update(),
            program.decay,
            lambda: aligned(sizes.model),
            program.checkpoints.shard_plan(),
            program.project,
            has_averages=program.optimizer.has_averages,
        )
        self.servers = [self._server]
        checkpoints = program.checkpoints
        self.embeddings = EmbeddingServers(
            [self._server.embeddings], checkpoints.layouts, checkpoints.rule
        )
        self._workers = [
            Worker(
                sizes,
                self._step,
                self._feed,
                aligned(sizes.model),
                program.decay,
                program.new_update,
                self._computing,
                None if program.ids is None else EmbeddingSteps(tables, program.ids),
                program.project,
                program.new_ahead,
            )
            for _ in self.members
        ]
        self.members[:] = self._workers
        for worker in range(len(self.members)):
            self._give_up(worker, 0)

    @override
    def close(self) -> None:
        self._feed.close()
        self._pool.shutdown(wait=False)

    @override
    def _give_up(self, worker: int, incarnation: int) -> None:
        self._workers[worker].join(Caller(worker, incarnation), self._server)

    @override
    def _peer(self, worker: int) -> Worker:
        return self._workers[worker]
