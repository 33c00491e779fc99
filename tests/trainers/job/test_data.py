from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.data import Data, chance_accuracy, class_numbers
from syncswitch.trainers.job.pipelines import Leaf, flatten, take_rows, unflatten
from tests.failing import fails
from tests.wording import Said

ONE = np.zeros(3)


def test_what_are_no_examples_is_said_in_one_line(said: Said) -> None:
    for fields in (
        {"train_labels": ONE[:2]},
        {"test_labels": ONE[:2]},
        {"test_weights": [1, 1]},
        {"test_inputs": ONE[:0], "test_labels": ONE[:0]},
        {"train_inputs": np.array([{"x": 1.0}] * 3)},
        {"train_inputs": 7},
        {"train_inputs": {}},
        {"train_inputs": {"a": ONE, "b": ONE[:2]}},
        {"train_inputs": {"a": 1}},
        {"train_inputs": [[1], [1, 2], [3]]},
        {"train_inputs": np.array([[1], [1, 2], []], object)},
        {"train_inputs": np.array([1, "a", None], object)},
        {"train_inputs": [ONE[:2]] * 3},
        *(
            {"train_weights": weights}
            for weights in ([1, -2, 1], [1, np.nan, 1], [1, np.inf, 1], ["a", "b", "c"])
        ),
    ):
        arrays = dict.fromkeys(("train_inputs", "train_labels", "test_inputs", "test_labels"), ONE)
        Data(**arrays)
        said.refusal("workload-unsuitable", Data, **{**arrays, **fields})


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


def test_anything_but_pairs_is_refused(said: Said) -> None:
    for given in (
        lambda: pipeline(5).repeat(),
        sparse,
        lambda: pipeline(5).map(lambda x, _: x),
        lambda: pipeline(5).map(lambda x, y: (x, y, y, y)),
        lambda: pipeline(5).map(lambda x, y: {"x": x, "y": y}),
        lambda: pipeline(5).take(0),
        lambda: pipeline(5).batch(2),
    ):
        said.refusal("workload-unsuitable", Data.from_datasets, pipeline(5), given())


def through(given: Any, numbers: list[int]) -> Any:
    rows, tree_spec = flatten("train_inputs", given)
    return unflatten(tree_spec, iter([one[numbers] for one in rows]))


def test_dicts_tuples_and_lists_stay_nested() -> None:
    one, other = np.arange(3), np.arange(6).reshape(3, 2)
    found = through({"b": (one, other), "a": [other, one]}, [2, 0])
    assert list(found) == ["a", "b"]
    assert isinstance(found["b"], tuple)
    assert isinstance(found["a"], list)
    assert found["b"][0].tolist() == found["a"][1].tolist() == [2, 0]
    assert found["b"][1].tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize("given", [[1, 2, 3], (1, 2, 3), ([1, 2], [3, 4]), [[0.5], [1.5]]])
def test_rows_of_numbers_are_one_array(given: Any) -> None:
    (row,), tree_spec = flatten("train_inputs", given)
    assert tree_spec == Leaf()
    assert row.tolist() == np.asarray(given).tolist()


def test_ragged_examples_keep_their_lengths() -> None:
    import tensorflow as tf

    ragged = tf.ragged.constant([[1, 2, 3], [], [4]])
    assert through(ragged, [2, 1, 0]).to_list() == [[4], [], [1, 2, 3]]
    words = tf.ragged.constant([["a", "b"], ["c"]])
    assert through(words, [1, 0]).to_list() == [[b"c"], [b"a", b"b"]]
    assert take_rows(ragged, np.array([2, 0])).to_list() == [[4], [1, 2, 3]]
    deeper = tf.ragged.constant([[[1], [2, 3]], [[4]]])
    with fails("workload-unsuitable", "train_inputs is ragged in 2 dimensions; give"):
        flatten("train_inputs", deeper)


def test_sparse_examples_are_those_of_the_matrix() -> None:
    import tensorflow as tf
    from scipy.sparse import csr_array

    dense = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], np.float32)
    for sparse in (csr_array(dense), tf.sparse.from_dense(dense)):
        found = through(sparse, [2, 1, 0])
        assert isinstance(found, tf.SparseTensor)
        assert (tf.sparse.to_dense(found).numpy() == dense[[2, 1, 0]]).all()
        assert (take_rows(sparse, np.array([2, 0])).toarray() == dense[[2, 0]]).all()
    with fails("workload-unsuitable", r"sparse tensor of shape \(3,\); give a matrix"):
        flatten("train_inputs", tf.sparse.from_dense([0.0, 1.0, 2.0]))


def test_tables_of_pandas_are_arrays() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    assert through(frame, [1]).tolist() == [[2.0, 1.5]]
    assert through(dict(frame), [1])["b"].tolist() == [1.5]
    with fails("workload-unsuitable", "train_inputs mixes int, str; give numbers alone"):
        flatten("train_inputs", frame.assign(b=["x", "y"]))
