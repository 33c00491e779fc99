"""Copies of a run from which it goes on when a parameter server is lost."""

from __future__ import annotations

import time
from collections.abc import Collection

from syncswitch.trainers.cluster.chief.coordinator import Coordinator
from syncswitch.trainers.cluster.chief.taken import TakenSteps
from syncswitch.trainers.cluster.chief.trial import Backup, ClusterTrial
from syncswitch.trainers.cluster.exchange.shards import Undone
from syncswitch.trainers.cluster.members.cluster import Cluster
from syncswitch.trainers.cluster.members.lost import ServerLostError
from syncswitch.trainers.job.schedule import Segment, next_segment
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import SegmentSteps, Ticket
from syncswitch.trainers.run.position import LogMark

# So often the state is copied, or more seldom: to copy it takes at most a twentieth of the time.
_PAUSE_SECONDS = 2.0
_SHARE = 20.0


class Backups:
    """Keeps copies of the state of a run in its trial: now and then, and at its switch.

    Args:
        trial: What is trained.
        cluster: That holds the state.
        coordinator: Of the run.
        taken: Steps that some parameter servers have.

    Attributes:
        tasks: Each worker's last step, and the number under which it was asked for.
    """

    def __init__(
        self,
        trial: ClusterTrial,
        cluster: Cluster,
        coordinator: Coordinator,
        taken: TakenSteps,
    ) -> None:
        self._trial = trial
        self._cluster = cluster
        self._coordinator = coordinator
        self.tasks: dict[int, tuple[Ticket, int]] = {}
        self._taken = taken
        self._last_seconds = time.monotonic()
        self._pause_seconds = _PAUSE_SECONDS

    def take_if_due(self, segment: Segment, exchange: Exchange) -> None:
        """Takes a copy, where it is time for one.

        Replicas lie on the workers; what the parameter server has is from before them.

        Args:
            segment: What is trained now.
            exchange: What becomes of its gradients.
        """
        start = time.monotonic()
        is_due = start - self._last_seconds >= self._pause_seconds
        if not is_due or not self._cluster.has_processes or exchange is Exchange.REPLICA:
            return
        try:
            mark, undone = self._coordinator.at_rest(lambda steps: self._mark(steps, segment))
            backup = Backup(self._cluster.marked(), mark, undone)
            if not self._would_mix(backup, segment):
                self._trial.backup = backup
        except ServerLostError as error:
            self._coordinator.fail(None, error)
        self._last_seconds = time.monotonic()
        self._pause_seconds = max(_PAUSE_SECONDS, _SHARE * (self._last_seconds - start))

    def state(self) -> ModelState:
        """That of a drained run, which is kept.

        Raises:
            ServerLostError: The parameter server is gone.
        """
        backup, mark = self._trial.backup, self._trial.log.mark()
        if backup is None or backup.mark != mark or backup.undone:
            self._trial.backup = backup = Backup(self._cluster.state(), mark)
        return backup.state

    def keep_switch(self) -> None:
        """Keeps the state with which the second protocol begins, if a guard may go back to it."""
        if self._trial.log.is_at_guarded_switch:
            self._trial.switch_state = self.state()
            self._trial.log.keep_switch()

    def _would_mix(self, backup: Backup, segment: Segment) -> bool:
        """Whether steps that some servers have would be done again by another protocol.

        An online policy has just decided for it.
        """
        mark, plan = backup.mark, self._trial.log.guarding.plan
        following = next_segment(
            plan, mark.done, mark.first_protocol_done, is_detour=mark.is_detour
        )
        is_other = following is not None and following.protocol != segment.protocol
        return is_other and any(backup.undone.values())

    def _mark(self, steps: SegmentSteps, segment: Segment) -> tuple[LogMark, Undone]:
        """Where the run is; the coordinator is at rest."""
        pushed = self._cluster.mark()
        applied: Collection[Ticket] = ()
        taken: dict[int, frozenset[int]] = {}
        if steps.exchange is Exchange.PUSH:
            tasks = list(self.tasks.values())
            taken = self._taken.at_mark(tasks, pushed)
            everywhere = len(self._cluster.servers)
            applied = [one for one, _ in tasks if len(taken[one.worker_step]) == everywhere]
        undone = {step: taken.get(step, frozenset()) for step in steps.undone(applied)}
        done, now_seconds = steps.next_step - len(undone), self._trial.clock.last_update_seconds
        staleness = self._coordinator.staleness
        return self._trial.log.mark(segment, done, now_seconds, staleness), undone
