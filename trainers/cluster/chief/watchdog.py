"""Watches a run: injects what is due and gives up on parts that hang."""

from __future__ import annotations

import threading
from collections.abc import Callable

from syncswitch.trainers.cluster.chief.coordinator import Coordinator
from syncswitch.trainers.cluster.members.cluster import Cluster

_TICK_SECONDS = 0.02


class Watchdog(threading.Thread):
    """A thread that never waits for a part of the cluster, nor for a lock held meanwhile.

    What hangs raises nothing, so that everybody would wait for ever.
    """

    def __init__(
        self, cluster: Cluster, coordinator: Coordinator, disturb: Callable[[], None]
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._cluster = cluster
        self._coordinator = coordinator
        self._disturb = disturb
        self._ended = threading.Event()

    def end(self) -> None:
        """Ends the thread."""
        self._ended.set()

    def run(self) -> None:
        """Body of the thread."""
        while not self._ended.wait(_TICK_SECONDS):
            try:
                self._disturb()
                self._cluster.look_after()
            except BaseException as error:
                self._coordinator.fail(None, error)
                return
