from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import Data, chance_accuracy, class_numbers

ONE = np.zeros(3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"train_labels": ONE[:2]}, "3 train inputs and 2 train labels"),
        ({"test_labels": ONE[:2]}, "3 test inputs and 2 test labels"),
        ({"test_weights": [1, 1]}, "3 test inputs and 3 test labels and 2 test weights"),
        ({"test_inputs": ONE[:0], "test_labels": ONE[:0]}, "at least one"),
        (
            {"train_inputs": np.array([{"x": 1.0}] * 3)},
            "train_inputs holds a dict for each example",
        ),
        ({"train_inputs": 7}, "train_inputs is a int; give an array with a row for each example"),
        ({"train_inputs": {}}, "train_inputs is an empty dict; give an array by each name"),
        ({"train_inputs": {"a": ONE, "b": ONE[:2]}}, "holds arrays of 2 and 3 examples"),
        ({"train_inputs": {"a": 1}}, r"train_inputs\['a'\] is a int; give an array"),
        ({"train_inputs": [[1], [1, 2], [3]]}, "is a list of arrays of unequal shapes .*pad_seq"),
        (
            {"train_inputs": np.array([[1], [1, 2], []], object)},
            "train_inputs holds a list for each example",
        ),
        (
            {"train_inputs": np.array([1, "a", None], object)},
            "train_inputs mixes NoneType, int, str; give numb",
        ),
        ({"train_inputs": [ONE[:2]] * 3}, r"2 train inputs and 3 train labels.*np.stack examples"),
        *(
            ({"train_weights": weights}, "train_weights holds .*; give each example a")
            for weights in ([1, -2, 1], [1, np.nan, 1], [1, np.inf, 1], ["a", "b", "c"])
        ),
    ],
    ids=str,
)
def test_what_are_no_examples_is_said_in_one_line(fields: dict[str, Any], words: str) -> None:
    arrays = dict.fromkeys(("train_inputs", "train_labels", "test_inputs", "test_labels"), ONE)
    Data(**arrays)
    with pytest.raises(WorkloadError, match=words) as error:
        Data(**{**arrays, **fields})
    assert "\n" not in str(error.value)


def test_names_of_files_are_examples() -> None:
    names = np.array(["a.png", "b.png"], object)
    assert Data(names, np.zeros(2), names, np.zeros(2)).train_inputs is names


@pytest.mark.parametrize(
    ("batches", "chance"),
    [
        ([[0, 1, 1, 2]], 0.5),
        ([[7, 7], [7]], 1.0),
        ([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0]]], 2 / 3),
        ([[0.5, 1.5], [0, 1]], None),
        ([[[0.2, 0.3], [1.0, 0.0]], [0, 1]], None),
    ],
)
def test_chance_is_the_share_of_the_most_frequent_class_or_unknown(
    batches: list[Any], chance: float | None
) -> None:
    assert chance_accuracy([class_numbers(np.asarray(labels)) for labels in batches]) == chance


def pipeline(examples: int) -> Any:
    import tensorflow as tf

    inputs = np.arange(2 * examples, dtype=np.float32).reshape(examples, 2)
    labels = np.arange(examples, dtype=np.int32)
    return tf.data.Dataset.from_tensor_slices((inputs, labels))


def sparse() -> Any:
    import tensorflow as tf

    rows = tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]])
    return tf.data.Dataset.from_tensor_slices((rows, [0, 1]))


def test_examples_of_pipelines_are_read_in_order() -> None:
    data = Data.from_datasets(pipeline(5), pipeline(3), print, repr)
    np.testing.assert_array_equal(data.train_inputs, np.arange(10).reshape(5, 2))
    np.testing.assert_array_equal(data.train_labels, np.arange(5))
    assert data.test_inputs.shape == (3, 2)
    assert data.train_inputs.dtype == np.float32
    assert (data.transform, data.test_transform) == (print, repr)


def test_examples_of_pipelines_may_be_nested_ragged_and_weighted() -> None:
    import tensorflow as tf

    ragged = tf.ragged.constant([[1, 2], [3]])
    rows = ({"b": ragged, "a": [5, 6]}, [0, 1], [0.5, 2.0])
    nested = tf.data.Dataset.from_tensor_slices(rows)
    data = Data.from_datasets(nested, nested)
    assert data.train_inputs["a"].tolist() == [5, 6]
    assert data.train_inputs["b"].to_list() == [[1, 2], [3]]
    assert data.train_weights.tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: pipeline(5).repeat(), "test pipeline is endless"),
        (sparse, "test pipeline yields sparse tensors; give Data"),
        (lambda: pipeline(5).map(lambda x, _: x), "test pipeline must yield"),
        (lambda: pipeline(5).map(lambda x, y: (x, y, y, y)), "test pipeline must yield"),
        (lambda: pipeline(5).map(lambda x, y: {"x": x, "y": y}), "test pipeline must yield"),
        (lambda: pipeline(5).take(0), "test pipeline must yield"),
        (lambda: pipeline(5).batch(2), "test pipeline differ in shape"),
    ],
)
def test_anything_but_pairs_is_refused(given: Any, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        Data.from_datasets(pipeline(5), given())
