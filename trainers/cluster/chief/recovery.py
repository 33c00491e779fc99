"""Recovery from the loss of workers and parameter servers."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from syncswitch.storage.errors import RetryableError, one_line
from syncswitch.trainers.cluster.chief.coordinator import Coordinator
from syncswitch.trainers.cluster.exchange.shards import Undone
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError, WorkerLostError
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Ticket

Note = Callable[..., None]
"""`note(kind, reason, worker=None, seconds=None)` adds a `RunEvent` to the log of the run."""

# A worker that was lost more often in one run is not brought back.
_MOST_LOSSES = 10
_MOST_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2


class TakenSteps:
    """The servers that already have steps whose workers died during the push.

    Whoever does such a step again leaves these servers out, so that each has it once.
    """

    def __init__(self, servers: int, undone: Undone) -> None:
        self._servers = servers
        self._taken = {step: frozenset(by) for step, by in undone.items() if by}
        # Each worker's last ticket and the number of its task.
        self._tasks: dict[int, tuple[Ticket, int]] = {}

    def ask(self, ticket: Ticket, number: int) -> None:
        self._tasks[ticket.worker] = ticket, number

    def by(self, worker_step: int) -> tuple[int, ...]:
        return tuple(sorted(self._taken.get(worker_step, ())))

    def add(self, worker_step: int, number: int, pushed: Sequence[int]) -> bool:
        """Notes which servers have received the step of a lost worker.

        `pushed` has the number of the worker's last task that each server has received. Returns
        whether all servers have the step by now.
        """
        servers = self._taken.get(worker_step, frozenset()) | _having(number, pushed)
        if servers:
            self._taken[worker_step] = servers
        return len(servers) == self._servers

    def at_mark(
        self, pushed: Sequence[Sequence[int]]
    ) -> tuple[dict[int, frozenset[int]], list[Ticket]]:
        """Finds out which servers have which steps in a copy of the state.

        `pushed` has the numbers of `add` for each worker. Returns the servers that have each step,
        and the tickets of steps that all servers have.
        """
        taken = defaultdict[int, frozenset[int]](frozenset, self._taken)
        tasks = list(self._tasks.values())
        for ticket, number in tasks:
            taken[ticket.worker_step] |= _having(number, pushed[ticket.worker])
        return taken, [step for step, _ in tasks if len(taken[step.worker_step]) == self._servers]


def _having(number: int, pushed: Sequence[int]) -> frozenset[int]:
    return frozenset(server for server, last in enumerate(pushed) if last == number)


class Recovery:
    """Takes lost workers out of a run and brings them back.

    Each method is called in the thread of the worker.
    """

    def __init__(
        self, cluster: Cluster, coordinator: Coordinator, note: Note, taken: TakenSteps
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._note = note
        self._taken = taken
        self._losses: Counter[int] = Counter()
        self._lost_at: dict[int, float] = {}
        self._given_up: set[int] = set()
        self._replacing = threading.Lock()

    def lose(self, ticket: Ticket, number: int, error: BaseException, exchange: Exchange) -> bool:
        """Handles an error in a worker's task, and tells the coordinator.

        Returns whether only the worker is lost; otherwise the run fails.
        """
        worker = ticket.worker
        if isinstance(error, WorkerLostError):
            try:
                # From here on, nothing that it pushes is applied.
                pushed = self._fence(worker, exchange)
            except ServerLostError as further:
                error = further
            else:
                is_push = exchange is Exchange.PUSH
                is_applied = is_push and self._taken.add(ticket.worker_step, number, pushed)
                self._coordinator.lose(worker, is_applied=is_applied)
                self._note_lost(worker, str(error))
                return True
        self._coordinator.fail(worker, error)
        return False

    def lose_unreached(self, worker: int, exchange: Exchange) -> None:
        try:
            self._fence(worker, exchange)
        except ServerLostError as error:
            self._coordinator.fail(None, error)
        self._note_lost(worker, "the others cannot reach it")

    def bring_back(self, worker: int) -> bool:
        """Replaces a lost worker and lets it take part again.

        Returns False if it cannot come back, or the run is ending.
        """
        problem = f"it was lost {_MOST_LOSSES + 1} times"
        for _ in range(_MOST_ATTEMPTS if self._losses[worker] <= _MOST_LOSSES else 0):
            if self._coordinator.stopping:
                return False
            try:
                self._cluster.revive(worker, lambda: not self._coordinator.stopping)
            except RetryableError as error:
                problem = one_line(error)
                time.sleep(_PAUSE_SECONDS)
                continue
            except ServerLostError as error:
                self._coordinator.fail(None, error)
                return False
            seconds = time.perf_counter() - self._lost_at[worker]
            self._note("returned", f"worker {worker} is back", worker, seconds)
            self._coordinator.come_back(worker)
            return True
        if not self._coordinator.stopping:
            self._give_up(worker, problem)
        return False

    def _note_lost(self, worker: int, reason: str) -> None:
        self._losses[worker] += 1
        self._lost_at[worker] = time.perf_counter()
        self._note("lost", loss_of(worker, reason), worker)

    def _fence(self, worker: int, exchange: Exchange) -> tuple[int, ...]:
        try:
            return self._cluster.fence(worker)
        except ServerLostError:
            if exchange is not Exchange.REPLICA:
                raise
        # Nothing on the servers is needed while workers have replicas.
        with self._replacing:
            try:
                # Another thread may have replaced them meanwhile.
                return self._cluster.fence(worker)
            except ServerLostError:
                self._cluster.restart_servers()
                return self._cluster.fence(worker)

    def _give_up(self, worker: int, problem: str) -> None:
        reason = f"worker {worker} stays away: {problem}"
        self._note("lost", reason, worker)
        self._given_up.add(worker)
        if self._given_up == set(self._coordinator.workers):
            self._coordinator.fail(
                None, RetryableError(f"no worker is left: {reason}", code="cluster-lost")
            )
        self._coordinator.recall()


def loss_of(worker: int, reason: str) -> str:
    """Describes the loss of a worker; the reason may name it already."""
    name = f"worker {worker}"
    return reason if reason.startswith(f"{name} ") else f"{name}: {reason}"
