"""Long vectors in memory that processes of one machine can share, and what a plan does to them."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.updates import Projection, Update, momentum_update, projected

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.exchange.plans import Plan, WorkerPlan
    from syncswitch.trainers.model.own_slots import AheadUpdate

# TensorFlow uses an array without copying it if it is aligned to this many bytes.
_ALIGNMENT = 64
_BYTES = 4
# Parameters of glibc's `mallopt`, see malloc.h, and the largest number that it takes.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_MOST = 2**31 - 1


class Block:
    """Vectors of equal length in shareable memory; zero, and taking no memory, until written.

    `descriptor` is the file of a block that another process has made; by default a new anonymous
    file, which ends with the processes that hold it.
    """

    def __init__(self, rows: int, size: int, descriptor: int | None = None) -> None:
        padded = -(-max(size, 1) * _BYTES // _ALIGNMENT) * _ALIGNMENT
        length = max(rows, 1) * padded
        if descriptor is None:
            descriptor = os.memfd_create("syncswitch")
            os.ftruncate(descriptor, length)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, length)
        values = np.frombuffer(self._memory, np.float32).reshape(max(rows, 1), -1)
        self.rows: list[Vector] = [row[:size] for row in values[:rows]]

    def __del__(self) -> None:
        os.close(self.descriptor)


def aligned(size: int) -> Vector:
    """Returns a vector of zeros that TensorFlow can use without copying it."""
    raw = np.zeros(size * _BYTES + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size * _BYTES].view(np.float32)


def keep_freed_memory() -> None:
    """Lets this process use memory again that it has freed, however large the blocks are.

    By default glibc returns blocks of 32 MB and more to the system at once, and each step of a
    large model gets its gradients as new pages, which the kernel has to clear. To be called before
    there are other threads: it takes all blocks from one arena, as others cannot hold large ones.
    """
    with suppress(AttributeError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        for option, value in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _MOST)):
            set_option(option, value)


def update_of(plan: Plan) -> Update:
    """Returns the update of a plan's optimizer; those of Keras see to constraints themselves."""
    if plan.update is None:
        return projected(momentum_update, projection_of(plan))
    from syncswitch.trainers.model.function import flat_update

    return flat_update(plan.update.restored())


def ahead_of(plan: WorkerPlan) -> AheadUpdate | None:
    """Returns the update of a worker with slots of its own; None for SGD with momentum."""
    if plan.adam is not None:
        return plan.adam.turn
    if plan.ahead is None:
        return None
    from syncswitch.trainers.model.function import flat_ahead

    return flat_ahead(plan.ahead.restored())


def projection_of(plan: Plan) -> Projection | None:
    """Returns the projection of a plan; None without constraints."""
    if plan.project is None:
        return None
    from syncswitch.trainers.model.function import flat_projection

    return flat_projection(plan.project.restored())
