"""A small job with embedding tables, as recommenders have: one column of numbers for each table."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload

USERS, ITEMS, WIDTH = 300, 41, 4
BATCH_SIZE = 8


@functools.cache
def clicks_data(users: int = USERS) -> Data:
    """Numbers with a long tail, and whether a user of this kind clicks on an item of that kind."""
    random = np.random.default_rng(0)
    examples = 640
    user = np.minimum(random.zipf(1.3, examples), users) - 1
    item = random.integers(0, ITEMS, examples)
    labels = ((user + item) % 2 == 0).astype(np.int64)
    inputs = np.stack([user, item], axis=1).astype(np.int64)
    return Data(inputs, labels, inputs[:96], labels[:96])


def clicks_model(users: int = USERS, initializer: Any = "uniform") -> Any:
    from keras import Input, Model, layers

    inputs = Input((2,), dtype="int64")
    user = layers.Embedding(users, WIDTH, initializer, name="user")(inputs[:, 0])
    item = layers.Embedding(ITEMS, WIDTH, initializer, name="item")(inputs[:, 1])
    joined = layers.Concatenate()([user, item, user * item])
    hidden = layers.Dense(8, "relu", name="hidden")(joined)
    return Model(inputs, layers.Dense(2, "softmax", name="output")(hidden))


def constant_clicks_model() -> Any:
    """All rows begin alike, so that it does not matter how they are made."""
    from keras import initializers

    return clicks_model(initializer=initializers.Constant(0.25))


CLICKS = Workload(
    name="small-clicks",
    model=clicks_model,
    data=clicks_data,
    data_set="generated",
    total_worker_steps=240,
    batch_size=BATCH_SIZE,
    learning_rate=0.05,
    evaluation_interval_worker_steps=40,
    least_table_values=ITEMS * WIDTH,
)
"""Both tables are trained by their rows."""

WHOLE = replace(CLICKS, least_table_values=None)
"""The same job with tables that every step moves whole."""


def adam() -> Any:
    from keras import optimizers

    return optimizers.Adam()


def adagrad() -> Any:
    from keras import optimizers

    return optimizers.Adagrad()


def keras_momentum() -> Any:
    from keras import optimizers

    return optimizers.SGD(momentum=0.8)


def keras_sgd() -> Any:
    from keras import optimizers

    return optimizers.SGD()


OPTIMIZERS = (None, keras_momentum, keras_sgd, adagrad, adam)
