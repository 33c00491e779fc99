"""Which parameter servers have a worker-step already that others of them lack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from syncswitch.trainers.cluster.exchange.shards import Undone
from syncswitch.trainers.protocols.steps import Ticket


class TakenSteps:
    """Of the steps of one run whose workers died while they pushed.

    Who does such a step again leaves these servers out, so that each has it once.

    Args:
        servers: How many there are.
        undone: With which the run begins.
    """

    def __init__(self, servers: int, undone: Undone) -> None:
        self._servers = servers
        self._taken = {step: frozenset(by) for step, by in undone.items() if by}

    def by(self, worker_step: int) -> tuple[int, ...]:
        """The servers that have a step."""
        return tuple(sorted(self._taken.get(worker_step, ())))

    def add(self, worker_step: int, number: int, pushed: Sequence[int]) -> bool:
        """Notes how far a lost worker has come with a step.

        Args:
            worker_step: Which.
            number: Of its task.
            pushed: The numbers of its last push that each server has taken in.

        Returns:
            Whether all of them have the step by now.
        """
        found = self._taken.get(worker_step, frozenset()) | _having(number, pushed)
        if found:
            self._taken[worker_step] = found
        return len(found) == self._servers

    def at_mark(
        self, tasks: Iterable[tuple[Ticket, int]], pushed: Sequence[Sequence[int]]
    ) -> dict[int, frozenset[int]]:
        """The servers that have each step in their parts of a copy; none for others.

        Args:
            tasks: Each worker's last step, and the number of its task.
            pushed: Of each worker, see `add`.
        """
        found = defaultdict[int, frozenset[int]](frozenset, self._taken)
        for ticket, number in tasks:
            found[ticket.worker_step] |= _having(number, pushed[ticket.worker])
        return found


def _having(number: int, pushed: Sequence[int]) -> frozenset[int]:
    return frozenset(server for server, one in enumerate(pushed) if one == number)
