from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.model.own_slots import GROWTH, NOISE_SHARE, OwnSlots

RATE = 0.1


def turned(own: OwnSlots, gradients: np.ndarray, momentum: float) -> np.ndarray:
    """The changes that it makes of gradients."""
    changes = gradients.astype(np.float32)
    for one in changes:
        own.turn(np.zeros(one.size, np.float32), one, RATE, momentum)
    return changes


def random_vectors(count: int, size: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, size))


# Two pieces, and a piece that is not full.
@pytest.mark.parametrize("size", [1, 5, 2 * (1 << 16) + 3])
def test_it_moves_as_in_a_plain_loop(size: int) -> None:
    start, *gradients = random_vectors(6, size)
    own = OwnSlots(start.astype(np.float32), 7)
    found = turned(own, np.array(gradients), 0.9)
    accumulator = start
    for gradient, change in zip(gradients, found, strict=True):
        accumulator = 0.9 * accumulator + gradient
        expected = -RATE * (0.9 * accumulator + gradient)
        np.testing.assert_allclose(change, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own.slots, accumulator, rtol=1e-4, atol=1e-5)
    assert own.updates == 12


def test_alone_it_is_nesterovs_sgd_of_keras(keras: Any) -> None:
    gradients = random_vectors(8, 3)
    optimizer = keras.optimizers.SGD(RATE, momentum=0.9, nesterov=True)
    variable = keras.Variable(np.zeros(3))
    for gradient in gradients:
        optimizer.apply([gradient.astype(np.float32)], [variable])
    found = turned(OwnSlots(np.zeros(3, np.float32), 0), gradients, 0.9)
    np.testing.assert_allclose(found.sum(0), variable.numpy(), rtol=1e-5)


def bound_of(start: np.ndarray, first: np.ndarray, momentum: float) -> float:
    along = max(0.0, first @ start / np.linalg.norm(start))
    noise = (first @ first - along**2) / (1 - momentum**2)
    common = max(start @ start, (along / (1 - momentum)) ** 2)
    return float(np.sqrt(common + NOISE_SHARE * noise))


@given(st.floats(0.1, 0.95), st.floats(0.5, 1e6))
def test_no_step_is_longer_than_the_bound_and_shorter_ones_stay(
    momentum: float, growth: float
) -> None:
    start, *gradients = random_vectors(5, 4)
    gradients = np.array(gradients) * growth ** np.arange(4)[:, None]
    bounded = turned(OwnSlots(start.astype(np.float32), 1, is_bounded=True), gradients, momentum)
    free = turned(OwnSlots(start.astype(np.float32), 1), gradients, momentum)
    bound = RATE * bound_of(start, gradients[0], momentum)
    lengths = np.linalg.norm(bounded, axis=1)
    # It grows with each step that it shortens; of four that is three times at most.
    assert np.all(lengths <= bound * (1 + GROWTH) ** (np.arange(4) / 2) * 1.0001)
    if np.all(np.linalg.norm(free, axis=1) < bound):
        np.testing.assert_array_equal(bounded, free)


def test_a_bounded_step_leaves_momentum_as_short_and_goes_the_same_way() -> None:
    start, first, second = random_vectors(3, 4)
    own = OwnSlots(start.astype(np.float32), 1, is_bounded=True)
    turned(own, np.array([first]), 0.9)
    before = own.slots.copy()
    (change,) = turned(own, np.array([1000 * second]), 0.9)
    accumulator = 0.9 * before + 1000 * second
    ahead = 0.9 * accumulator + 1000 * second
    share = bound_of(start, first, 0.9) / np.linalg.norm(ahead)
    np.testing.assert_allclose(change, -RATE * share * ahead, rtol=1e-4)
    np.testing.assert_allclose(own.slots, share * accumulator, rtol=1e-4)


def test_the_bound_follows_gradients_that_stay_long_but_not_at_once() -> None:
    start, first, *others = random_vectors(400, 4)
    own = OwnSlots(start.astype(np.float32), 1, is_bounded=True)
    turned(own, np.array([first]), 0.9)
    found = np.linalg.norm(turned(own, 5 * np.array(others), 0.9), axis=1)
    bound = RATE * bound_of(start, first, 0.9)
    assert np.all(found <= bound * (1 + GROWTH) ** (np.arange(len(found)) / 2) * 1.001)
    free = OwnSlots(start.astype(np.float32), 1)
    unbounded = np.linalg.norm(turned(free, 5 * np.array(others), 0.9), axis=1)
    assert found[:10].mean() < 0.6 * unbounded[:10].mean()
    assert found[-50:].mean() > 0.9 * unbounded[-50:].mean()


def test_what_is_not_finite_stays_so_for_the_loss_to_reveal() -> None:
    own = OwnSlots(np.ones(2, np.float32), 1, is_bounded=True)
    found = turned(own, np.array([[1.0, 1.0], [np.inf, 1.0]]), 0.9)
    assert not np.isfinite(found[1]).all()


def test_another_optimizer_has_its_variables_to_itself() -> None:
    seen = []

    def update(
        parameters: Any, moved: Any, slots: Any, updates: int, gradients: Any, *rates: float
    ) -> None:
        seen.append((updates, rates))
        moved[:] = parameters + 2 * gradients[0]
        slots += 1

    own = OwnSlots(np.zeros(2, np.float32), 3, update)
    gradient = np.array([1.0, -1.0], np.float32)
    own.turn(np.array([5.0, 6.0], np.float32), gradient, 0.5, 0.0)
    assert gradient.tolist() == [2.0, -2.0]
    assert own.slots.tolist() == [1.0, 1.0]
    assert (own.updates, seen) == (4, [(3, (0.5, 0.0))])
