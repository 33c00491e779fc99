from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.model.function import make_ahead
from syncswitch.trainers.model.layout import FlatLayout
from syncswitch.trainers.model.optimizer import KerasOptimizer, make_optimizer
from syncswitch.trainers.model.own_slots import GROWTH, NOISE_SHARE, OwnSlots
from syncswitch.trainers.model.steering import RISE, Steering
from tests.trainers.jobs import CONSTANT

RATE = 0.1


def turned(
    own: OwnSlots, gradients: np.ndarray, momentum: float, *, moves: float = 1.0
) -> np.ndarray:
    """The changes that it makes of gradients, at parameters that move by so much of each.

    They go uphill, unless `moves` is negative.
    """
    changes = gradients.astype(np.float32)
    theta = np.zeros(gradients.shape[1], np.float32)
    for one in changes:
        theta = theta + np.float32(moves) * one
        own.turn(theta, one, RATE, momentum)
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


def test_the_bound_follows_at_once_while_all_go_downhill() -> None:
    """As on leaving a plateau: from the fourth gradient on its square doubles with each step."""
    start, gradient = random_vectors(2, 4)
    first, longer = gradient, 1000 * gradient
    own = OwnSlots(start.astype(np.float32), 1, is_bounded=True)
    changes = turned(own, np.array([first, *[longer] * 9]), 0.9, moves=-1.0)
    bound = RATE * bound_of(start, first, 0.9)
    growth = [1, 1 + GROWTH, *(1 + GROWTH) ** 2 * 2.0 ** np.arange(7)]
    np.testing.assert_allclose(np.linalg.norm(changes[1:], axis=1), bound * np.sqrt(growth), 1e-4)
    uphill = OwnSlots(start.astype(np.float32), 1, is_bounded=True)
    slowly = np.linalg.norm(turned(uphill, np.array([first, *[longer] * 9]), 0.9)[1:], axis=1)
    np.testing.assert_allclose(slowly, bound * (1 + GROWTH) ** (np.arange(9) / 2), 1e-4)


def test_what_is_not_finite_stays_so_for_the_loss_to_reveal() -> None:
    own = OwnSlots(np.ones(2, np.float32), 1, is_bounded=True)
    found = turned(own, np.array([[1.0, 1.0], [np.inf, 1.0]]), 0.9)
    assert not np.isfinite(found[1]).all()


def test_another_optimizer_has_its_variables_to_itself_and_looks_ahead() -> None:
    def update(
        parameters: Any, gradient: Any, ahead: Any, slots: Any, updates: int, rate: float
    ) -> None:
        """Momentum SGD, whose steps are its slots."""
        slots[:] = 0.5 * slots - rate * gradient
        gradient[:], ahead[:] = slots, 0.5 * slots

    own = OwnSlots(np.array([1.0, -2.0], np.float32), 3, update)
    changes = turned(own, np.array([[1.0, 0.0], [0.0, 4.0]]), 0.0)
    accumulator = np.array([1.0, -2.0])
    for gradient, change in zip(np.array([[1.0, 0.0], [0.0, 4.0]]), changes, strict=True):
        accumulator = 0.5 * accumulator - RATE * gradient
        np.testing.assert_allclose(change, 0.5 * accumulator - RATE * gradient, rtol=1e-6)
    np.testing.assert_allclose(own.slots, accumulator)
    assert own.updates == 5


SHAPES = ((3, 2), (2,))
# Those of which workers can have one each.
OPTIMIZERS: dict[str, Any] = {
    "Adam": {},
    "AdamW": {"weight_decay": 0.1},
    "Nadam": {},
    "Adamax": {},
    "Lion": {},
    "RMSprop": {"momentum": 0.5},
    "Adagrad": {},
    "Adadelta": {},
    "Adafactor": {},
    "Lamb": {},
    "SGD": {"momentum": 0.9},
    "Muon": {},
}
VARIANTS = {name: (name, options) for name, options in OPTIMIZERS.items()} | {
    "clipnorm": ("Adam", {"clipnorm": 0.5}),
    "global_clipnorm": ("AdamW", {"global_clipnorm": 0.5}),
    "clipvalue": ("Adam", {"clipvalue": 0.3}),
    "weight decay": ("Adam", {"weight_decay": 0.2, "beta_1": 0.8, "beta_2": 0.9}),
    "amsgrad": ("Adam", {"amsgrad": True}),
}


def optimizer_of(keras: Any, name: str, options: dict[str, Any]) -> KerasOptimizer:
    def model() -> Any:
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])

    kind = getattr(keras.optimizers, name, None)
    if kind is None:
        pytest.skip(f"this Keras has no {name}")
    workload = replace(CONSTANT, model=model, optimizer=lambda: kind(**options))
    made = make_optimizer(workload, FlatLayout(("000-kernel", "001-bias"), SHAPES))
    assert isinstance(made, KerasOptimizer)
    return made


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_optimizer_of_keras_looks_ahead(keras: Any, variant: str) -> None:
    """Against Keras itself: `U + L - L before` of variables of its own."""
    optimizer = optimizer_of(keras, *VARIANTS[variant])
    own = OwnSlots(optimizer.initial_slots(), 0, make_ahead(optimizer, 8))
    parameters = random_vectors(5, 8).astype(np.float32)
    gradients = random_vectors(6, 8)[1:].astype(np.float32)
    slots = optimizer.initial_slots()

    def applied(theta: Any, slots: Any, updates: int, gradient: Any) -> tuple[Any, Any]:
        given = (theta, slots, np.int64(updates), gradient, np.float32(RATE), 0.0)
        moved, after = map(np.asarray, optimizer.apply(*given))
        return moved - theta, after

    before, _ = applied(parameters[0], slots, 0, np.zeros(8, np.float32))
    for number, (theta, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        change = gradient.copy()
        own.turn(theta, change, RATE, 0.0)
        moved, slots = applied(theta, slots, number, gradient)
        ahead, _ = applied(theta, slots, number + 1, np.zeros(8, np.float32))
        np.testing.assert_allclose(change, moved + ahead - before, rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(own.slots, slots, rtol=1e-4, atol=1e-6)
        before = ahead


def test_momentum_sgd_of_keras_moves_as_the_built_in_one(keras: Any) -> None:
    optimizer = optimizer_of(keras, "SGD", {"momentum": 0.9})
    gradients = random_vectors(5, 8)
    found = turned(OwnSlots(np.zeros(8, np.float32), 0, make_ahead(optimizer, 8)), gradients, 0.0)
    expected = turned(OwnSlots(np.zeros(8, np.float32), 0), gradients, 0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_adam_moves_as_in_a_plain_loop_from_moments_of_bsp(keras: Any) -> None:
    form = optimizer_of(keras, "Adam", {}).adam
    assert form is not None
    mean, square = random_vectors(2, 8)
    square = square**2
    slots = np.concatenate([mean[:6], square[:6], mean[6:], square[6:]]).astype(np.float32)
    found = turned(OwnSlots(slots, 4, form.turn), random_vectors(5, 8), 0.0)

    def change(update: int, mean: Any, square: Any) -> Any:
        alpha = RATE * np.sqrt(1 - 0.999**update) / (1 - 0.9**update)
        return -alpha * mean / (np.sqrt(square) + 1e-7)

    before = change(5, 0.9 * mean, 0.999 * square)
    for number, gradient in enumerate(random_vectors(5, 8)):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        ahead = change(6 + number, 0.9 * mean, 0.999 * square)
        expected = change(5 + number, mean, square) + ahead - before
        np.testing.assert_allclose(found[number], expected, rtol=2e-4, atol=1e-5)
        before = ahead


def test_a_rate_stays_where_no_parameter_says_more() -> None:
    """All of them are trained by rows."""
    steering, nothing = Steering(4.0), np.zeros(0, np.float32)
    assert [steering.factor(nothing, nothing) for _ in range(9)] == [1.0] * 9


def test_a_rate_rises_while_all_go_downhill() -> None:
    own = OwnSlots(np.zeros(2, np.float32), 0, plain_sgd, most_raise=2.0)
    theta, seen = np.zeros(2, np.float32), []
    for _ in range(30):
        change = np.ones(2, np.float32)
        own.turn(theta, change, RATE, 0.0)
        seen.append(-float(change[0]) / RATE)
        theta = theta - np.float32(0.1)
    np.testing.assert_allclose(seen, np.minimum(2.0, RISE ** np.arange(30)), rtol=1e-5)


def plain_sgd(
    parameters: Any, gradient: Any, ahead: Any, slots: Any, updates: int, rate: float
) -> None:
    """SGD without momentum."""
    gradient *= np.float32(-rate)
    ahead[:] = 0
