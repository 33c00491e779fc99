from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.job.keras_parts import EXCLUDED
from syncswitch.trainers.model.layout import FlatLayout
from syncswitch.trainers.model.optimizer import KerasOptimizer, MomentumSGD, make_optimizer
from tests.failing import fails
from tests.trainers.jobs import CONSTANT, CONSTANT_GRADIENT, momentum_answer

# That of `CONSTANT`.
LAYOUT = FlatLayout(("000-kernel",), ((4, 1),))


def made_of(optimizer: Callable[[], Any]) -> KerasOptimizer:
    made = make_optimizer(replace(CONSTANT, optimizer=optimizer), LAYOUT)
    assert isinstance(made, KerasOptimizer)
    return made


def apply(optimizer: Any, state: Any, rate: float, momentum: float = 0.9) -> tuple[Any, Any, int]:
    """One update with the constant gradient."""
    parameters, slots, updates = state
    moved = optimizer.apply(
        parameters, slots, np.int64(updates), CONSTANT_GRADIENT, np.float32(rate), momentum
    )
    parameters, slots = (np.asarray(part) for part in moved)
    return parameters, slots, updates + 1


def start_of(optimizer: Any) -> tuple[Any, Any, int]:
    return np.ones(4, np.float32), optimizer.initial_slots(), 0


def test_momentum_sgd_has_the_known_answer_with_changing_rates_and_momenta() -> None:
    optimizer = make_optimizer(CONSTANT, LAYOUT)
    assert isinstance(optimizer, MomentumSGD)
    assert optimizer.layout == FlatLayout(("momentum/000-kernel",), ((4, 1),))
    rates = [0.1, 0.1, 0.01, 0.0, 0.2]
    state = start_of(optimizer)
    for rate in rates:
        state = apply(optimizer, state, rate)
    parameters, accumulator = momentum_answer(rates, 0.9)
    np.testing.assert_allclose(state[0], parameters, rtol=1e-6)
    np.testing.assert_allclose(state[1], accumulator, rtol=1e-6)
    _, slots, _ = apply(optimizer, state, 0.1, momentum=0.0)
    np.testing.assert_allclose(slots, CONSTANT_GRADIENT)


class TestKerasOptimizer:
    def test_keeps_nothing_of_a_state_it_has_seen(self, keras: Any) -> None:
        optimizer = made_of(keras.optimizers.Adam)
        start = start_of(optimizer)
        first = apply(optimizer, start, 0.1)
        apply(optimizer, first, 0.1)
        again = apply(optimizer, start, 0.1)
        for one, other in zip(first[:2], again[:2], strict=True):
            np.testing.assert_array_equal(one, other)
        # Its step count is that of the state, which its bias correction depends on.
        late = apply(optimizer, (start[0], start[1], 100), 0.1)
        assert not np.allclose(late[0], first[0])

    def test_names_its_slots_alike_in_every_process(self, keras: Any) -> None:
        """Keras counts up the names of layers."""
        first = made_of(keras.optimizers.Adam).layout
        for _ in range(3):
            CONSTANT.model()
        assert made_of(keras.optimizers.Adam).layout == first
        assert len(set(first.names)) == len(first.names) == 2

    def test_what_a_compiled_model_excludes_does_not_decay(self, keras: Any) -> None:
        def excluding(*positions: int) -> Any:
            optimizer = keras.optimizers.AdamW(weight_decay=0.1)
            setattr(optimizer, EXCLUDED, positions)
            return optimizer

        for positions in ((), (0,)):
            optimizer = made_of(partial(excluding, *positions))
            parameters, slots, _ = start_of(optimizer)
            moved, _ = optimizer.apply(
                parameters, slots, np.int64(0), np.zeros(4, np.float32), np.float32(0.1), 0.0
            )
            assert (np.asarray(moved) < parameters).all() == (not positions)

    def test_what_cannot_be_built_is_one_line(self, keras: Any) -> None:
        class Broken(keras.optimizers.SGD):
            def build(self, variables: Any) -> None:
                raise NotImplementedError("no such thing")

        with fails("workload-unsuitable", "Broken cannot be built") as error:
            made_of(Broken)
        assert "\n" not in str(error.value)


shapes = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), max_size=6).map(tuple)


@given(shapes)
def test_what_is_split_or_named_comes_back(shapes: tuple[tuple[int, ...], ...]) -> None:
    layout = FlatLayout(tuple(f"{index:03d}-v" for index in range(len(shapes))), shapes)
    flat = np.arange(layout.size, dtype=np.float32)
    parts, named = layout.split(flat), layout.name(flat)
    assert [part.shape for part in parts] == list(shapes)
    np.testing.assert_array_equal(layout.pack(parts), flat)
    np.testing.assert_array_equal(layout.from_named(dict(reversed(named.items()))), flat)


def test_a_missing_or_misshapen_array_is_refused() -> None:
    layout = FlatLayout(("000-v",), ((2, 3),))
    with pytest.raises(KeyError):
        layout.from_named({})
    with pytest.raises(ValueError, match="shape"):
        layout.from_named({"000-v": np.zeros((3, 2), np.float32)})


def test_only_float32_is_taken() -> None:
    double = SimpleNamespace(name="kernel", shape=(2,), dtype="float64", path="model/kernel")
    with fails("workload-unsuitable", "parameter 'model/kernel' is float64"):
        FlatLayout.of([(0, double)], "parameter")
