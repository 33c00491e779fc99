"""Selective synchronization: replicas are averaged when a gradient has changed enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from typing_extensions import override

from syncswitch.trainers.protocols.base import AfterAverage, Release, ReplicaStep, decimal_number
from syncswitch.trainers.protocols.local_sgd import LocalSGD

_WINDOW_STEPS = 25
"""Length of the paper's window; a worker's first steps, as many, are always averaged."""


class SelSync(LocalSGD):
    """All workers step together; their replicas are averaged if one of them asks for it.

    Source: Tyagi and Swany, Accelerating Distributed ML Training via Selective Synchronization,
    CLUSTER 2023 (arXiv 2307.07950), with its aggregation of parameters. After each step a worker
    compares the smoothed squared length of its gradient, E_i, with that of the step before: it asks
    for an average if |E_i - E_(i-1)| / E_(i-1) is at least delta. E is an exponential moving
    average with the smoothing factor n/100 of the paper's experiments, n the number of workers at
    the start.

    The paper leaves open what happens before there is anything to compare with: as in its authors'
    program, the first 25 steps of a worker are averaged. Here the comparison begins anew with each
    phase, and with a worker that comes back. A gradient that is not finite asks for an average, and
    so does a step that nobody observes, as where only the time is played.

    Args:
        delta: The relative change of the gradient from which on replicas are averaged; 0 averages
            them at every step.
        after: As of local SGD.
    """

    name = "selsync"
    usage = "selsync:DELTA[:AFTER]"
    own: ClassVar = {"delta": partial(decimal_number, called="DELTA")}
    words: ClassVar = {}
    has_flags = True
    after = AfterAverage.KEPT

    def __init__(
        self, workers: Iterable[int], delta: float, after: AfterAverage | None = None
    ) -> None:
        super().__init__(workers, 1, after)
        self._delta = delta
        self._smoothing = min(1.0, len(self.active) / 100)
        self._smoothed: dict[int, float] = {}
        self._seen: Counter[int] = Counter()
        # Of the workers that have pushed in this round, those that do not ask for an average.
        self._quiet: set[int] = set()

    @override
    def observe(self, worker: int, step: ReplicaStep) -> None:
        if worker not in self.active:
            return
        before = self._smoothed.get(worker, step.gradient_square)
        change = self._smoothing * (step.gradient_square - before)
        self._smoothed[worker] = before + change
        self._seen[worker] += 1
        if self._seen[worker] > _WINDOW_STEPS and abs(change) < self._delta * before:
            self._quiet.add(worker)

    @override
    def remove(self, worker: int) -> Release:
        self._smoothed.pop(worker, None)
        self._seen.pop(worker, None)
        return super().remove(worker)

    @override
    def _is_joined(self) -> bool:
        is_asked = not self._arrived <= self._quiet
        self._quiet = set()
        return is_asked and super()._is_joined()
