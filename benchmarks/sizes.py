"""Sizes of model, for what depends on how many bytes cross.

Of digits a worker-step pulls all parameters and pushes as many gradients; of clicks, which has two
embeddings of 5 million rows, the rows of its batch. There is no end to the training:
whoever measures stops it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.workloads import clicks, digits

WIDTH = 4096


def _data() -> Data:
    """Digits with a test set that takes no time."""
    data = digits.workload.data()
    return replace(data, test_inputs=data.test_inputs[:8], test_labels=data.test_labels[:8])


def _dense(hidden_layers: int) -> Callable[[], Any]:
    def model() -> Any:
        from keras import Input, Sequential, layers

        return Sequential(
            [
                Input((8, 8, 1)),
                layers.Flatten(),
                *(layers.Dense(WIDTH, activation="relu") for _ in range(hidden_layers)),
                layers.Dense(10, activation="softmax"),
            ]
        )

    return model


def _workload(name: str, interval: int, **changes: Any) -> Workload:
    """Tests are the moments at which a run can be stopped: one every few seconds."""
    return replace(
        digits.workload,
        name=name,
        data=_data,
        total_worker_steps=1000 * 1000,
        learning_rate_boundaries=(),
        evaluation_interval_worker_steps=interval,
        **changes,
    )


# 8 examples: the less there is to compute, the more the exchange counts.
_LARGE = {"batch_size": 8, "learning_rate": 1e-4}
digits_cnn = _workload("digits", 200)
dense_17m = _workload("dense-17m", 64, model=_dense(2), **_LARGE)
dense_100m = _workload("dense-100m", 16, model=_dense(7), **_LARGE)
SPARSE_ROWS, SPARSE_BATCH, SPARSE_RATE = 5_000_000, 512, 0.1


@functools.cache
def sparse_data() -> Data:
    made = clicks.generate(64 * 1024, SPARSE_ROWS)
    labels = made.labels[:, np.newaxis]
    return Data(made.inputs, labels, made.inputs[:8], labels[:8])


sparse_160m = _workload(
    "sparse-160m",
    64,
    model=functools.partial(clicks.click_model, clicks.DENSE, 2, SPARSE_ROWS),
    loss="binary_crossentropy",
    metric=clicks.auc,
    batch_size=SPARSE_BATCH,
    learning_rate=SPARSE_RATE,
    momentum=0.0,
)
sparse_160m = replace(sparse_160m, data=sparse_data)

SPARSE = "160m-sparse"
PARAMETERS = {"14k": 13_706, "17m": 17_088_522, "100m": 100_995_082, SPARSE: 160_001_777}
"""Of each size."""

WORKLOADS = {
    "14k": "benchmarks.sizes:digits_cnn",
    "17m": "benchmarks.sizes:dense_17m",
    "100m": "benchmarks.sizes:dense_100m",
    SPARSE: "benchmarks.sizes:sparse_160m",
}
"""References of the workloads, as trainers take them."""
