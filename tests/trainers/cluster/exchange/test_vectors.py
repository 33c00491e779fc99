"""Long vectors: their memory, and updates of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.exchange.vectors import Block
from syncswitch.trainers.model import updates
from syncswitch.trainers.model.layout import FlatLayout, Vector
from syncswitch.trainers.model.optimizer import MomentumSGD
from syncswitch.trainers.model.updates import momentum_update
from tests.properties import more_examples


def test_it_ends_with_those_who_hold_it() -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    block = Block(2, 3)
    name = Path(f"/proc/self/fd/{block.descriptor}").readlink().name
    assert name.startswith("memfd:syncswitch"), "it has no name that could stay behind"
    row = block.rows[1]
    assert row.ctypes.data % 64 == 0, "TensorFlow would copy it"
    del block
    row += 1.0
    assert row.tolist() == [1.0] * 3, "it is there while somebody uses it"
    del row
    assert set(os.listdir("/proc/self/fd")) == descriptors


FREEING = """
import ctypes, resource, threading
from syncswitch.trainers.cluster.exchange.vectors import keep_freed_memory

{call}
C, SIZE = ctypes.CDLL(None), 100 << 20
C.malloc.restype = C.memset.restype = ctypes.c_void_p

def fill():
    memory = ctypes.c_void_p(C.malloc(ctypes.c_size_t(SIZE)))
    C.memset(memory, 1, ctypes.c_size_t(SIZE))
    C.free(memory)

def compute():
    fill()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        fill()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=compute)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(("call", "least", "most"), [("", 50_000, 1e6), ("{}()", 0, 1000)])
def test_a_large_block_that_was_freed_needs_no_new_pages(call: str, least: int, most: int) -> None:
    code = FREEING.format(call=call.format("keep_freed_memory"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert least <= int(done.stdout) <= most


SGD = MomentumSGD(FlatLayout((), ()))
PIECE = updates.PIECE


def vectors(seed: int, count: int, size: int) -> list[Vector]:
    return list(np.random.default_rng(seed).standard_normal((count, size), np.float32))


@given(
    size=st.one_of(st.integers(0, 5), st.integers(PIECE - 1, 4 * PIECE)),
    gradients=st.integers(1, 5),
    rate=st.floats(0.0, 10.0, width=32),
    momentum=st.floats(0.0, 1.0, width=32),
    in_place=st.booleans(),
    threads=st.integers(1, 4),
)
@example(3 * PIECE + 1, 3, 0.1, 0.9, False, 3)
@example(PIECE, 1, 0.1, 0.9, True, 1)
@more_examples(3)
def test_momentum_is_to_the_last_bit_that_of_the_optimizer(
    size: int, gradients: int, rate: float, momentum: float, in_place: bool, threads: int
) -> None:
    parameters, slots, moved, *computed = vectors(size, 3 + gradients, size)
    least = max(1, size // threads)
    with patch.multiple(updates, _LEAST_OF_A_THREAD=least, _THREADS=threads):
        mean = np.mean(computed, axis=0)
        for _ in range(3):
            expected, accumulator = SGD.apply(parameters, slots, 0, mean, rate, momentum)
            before, target = parameters.copy(), parameters if in_place else moved
            momentum_update(parameters, target, slots, 0, computed, rate, momentum)
            np.testing.assert_array_equal(target, expected)
            np.testing.assert_array_equal(slots, accumulator)
            if not in_place:
                np.testing.assert_array_equal(parameters, before)
                parameters, moved = moved, parameters
            assert parameters.dtype == slots.dtype == np.float32


@pytest.mark.filterwarnings("error")
def test_what_explodes_is_infinite_without_a_word() -> None:
    huge = np.full(3, 3e38, np.float32)
    parameters, slots = np.zeros(3, np.float32), huge.copy()
    momentum_update(parameters, parameters, slots, 0, [huge, huge], 1.0, 1.0)
    assert np.isinf(slots).all()
    assert np.isinf(parameters).all()
    momentum_update(parameters, parameters, slots, 0, [-huge, -huge], 1.0, 1.0)
    assert not np.isfinite(parameters).any()
