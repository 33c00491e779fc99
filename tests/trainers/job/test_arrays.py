"""Examples in the forms in which people have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.arrays import as_data
from syncswitch.trainers.job.data import Data

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)
PAIRS = ((X, Y), (X[:4], Y[:4]))
NAMED = {"x_train": X, "y_train": Y, "x_test": X[:4], "y_test": Y[:4]}


@pytest.mark.parametrize("given", [PAIRS, NAMED, Data(X, Y, X[:4], Y[:4])])
def test_test_examples_stay_what_they_are(given: Any) -> None:
    made = as_data(given)
    assert isinstance(made, Data)
    for one, other in (
        (made.train_inputs, X),
        (made.test_inputs, X[:4]),
        (made.test_labels, Y[:4]),
    ):
        assert (one == other).all()


@pytest.mark.parametrize("given", [(X, Y), [X, Y], {"x": X, "y": Y}])
def test_without_them_a_fifth_is_kept_always_the_same(given: Any) -> None:
    made, again = as_data(given), as_data(given)
    assert isinstance(made, Data)
    assert isinstance(again, Data)
    assert (len(made.train_inputs), len(made.test_inputs)) == (8, 2)
    assert sorted([*made.train_labels, *made.test_labels]) == list(range(10))
    assert (made.test_labels == again.test_labels).all()
    assert (made.test_inputs[:, 0] == 2 * made.test_labels).all()


def test_inputs_may_be_nested() -> None:
    made = as_data(({"a": X, "b": X + 1}, Y))
    assert isinstance(made, Data)
    assert made.train_inputs["a"].shape == (8, *X.shape[1:])
    assert (made.test_inputs["b"] == made.test_inputs["a"] + 1).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, "this is a int; give a Data"),
        ({"a": X}, "the arrays are a; give a Data"),
        ((X, Y[:3]), "10 inputs and 3 labels"),
    ],
)
def test_other_forms_are_refused(given: Any, expected: str) -> None:
    with pytest.raises(WorkloadError, match=expected):
        as_data(given)
