from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.wire import Wire


@pytest.mark.parametrize(("rows", "size"), [(1, 0), (1, 1), (3, 16), (2, 1000)])
def test_whoever_gets_the_descriptor_sees_the_same_memory(rows: int, size: int) -> None:
    ours, theirs = map(Wire, socket.socketpair())
    block = Block(rows, size)
    for number, row in enumerate(block.rows):
        np.testing.assert_array_equal(row, np.zeros(size, np.float32))
        assert row.ctypes.data % 64 == 0, "TensorFlow would copy it"
        row[:] = number + 1
    giving = threading.Thread(target=ours.send_descriptor, args=(block.descriptor,))
    giving.start()
    other = Block(rows, size, theirs.receive_descriptor())
    giving.join(30)
    for mine, yours in zip(block.rows, other.rows, strict=True):
        np.testing.assert_array_equal(mine, yours)
        yours += 1.0
        np.testing.assert_array_equal(mine, yours)
    ours.close()
    theirs.close()


def test_it_ends_with_those_who_hold_it() -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    block = Block(2, 3)
    name = Path(f"/proc/self/fd/{block.descriptor}").readlink().name
    assert name.startswith("memfd:syncswitch"), "it has no name that could stay behind"
    row = block.rows[1]
    del block
    row += 1.0
    assert row.tolist() == [1.0] * 3, "it is there while somebody uses it"
    del row
    assert set(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("size", [0, 1, 17, 4096])
def test_an_aligned_vector_is_zero_and_can_be_read_where_it_lies(size: int) -> None:
    vector = aligned(size)
    assert (vector.shape, vector.dtype) == ((size,), np.float32)
    assert not vector.any()
    assert not size or vector.ctypes.data % 64 == 0
    vector += 1.0
    assert (vector == 1.0).all()
