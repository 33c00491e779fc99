from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.model.layout import FlatLayout

shapes = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), max_size=6).map(tuple)


def layout_of(shapes: tuple[tuple[int, ...], ...]) -> FlatLayout:
    return FlatLayout(tuple(f"{index:03d}-v" for index in range(len(shapes))), shapes)


class Variable:
    """As much of a Keras variable as a layout looks at."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> None:
        self.name, self.shape, self.dtype, self.path = name, shape, dtype, f"model/{name}"


@given(shapes)
def test_pack_and_split_are_inverse(shapes: tuple[tuple[int, ...], ...]) -> None:
    layout = layout_of(shapes)
    flat = np.arange(layout.size, dtype=np.float32)
    parts = layout.split(flat)
    assert [part.shape for part in parts] == list(shapes)
    np.testing.assert_array_equal(layout.pack(parts), flat)


@given(shapes)
def test_named_arrays_come_back_in_any_order(shapes: tuple[tuple[int, ...], ...]) -> None:
    layout = layout_of(shapes)
    flat = np.arange(layout.size, dtype=np.float32)
    named = layout.name(flat)
    np.testing.assert_array_equal(layout.from_named(dict(reversed(named.items()))), flat)


def test_names_do_not_depend_on_how_many_layers_were_built_before(keras: Any) -> None:
    def layout() -> FlatLayout:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        return FlatLayout.of(enumerate(model.trainable_variables), "parameter")

    assert layout() == layout()
    assert len(set(layout().names)) == 4


def test_a_missing_or_misshapen_array_is_refused() -> None:
    layout = layout_of(((2, 3),))
    with pytest.raises(KeyError):
        layout.from_named({})
    with pytest.raises(ValueError, match="shape"):
        layout.from_named({"000-v": np.zeros((3, 2), np.float32)})


def test_only_float32_is_taken() -> None:
    with pytest.raises(WorkloadError, match="parameter 'model/kernel' is float64"):
        FlatLayout.of([(0, Variable("kernel", (2,), "float64"))], "parameter")
