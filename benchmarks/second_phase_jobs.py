"""Jobs of other kinds for the benchmark of the second phase: Adam, AdamW, and BatchNorm."""

from __future__ import annotations

from dataclasses import replace
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.workloads import breast_cancer, digits

LENGTH, WIDTH, HEADS = 32, 32, 4
_TRAIN, _TEST = 40_000, 4_000
_PIECE = 997  # characters of the text between two examples' places; a prime


def texts() -> Data:
    """Pieces of the reference of Python, which comes with it, and the character after each."""
    text = "\n".join(topics[name] for name in sorted(topics))
    letters = sorted(set(text))
    codes = np.searchsorted(letters, list(text)).astype(np.int32)
    places = np.arange(_TRAIN + _TEST) * _PIECE % (len(codes) - LENGTH)
    inputs = codes[places[:, None] + np.arange(LENGTH)]
    labels = codes[places + LENGTH]
    return Data(inputs[:_TRAIN], labels[:_TRAIN], inputs[_TRAIN:], labels[_TRAIN:])


def transformer() -> Any:
    from keras import Input, Model, layers

    class Places(layers.Layer):  # type: ignore[misc]  # Keras has no types
        """Adds what is learned of each place."""

        def build(self, shape: Any) -> None:
            self.values = self.add_weight(shape=shape[1:], initializer="random_normal")

        def call(self, inputs: Any) -> Any:
            return inputs + self.values

    given = Input((LENGTH,), dtype="int32")
    hidden = Places()(layers.Embedding(256, WIDTH)(given))
    normal = layers.LayerNormalization()(hidden)
    hidden = hidden + layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(normal, normal)
    normal = layers.LayerNormalization()(hidden)
    hidden = hidden + layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(normal))
    last = layers.LayerNormalization()(hidden)[:, -1]
    return Model(given, layers.Dense(256, activation="softmax")(last))


def adamw() -> Any:
    from keras import optimizers

    return optimizers.AdamW(weight_decay=0.01)


def adam() -> Any:
    from keras import optimizers

    return optimizers.Adam()


TRANSFORMER = Workload(
    name="transformer",
    model=transformer,
    data=texts,
    data_set="topics of Python's reference",
    total_worker_steps=2400,
    batch_size=32,
    learning_rate=0.001,
    learning_rate_boundaries=((1200, 0.3), (1800, 0.1)),
    optimizer=adamw,
    largest_scaling=4,
    evaluation_interval_worker_steps=240,
)


def normalized() -> Any:
    from keras import Input, Sequential, layers

    hidden = (layers.Conv2D(16, 3, padding="same"), layers.Conv2D(32, 3, padding="same"))
    parts = [
        (one, layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()) for one in hidden
    ]
    end = layers.Flatten(), layers.Dense(10, activation="softmax")
    return Sequential([Input((8, 8, 1)), *parts[0], *parts[1], *end])


BATCHNORM = replace(digits.workload, name="batchnorm", model=normalized, learning_rate=0.02)

_SMALL_RATE = {"learning_rate": 0.001, "largest_scaling": 4}
DIGITS_ADAM = replace(digits.workload, name="digits-adam", optimizer=adam, **_SMALL_RATE)
BATCHNORM_ADAMW = replace(BATCHNORM, name="batchnorm-adamw", optimizer=adamw, **_SMALL_RATE)
BREAST_CANCER_ADAM = replace(
    breast_cancer.workload,
    name="breast-cancer-adam",
    optimizer=adam,
    learning_rate=0.002,
    largest_scaling=4,
)
