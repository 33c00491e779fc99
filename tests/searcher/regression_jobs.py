"""A job of numbers to be predicted, decided by an error or by the loss of its tests."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from syncswitch import Data, Workload


def model(**options: Any) -> Any:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, **options)])


def data() -> Data:
    numbers = np.random.default_rng(1)
    inputs = numbers.normal(size=(320, 4)).astype(np.float32)
    labels = inputs @ np.array([[3.0], [-2.0], [1.0], [0.5]], np.float32) + 7
    return Data(inputs[:256], labels[:256], inputs[256:], labels[256:])


def job(metric: str, **fields: Any) -> Workload:
    return Workload(
        name=f"kilometres by {metric}",
        model=model,
        data=data,
        data_set="made up",
        total_worker_steps=240,
        batch_size=16,
        learning_rate=0.01,
        evaluation_interval_worker_steps=24,
        loss="mse",
        metric=metric,
        **fields,
    )


mae = job("mae", metric_unit="km")
constant = replace(
    mae, name="constant", learning_rate=1e-30, model=partial(model, kernel_initializer="zeros")
)
loss = job("loss")


def above() -> Data:
    """Whether the number is above its mean."""
    found = data()
    return replace(
        found,
        train_labels=(found.train_labels > 7).astype(np.int32),
        test_labels=(found.test_labels > 7).astype(np.int32),
    )


def perplexity() -> Any:
    """The exponential of the mean cross-entropy."""
    import keras

    class Perplexity(keras.metrics.BinaryCrossentropy):  # type: ignore[misc]
        def result(self) -> Any:
            return keras.ops.exp(super().result())

    return Perplexity(name="perplexity")


mse = job("mse", further_metrics=("mae", "RootMeanSquaredError"))
auc = replace(
    job("AUC"),
    model=partial(model, activation="sigmoid"),
    data=above,
    loss="binary_crossentropy",
    further_metrics=("loss", "accuracy", perplexity),
)
surprise = replace(
    auc, metric=perplexity, metric_goal="min", metric_range=(1, None), further_metrics=("AUC",)
)
