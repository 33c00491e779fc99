"""Parameter servers and workers as the chief sees them."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

from syncswitch.storage.errors import FatalError, WorkloadError
from syncswitch.trainers.cluster.exchange.handshake import Part
from syncswitch.trainers.cluster.exchange.parameter_server import FencedError
from syncswitch.trainers.cluster.exchange.plans import Push, StepError, Task
from syncswitch.trainers.cluster.exchange.remote import LostError
from syncswitch.trainers.cluster.exchange.shards import Undone
from syncswitch.trainers.cluster.members.lost import WorkerLostError
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.cluster.members.replicas import Replicas
from syncswitch.trainers.cluster.members.server_group import ServerGroup
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.tables.file import kept_tables
from syncswitch.trainers.model.tables.servers import TableServers
from syncswitch.trainers.model.tables.shard import Ids


class Cluster(Replicas, ABC):
    """Moves the numbers of one run after the other.

    Args:
        program: What is computed.
        workers: n.

    Attributes:
        kind: What can be disturbed there on purpose, as `check_injections` calls it.
        has_processes: Whether its parts can be lost, stopped and disturbed one by one.
        numbers: For tasks, each of them used once; see `Task`.
        servers: The parameter servers.
        tables: Embedding tables on them.
    """

    kind: str
    has_processes: bool
    servers: ServerGroup
    tables: TableServers

    def __init__(self, program: Program, workers: int) -> None:
        super().__init__(program, workers)
        self.numbers = itertools.count()

    def load(self, state: ModelState, undone: Undone = MappingProxyType({})) -> None:
        """Puts a state onto the parameter servers.

        Args:
            state: The new one.
            undone: Of a copy in which some servers are ahead of others.
        """
        self.servers.load(replace(state, tables=None), undone)
        if state.tables is not None:
            self.tables.load(state.tables)

    def state(self) -> ModelState:
        """A copy of the state."""
        self.mark()
        return self.marked()

    def mark(self) -> Sequence[tuple[int, ...]]:
        """Remembers the state as it is now, for `marked`.

        Returns:
            For each worker the numbers of its last task that is in the part of each server.
        """
        return self.servers.mark()

    def marked(self) -> ModelState:
        """The state at the last `mark`; may take a while, in which the training goes on."""
        state, forms = self.servers.marked(), self.program.form.forms
        if not forms:
            return state
        kept = kept_tables(forms, self.tables.marked())
        self.tables.end_read()
        return replace(state, tables=kept)

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Copies of parameters and statistics, and of these rows of embedding tables.

        No later update is in them; while workers push, the parts of several parameter servers may
        be an update apart.
        """
        return self.servers.snapshot(ids)

    def step(self, worker: int, task: Task) -> Push:
        """Has a worker do a step; returns when that is done.

        Raises:
            WorkerLostError: Whether it was taken in is not known.
            WorkloadError: It cannot be computed.
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
        """Applies the mean of what these workers have pushed as one update."""
        self.servers.apply_round(workers, rate, momentum)

    def apply_buffer(
        self, worker_steps: Sequence[int], stale: Sequence[int], rate: float, momentum: float
    ) -> None:
        """Applies the mean of these gradients of the buffer as one update."""
        self.servers.apply_buffer(worker_steps, stale, rate, momentum)

    @abstractmethod
    def fence(self, worker: int) -> tuple[int, ...]:
        """From now on nothing counts that comes from the process that was this worker.

        Returns:
            The numbers of its last task that each parameter server has taken in.

        Raises:
            ServerLostError: One of these does not answer either.
        """

    @abstractmethod
    def revive(self, worker: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Replaces a lost worker, after `fence`.

        Args:
            worker: Which.
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

    def look_after(self) -> None:
        """Gives up on parts that hang; called again and again."""

    def signal(self, part: Part, number: int) -> None:
        """Sends a signal to the process of a part."""
        raise FatalError(f"{part[0]} {part[1]} is no process of its own")

    @abstractmethod
    def close(self) -> None:
        """Ends it; may be called twice."""
