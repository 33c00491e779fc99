"""Memory for long vectors, which may be shared with other processes of the machine."""

from __future__ import annotations

import mmap
import os

import numpy as np

from syncswitch.trainers.model.layout import Vector

# TensorFlow reads an array where it lies if it begins here.
_ALIGNMENT = 64
_BYTES = 4


class Block:
    """Vectors of one length in memory of their own; zero, and free, until they are written.

    Args:
        rows: How many.
        size: Values of each.
        descriptor: Of a block that another process has made; by default a new one. It has no name
            that could outlive the processes which hold it.
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
    """A vector of zeros that TensorFlow can read where it lies."""
    raw = np.zeros(size * _BYTES + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size * _BYTES].view(np.float32)
