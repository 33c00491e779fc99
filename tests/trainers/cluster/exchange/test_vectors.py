"""Long vectors: their memory, and updates of them."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.exchange import vectors as update
from syncswitch.trainers.cluster.exchange.vectors import (
    Block,
    Update,
    aligned,
    each_piece,
    mean_of,
    momentum_update,
    traced_update,
)
from syncswitch.trainers.cluster.exchange.wire import Wire
from syncswitch.trainers.model.layout import FlatLayout, Vector
from syncswitch.trainers.model.optimizer import MomentumSGD
from tests.properties import more_examples


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


SGD = MomentumSGD(FlatLayout((), ()))
PIECE = update._PIECE


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
    with patch.multiple(update, _LEAST_OF_A_THREAD=least, _THREADS=threads):
        mean = np.mean(computed, axis=0)
        for _ in range(3):
            expected, accumulator = SGD.apply(
                parameters,
                slots,
                0,
                mean,
                rate,
                momentum,
            )
            before, target = parameters.copy(), parameters if in_place else moved
            momentum_update(parameters, target, slots, 0, computed, rate, momentum)
            np.testing.assert_array_equal(target, expected)
            np.testing.assert_array_equal(slots, accumulator)
            if not in_place:
                np.testing.assert_array_equal(parameters, before)
                parameters, moved = moved, parameters
            assert parameters.dtype == slots.dtype == np.float32


@given(st.integers(0, 3 * PIECE), st.integers(1, 4))
@example(PIECE + 1, 4)
def test_each_value_is_in_one_piece(size: int, threads: int) -> None:
    seen, lock = np.zeros(size, np.int64), threading.Lock()

    def note(piece: slice) -> None:
        with lock:
            seen[piece] += 1
        assert piece.stop - piece.start <= PIECE

    with patch.multiple(update, _LEAST_OF_A_THREAD=100, _THREADS=threads):
        each_piece(size, note)
    assert (seen == 1).all()


def test_what_a_piece_raises_is_raised() -> None:
    def broken(piece: slice) -> None:
        raise ZeroDivisionError

    for size in (1, 3 * update._LEAST_OF_A_THREAD):
        with patch.object(update, "_THREADS", 2), pytest.raises(ZeroDivisionError):
            each_piece(size, broken)


@given(st.integers(1, 6), st.integers(0, 9))
def test_the_mean_is_numpys_and_of_a_single_vector_itself(count: int, size: int) -> None:
    given_vectors = vectors(count, count, size)
    kept = [one.copy() for one in given_vectors]
    mean = mean_of(given_vectors)
    assert mean.dtype == np.float32
    np.testing.assert_array_equal(mean, np.mean(given_vectors, axis=0))
    np.testing.assert_array_equal(given_vectors, kept)
    assert (mean is given_vectors[0]) == (count == 1)


@pytest.mark.filterwarnings("error")
def test_what_explodes_is_infinite_without_a_word() -> None:
    huge = np.full(3, 3e38, np.float32)
    parameters, slots = np.zeros(3, np.float32), huge.copy()
    momentum_update(parameters, parameters, slots, 0, [huge, huge], 1.0, 1.0)
    assert np.isinf(slots).all()
    assert np.isinf(parameters).all()
    momentum_update(parameters, parameters, slots, 0, [-huge, -huge], 1.0, 1.0)
    assert not np.isfinite(parameters).any()


def test_a_traced_one_is_given_the_mean_and_fills_what_it_is_told_to() -> None:
    given_arguments: list[Any] = []

    def traced(*arguments: Any) -> tuple[Vector, Vector]:
        given_arguments.append(arguments)
        return arguments[0] + 1, arguments[1] + 2

    applied: Update = traced_update(traced)
    parameters, moved, slots = (np.full(2, value, np.float32) for value in (1.0, 9.0, 3.0))
    gradients = [np.array([2.0, 4.0], np.float32), np.array([4.0, 0.0], np.float32)]
    applied(parameters, moved, slots, 7, gradients, 0.5, 0.25)
    ((_, _, updates, gradient, rate, momentum),) = given_arguments
    assert (updates, gradient.tolist(), rate, momentum) == (7, [3.0, 2.0], 0.5, 0.25)
    assert (parameters.tolist(), moved.tolist(), slots.tolist()) == ([1, 1], [2, 2], [5, 5])
