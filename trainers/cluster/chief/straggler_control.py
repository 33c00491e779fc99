"""The online policy of a run on real threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.stragglers.online import NO_DECISION, Decision, OnlineController


class StragglerControl:
    """The online policy of a run behind a lock; what it decides is logged.

    Args:
        controller: Decides; None where nothing is to be done.
        log: Of the run.
        workers: All of them; those that a former cluster lost are there again.
    """

    def __init__(
        self, controller: OnlineController | None, log: RunLog, workers: Iterable[int]
    ) -> None:
        self._controller = controller
        self._log = log
        self._lock = threading.Lock()
        for worker in workers:
            self.tell(worker, is_lost=False)

    def resting(self, workers: Iterable[int]) -> set[int]:
        """Which of these workers are not to train now."""
        return set() if self._controller is None else set(workers) - self._controller.active

    def after_step(
        self, worker: int, busy_seconds: float, done: int, now_seconds: float, before_switch: bool
    ) -> Decision:
        """Observes a step and decides; see `OnlineController.judge`."""
        if self._controller is None:
            return NO_DECISION
        with self._lock:
            self._controller.observe(worker, busy_seconds)
            decision = self._controller.judge(done, now_seconds, before_switch)
        self._note(decision)
        if decision.protocol is not None:
            self._log.is_detour = decision.protocol == "second"
        return decision

    def at_switch(self, done: int, now_seconds: float) -> None:
        """Lets all workers train from now on."""
        self._log.is_detour = False
        if self._controller is not None:
            with self._lock:
                decision = self._controller.at_switch(done, now_seconds)
            self._note(decision)

    def tell(self, worker: int, *, is_lost: bool) -> None:
        """A worker is lost, or there again."""
        if self._controller is not None:
            with self._lock:
                (self._controller.lost if is_lost else self._controller.returned)(worker)

    def _note(self, decision: Decision) -> None:
        for event in decision.events:
            self._log.keep_event(event)
