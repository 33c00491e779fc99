"""A workload that trains in no time, for tests of what is around the training."""

from __future__ import annotations

from pathlib import Path

_TINY = """
import keras
import numpy as np

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload


def model():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation="softmax")])


def data():
    inputs = np.random.default_rng(0).normal(size=(80, 4)).astype("float32")
    labels = (inputs[:, 0] > 0).astype("int32")
    return Data(inputs[:60], labels[:60], inputs[60:], labels[60:])


workload = Workload(
    name="tiny",
    model=model,
    data=data,
    data_set="tiny",
    total_worker_steps=48,
    batch_size=4,
    learning_rate=0.05,
    evaluation_interval_worker_steps=8,
)
"""


def write_tiny_job(folder: Path) -> str:
    """Writes its module; returns how to load it."""
    (folder / "tiny.py").write_text(_TINY)
    return f"{folder}/tiny.py:workload"
