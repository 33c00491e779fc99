from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.model.function import ModelFunction
from tests.trainers.jobs import CONSTANT, constant_data


class TestOrderOfTheData:
    """Inputs are the numbers of the examples."""

    @staticmethod
    def batches(examples: int, batch_size: int, steps: int, seed: int = 3) -> list[list[int]]:
        import tensorflow as tf

        numbers = np.arange(examples, dtype=np.float32).reshape(-1, 1) * np.ones((1, 4), np.float32)
        data = Data(numbers, numbers[:, :1], numbers[:1], numbers[:1, :1])
        function = ModelFunction(replace(CONSTANT, batch_size=batch_size), data)
        arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)
        result = []
        for step in range(steps):
            inputs, labels, _ = function.batch(arrays, np.int64(step), np.int64(seed))
            np.testing.assert_array_equal(inputs[:, :1], labels)
            result.append([int(value) for value in inputs[:, 0]])
        return result

    @pytest.mark.parametrize(("examples", "batch_size"), [(60, 12), (50, 12), (7, 16), (1, 2)])
    def test_each_epoch_holds_each_example_once(self, examples: int, batch_size: int) -> None:
        epochs = 4
        steps = -(-epochs * examples // batch_size)
        row = list(chain(*self.batches(examples, batch_size, steps)))
        for epoch in range(epochs):
            part = row[epoch * examples : (epoch + 1) * examples]
            assert Counter(part) == Counter(range(examples))

    def test_epochs_and_seeds_have_orders_of_their_own(self) -> None:
        row = self.batches(60, 60, 3)
        assert row[0] != row[1] != row[2] != row[0]
        assert row[0] != self.batches(60, 60, 1, seed=4)[0]
        assert row[0] != sorted(row[0])

    def test_the_seed_of_a_transform_is_that_of_the_batch(self) -> None:
        import tensorflow as tf

        def noise(inputs: Any, labels: Any, seed: Any) -> Any:
            return inputs + tf.random.stateless_normal(tf.shape(inputs), seed), labels

        data = replace(constant_data(), transform=noise)
        function = ModelFunction(CONSTANT, data)
        arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)

        def batch(step: int, seed: int) -> Any:
            return function.batch(arrays, np.int64(step), np.int64(seed))[0].numpy()

        np.testing.assert_array_equal(batch(5, 1), batch(5, 1))
        assert not np.allclose(batch(5, 1), batch(6, 1))
        assert not np.allclose(batch(5, 1), batch(5, 2))
