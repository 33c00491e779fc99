"""Convolutions on small pictures: on one machine a job whose ASP is slower than BSP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.second_phase_jobs import adam
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload

_TRAIN, _TEST = 1_280, 320


def pictures() -> Data:
    """Noise of 16 x 16; the label says whether one place is bright in the mean."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(_TRAIN + _TEST, 16, 16, 1)).astype("float32")
    labels = (inputs[:, 4:8, 4:8].mean((1, 2, 3)) > 0).astype("int32")
    return Data(inputs[:_TRAIN], labels[:_TRAIN], inputs[_TRAIN:], labels[_TRAIN:])


def convolutions() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((16, 16, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(2, activation="softmax"),
        ]
    )


SGD = Workload(
    name="pictures",
    model=convolutions,
    data=pictures,
    data_set="bright or not, 16 x 16",
    total_worker_steps=1_600,
    batch_size=32,
    learning_rate=0.01,
    momentum=0.9,
    evaluation_interval_worker_steps=80,
)
ADAM = replace(SGD, name="pictures-adam", optimizer=adam, learning_rate=0.001, momentum=0.0)
