"""What is taken apart comes together as it was, of a batch as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.nested import Leaf, apart, taken, together


def through(given: Any, numbers: list[int]) -> Any:
    rows, form = apart("train_inputs", given)
    return together(form, iter([one[numbers] for one in rows]))


def test_dicts_tuples_and_lists_keep_their_form() -> None:
    one, other = np.arange(3), np.arange(6).reshape(3, 2)
    found = through({"b": (one, other), "a": [other, one]}, [2, 0])
    assert list(found) == ["a", "b"]
    assert isinstance(found["b"], tuple)
    assert isinstance(found["a"], list)
    assert found["b"][0].tolist() == found["a"][1].tolist() == [2, 0]
    assert found["b"][1].tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize("given", [[1, 2, 3], (1, 2, 3), ([1, 2], [3, 4]), [[0.5], [1.5]]])
def test_rows_of_numbers_are_one_array(given: Any) -> None:
    (row,), form = apart("train_inputs", given)
    assert form == Leaf()
    assert row.tolist() == np.asarray(given).tolist()


def test_ragged_examples_keep_their_lengths() -> None:
    import tensorflow as tf

    ragged = tf.ragged.constant([[1, 2, 3], [], [4]])
    assert through(ragged, [2, 1, 0]).to_list() == [[4], [], [1, 2, 3]]
    words = tf.ragged.constant([["a", "b"], ["c"]])
    assert through(words, [1, 0]).to_list() == [[b"c"], [b"a", b"b"]]
    assert taken(ragged, np.array([2, 0])).to_list() == [[4], [1, 2, 3]]
    deeper = tf.ragged.constant([[[1], [2, 3]], [[4]]])
    with pytest.raises(WorkloadError, match="train_inputs is ragged in 2 dimensions; give"):
        apart("train_inputs", deeper)


def test_sparse_examples_are_those_of_the_matrix() -> None:
    import tensorflow as tf
    from scipy.sparse import csr_array

    dense = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], np.float32)
    for sparse in (csr_array(dense), tf.sparse.from_dense(dense)):
        found = through(sparse, [2, 1, 0])
        assert isinstance(found, tf.SparseTensor)
        assert (tf.sparse.to_dense(found).numpy() == dense[[2, 1, 0]]).all()
        assert (taken(sparse, np.array([2, 0])).toarray() == dense[[2, 0]]).all()
    with pytest.raises(WorkloadError, match=r"sparse tensor of shape \(3,\); give a matrix"):
        apart("train_inputs", tf.sparse.from_dense([0.0, 1.0, 2.0]))


def test_tables_of_pandas_are_arrays() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    assert through(frame, [1]).tolist() == [[2.0, 1.5]]
    assert through(dict(frame), [1])["b"].tolist() == [1.5]
    with pytest.raises(WorkloadError, match="train_inputs mixes int, str; give numbers alone"):
        apart("train_inputs", frame.assign(b=["x", "y"]))
