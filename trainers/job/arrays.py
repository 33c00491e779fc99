"""Examples in the forms in which people have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData, Data, StreamedData
from syncswitch.trainers.job.sources.nested import apart, taken

_FORMS = (
    "give a Data (of tf.data pipelines: Data.from_datasets), (inputs, labels), ((inputs, labels),"
    " (test inputs, test labels)), or arrays named x_train, y_train, x_test and y_test, or x and y"
)


def as_data(given: Any, test_share: float = 0.2) -> AnyData:
    """Makes the data of a workload of arrays in one of the usual forms.

    Args:
        given: `(x, y)`, `((x, y), (x_test, y_test))` as from `keras.datasets`, arrays by name as in
            a `.npz` file, or what is made already.
        test_share: Share of the examples, drawn once and for all, to test with where none are given
            for that.

    Raises:
        WorkloadError: It is none of these.
    """
    if isinstance(given, Data | StreamedData):
        return given
    if isinstance(given, Mapping):
        given = _named(given)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise WorkloadError(f"data: this is a {type(given).__name__}; {_FORMS}")
    one, other = given
    if isinstance(one, tuple | list) and len(one) == len(other) == 2:
        return Data(*one, *other)
    counts = [len(apart(name, part)[0][0]) for name, part in (("inputs", one), ("labels", other))]
    if counts[0] != counts[1]:
        raise WorkloadError(f"data: {counts[0]} inputs and {counts[1]} labels; {_FORMS}")
    order = np.random.default_rng(0).permutation(counts[0])
    test, train = np.split(order, [round(counts[0] * test_share)])
    return Data(*(taken(part, numbers) for numbers in (train, test) for part in (one, other)))


def _named(arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    train = ("x_train", "y_train")
    if {*train, "x_test", "y_test"} <= arrays.keys():
        return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
    if {"x", "y"} <= arrays.keys():
        return arrays["x"], arrays["y"]
    raise WorkloadError(f"data: the arrays are {', '.join(arrays) or 'none'}; {_FORMS}")
