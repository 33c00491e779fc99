"""What workers have computed, until it is joined with what others have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from syncswitch.trainers.cluster.exchange.memory import aligned
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.tables.shard import RowGradient

RowGradients = Sequence[RowGradient]
"""Of each embedding table one."""


class Computed(NamedTuple):
    """What a worker has computed.

    Attributes:
        vector: Gradient, then contribution to the statistics, shape [P + S].
        rows: Gradients of embedding tables' rows.
    """

    vector: Vector
    rows: RowGradients = ()


class GradientBuffer:
    """Copies by worker-step; memory is used again."""

    def __init__(self) -> None:
        self._kept: dict[int, Computed] = {}
        self._spare: list[Vector] = []

    def clear(self) -> None:
        """Forgets all of it."""
        self._kept.clear()

    def keep(self, worker_step: int, computed: Computed) -> None:
        """Copies what was computed; made again, it is replaced."""
        if worker_step in self._kept:
            vector = self._kept[worker_step].vector
        else:
            vector = self._spare.pop() if self._spare else aligned(computed.vector.size)
        vector[:] = computed.vector
        self._kept[worker_step] = Computed(vector, computed.rows)

    def take(
        self, worker_steps: Sequence[int], stale: Sequence[int], parameters: int
    ) -> list[Computed]:
        """Takes these out, to be given back.

        Args:
            worker_steps: Under which they are kept.
            stale: Those of them whose gradients become zero.
            parameters: P.
        """
        for worker_step in stale:
            vector, rows = self._kept[worker_step]
            vector[:parameters] = 0.0
            self._kept[worker_step] = Computed(vector, [one.none for one in rows])
        return [self._kept.pop(worker_step) for worker_step in worker_steps]

    def give_back(self, taken: Sequence[Computed]) -> None:
        """Nobody needs these any more."""
        self._spare += [one.vector for one in taken]
