"""Copies of a run from which it goes on when its parameter server is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from syncswitch.trainers.cluster.chief.coordinator import Coordinator
from syncswitch.trainers.cluster.members.cluster import Cluster
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import SegmentSteps, Ticket
from syncswitch.trainers.run.position import LogMark

# So often the state is copied, or more seldom: to copy it takes at most a twentieth of the time.
_PAUSE_SECONDS = 2.0
_SHARE = 20.0


@dataclass(frozen=True)
class Backup:
    """From where a run goes on when the parameter server is lost.

    Attributes:
        state: Of the training.
        mark: Of the log.
        undone: Worker-steps that are not in the state, though later ones are.
    """

    state: ModelState
    mark: LogMark
    undone: tuple[int, ...] = ()


class Backups:
    """Copies the state and where the run is, now and then, while the training goes on.

    Args:
        cluster: That holds the state.
        coordinator: Of the run.
        tasks: Each worker's last step, and the number under which it was asked for.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        tasks: Mapping[int, tuple[Ticket, int]],
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._tasks = tasks
        self._last_seconds = time.monotonic()
        self._pause_seconds = _PAUSE_SECONDS

    def take_if_due(self, exchange: Exchange, mark_at: Callable[[int], LogMark]) -> Backup | None:
        """A copy, where it is time for one.

        Replicas lie on the workers; what the parameter server has is from before them.

        Args:
            exchange: What becomes of gradients now.
            mark_at: Where the run is when so many worker-steps are done.

        Raises:
            ServerLostError: The parameter server is gone.
        """
        start = time.monotonic()
        is_due = start - self._last_seconds >= self._pause_seconds
        if not is_due or not self._cluster.has_processes or exchange is Exchange.REPLICA:
            return None
        mark, undone = self._coordinator.at_rest(lambda steps: self._mark(steps, mark_at))
        backup = Backup(self._cluster.marked(), mark, undone)
        self._last_seconds = time.monotonic()
        self._pause_seconds = max(_PAUSE_SECONDS, _SHARE * (self._last_seconds - start))
        return backup

    def _mark(
        self, steps: SegmentSteps, mark_at: Callable[[int], LogMark]
    ) -> tuple[LogMark, tuple[int, ...]]:
        """Where the run is; the coordinator is at rest."""
        pushed = self._cluster.mark()
        applied: Collection[Ticket] = ()
        if steps.exchange is Exchange.PUSH:
            tasks = list(self._tasks.values())
            applied = [ticket for ticket, number in tasks if pushed[ticket.worker] == number]
        undone = tuple(steps.undone(applied))
        return mark_at(steps.next_step - len(undone)), undone
