"""What `fit` would read, in each of the forms in which it takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.workload import Workload

X = np.arange(40, dtype="float32").reshape(20, 2)
Y = (np.arange(20) % 2).astype("int32")
TEST = (X[:4], Y[:4])


def pieces(keras: Any, *, has_weights: bool = False, batch: Any = None, length: int = 3) -> Any:
    """All examples in batches of 8, the last of 4."""

    class Pieces(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return length

        def __getitem__(self, number: int) -> Any:
            if batch is not None:
                return batch
            part = slice(number * 8, number * 8 + 8)
            found = ({"a": X[part, :1], "b": X[part, 1:]}, Y[part])
            return (*found, X[part, 0]) if has_weights else found

    return Pieces()


def dataset(batches: int = -1) -> Any:
    import tensorflow as tf

    whole = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    return whole.take(batches)


def made(keras: Any, x: Any, y: Any = None, **given: Any) -> Workload:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return from_compiled(model, x, y, name="here", epochs=2, **given)


@pytest.mark.parametrize("has_weights", [False, True])
def test_batches_of_a_py_dataset_are_joined(keras: Any, has_weights: bool) -> None:
    workload = made(keras, pieces(keras, has_weights=has_weights), validation_data=TEST)
    assert (workload.batch_size, workload.total_worker_steps) == (8, 6)
    data = workload.load_data()
    assert (data.train_inputs["b"] == X[:, 1:]).all()
    assert (data.train_labels == Y).all()
    assert (data.test_inputs == TEST[0]).all()
    if has_weights:
        assert (data.train_weights == X[:, 0]).all()


def test_pipelines_and_arrays_go_together(keras: Any) -> None:
    for given in (
        made(keras, dataset(), validation_data=TEST),
        made(keras, X, Y, validation_data=dataset(1), batch_size=8),
    ):
        assert given.total_worker_steps == 6
        data = given.load_data()
        assert (data.train_labels == Y).all()
        assert (data.test_labels == Y[: len(data.test_labels)]).all()


def _batches() -> Iterator[Any]:
    while True:
        yield X, Y


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"x": lambda _: _batches()}, r"x is a generator, .*from_generator\(...\).take\(BATCHES\)"),
        ({"x": lambda _: dataset().repeat()}, "x does not know how many batches it has"),
        ({"x": lambda _: dataset(), "validation_data": None}, "give validation_data, another"),
        ({"x": lambda _: dataset(), "validation_data": 3}, "validation_data is a int, and there"),
        ({"x": lambda of: pieces(of, batch=X)}, r"x yields no \(inputs, labels\), or"),
        ({"x": lambda of: pieces(of, length=0)}, "x does not know how many batches it has"),
    ],
)
def test_what_cannot_be_read_is_said(keras: Any, given: dict[str, Any], expected: str) -> None:
    x = given.pop("x")(keras)
    with pytest.raises(WorkloadError, match=expected) as error:
        made(keras, x, **{"validation_data": TEST, **given})
    assert "\n" not in str(error.value)


def test_an_endless_pipeline_is_refused_when_it_is_read(keras: Any) -> None:
    workload = made(keras, dataset().repeat(), validation_data=TEST, steps_per_epoch=3)
    with pytest.raises(WorkloadError, match="the x pipeline is endless; leave out repeat"):
        workload.load_data()
