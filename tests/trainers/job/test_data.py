from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import Data, chance_accuracy, class_numbers


def of_labels(labels: Any) -> Data:
    labels = np.asarray(labels)
    inputs = np.zeros((len(labels), 2), np.float32)
    return Data(inputs, labels, inputs, labels)


def chance_of(*batches: Any) -> float | None:
    return chance_accuracy([class_numbers(np.asarray(labels)) for labels in batches])


class TestData:
    @pytest.mark.parametrize("part", ["train", "test"])
    def test_as_many_labels_as_inputs(self, part: str) -> None:
        arrays = {
            "train_inputs": np.zeros((3, 2)),
            "train_labels": np.zeros(3),
            "test_inputs": np.zeros((3, 2)),
            "test_labels": np.zeros(3),
        }
        Data(**arrays)
        with pytest.raises(WorkloadError, match=f"3 {part} inputs and 2 {part} labels"):
            Data(**{**arrays, f"{part}_labels": np.zeros(2)})

    @pytest.mark.parametrize(
        ("inputs", "words"),
        [
            (np.array([{"x": 1.0}] * 3), "train_inputs holds a dict for each example; give a dict"),
            (7, "train_inputs is a int; give an array with a row for each example"),
            ({}, "train_inputs is an empty dict; give an array by each name"),
            ({"a": np.zeros(3), "b": np.zeros(2)}, "train_inputs holds arrays of 2 and 3 examples"),
            ({"a": 1}, r"train_inputs\['a'\] is a int; give an array"),
            ([[1], [1, 2], [3]], "train_inputs is a list of arrays of unequal shapes .*pad_seq"),
            (np.array([[1], [1, 2], []], object), "train_inputs holds a list for each example"),
            (np.array([1, "a", None], object), "train_inputs mixes NoneType, int, str; give numb"),
            ([np.zeros(2)] * 3, r"2 train inputs and 3 train labels.*np.stack examples"),
        ],
        ids=["dicts", "number", "empty", "lengths", "scalar", "lists", "rows", "mixed", "examples"],
    )
    def test_what_are_no_inputs_is_said_in_one_line(self, inputs: Any, words: str) -> None:
        with pytest.raises(WorkloadError, match=words) as error:
            Data(inputs, np.zeros(3), np.zeros((3, 2)), np.zeros(3))
        assert "\n" not in str(error.value)

    def test_weights_are_numbers_of_zero_or_more(self) -> None:
        one = np.zeros(3)
        for wrong in ([1, -2, 1], [1, np.nan, 1], [1, np.inf, 1], ["a", "b", "c"]):
            with pytest.raises(WorkloadError, match=r"train_weights holds .*; give each example a"):
                Data(one, one, one, one, train_weights=wrong)
        with pytest.raises(WorkloadError, match="3 test inputs and 3 test labels and 2 test weig"):
            Data(one, one, one, one, test_weights=[1, 1])

    def test_names_of_files_are_examples(self) -> None:
        names = np.array(["a.png", "b.png"], object)
        assert Data(names, np.zeros(2), names, np.zeros(2)).train_inputs is names

    def test_at_least_one_example(self) -> None:
        with pytest.raises(WorkloadError, match="at least one"):
            of_labels([])

    def test_chance_is_the_share_of_the_most_frequent_class(self) -> None:
        assert chance_of([0, 1, 1, 2]) == 0.5
        assert chance_of([7, 7], [7]) == 1.0
        assert chance_of([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0]]) == 2 / 3

    @pytest.mark.parametrize("labels", [[0.5, 1.5], [[0.2, 0.3], [1.0, 0.0]]])
    def test_chance_is_unknown_for_other_labels(self, labels: Any) -> None:
        assert chance_of(labels, [0, 1]) is None


class TestFromDatasets:
    @staticmethod
    def pipeline(examples: int) -> Any:
        import tensorflow as tf

        inputs = np.arange(2 * examples, dtype=np.float32).reshape(examples, 2)
        labels = np.arange(examples, dtype=np.int32)
        return tf.data.Dataset.from_tensor_slices((inputs, labels))

    def test_examples_are_read_in_order(self) -> None:
        data = Data.from_datasets(self.pipeline(5), self.pipeline(3))
        np.testing.assert_array_equal(data.train_inputs, np.arange(10).reshape(5, 2))
        np.testing.assert_array_equal(data.train_labels, np.arange(5))
        assert data.test_inputs.shape == (3, 2)
        assert data.train_inputs.dtype == np.float32

    def test_transforms_are_kept(self) -> None:
        def one(inputs: Any, labels: Any, seed: Any) -> Any:
            return inputs, labels

        def two(inputs: Any, labels: Any) -> Any:
            return inputs, labels

        data = Data.from_datasets(self.pipeline(2), self.pipeline(2), one, two)
        assert (data.transform, data.test_transform) == (one, two)

    def test_an_endless_pipeline_is_refused(self) -> None:
        with pytest.raises(WorkloadError, match="train pipeline is endless"):
            Data.from_datasets(self.pipeline(5).repeat(), self.pipeline(3))

    def test_examples_may_be_nested_ragged_and_weighted(self) -> None:
        import tensorflow as tf

        ragged = tf.ragged.constant([[1, 2], [3]])
        rows = ({"b": ragged, "a": [5, 6]}, [0, 1], [0.5, 2.0])
        pipeline = tf.data.Dataset.from_tensor_slices(rows)
        data = Data.from_datasets(pipeline, pipeline)
        assert data.train_inputs["a"].tolist() == [5, 6]
        assert data.train_inputs["b"].to_list() == [[1, 2], [3]]
        assert data.train_weights.tolist() == [0.5, 2.0]

    def test_sparse_examples_are_refused(self) -> None:
        import tensorflow as tf

        sparse = tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]])
        pipeline = tf.data.Dataset.from_tensor_slices((sparse, [0, 1]))
        with pytest.raises(WorkloadError, match="train pipeline yields sparse tensors; give Data"):
            Data.from_datasets(pipeline, pipeline)

    @pytest.mark.parametrize(
        "change",
        [
            lambda pipeline: pipeline.map(lambda inputs, labels: inputs),
            lambda pipeline: pipeline.map(lambda inputs, labels: (inputs, labels, labels, labels)),
            lambda pipeline: pipeline.map(lambda inputs, labels: {"x": inputs, "y": labels}),
            lambda pipeline: pipeline.take(0),
            pytest.param(
                lambda pipeline: pipeline.batch(2),
            ),
        ],
        ids=["inputs alone", "quadruples", "dictionaries", "empty", "batches of unequal size"],
    )
    def test_anything_but_pairs_is_refused(self, change: Any) -> None:
        with pytest.raises(WorkloadError, match="test pipeline"):
            Data.from_datasets(self.pipeline(5), change(self.pipeline(5)))
