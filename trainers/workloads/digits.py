"""Handwritten digits: a small convolutional network, trained in seconds.

The 1,797 images of 8 x 8 pixels, from the UCI Optical Recognition of Handwritten Digits data, come
with the package.

BSP trains well at this learning rate (whose scaling ends at 8 workers), ASP from the start does
not: its gradients, 1.2 updates old on average with 4 workers on two cores and 3 with 8, make most
runs diverge. After the first few percent in BSP they do no harm.
"""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload

_TEST_EXAMPLES = 597
_TOTAL_WORKER_STEPS = 4000


def _load() -> Data:
    import numpy as np

    from syncswitch.trainers.workloads.shipped import shipped_table

    table = shipped_table("digits")
    inputs = (table[:, :-1].reshape(-1, 8, 8, 1) / 16.0).astype(np.float32)
    labels = table[:, -1].astype(np.int32)
    # The images are sorted by writer in part: a fixed shuffle makes the two sets alike.
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[_TEST_EXAMPLES:], order[:_TEST_EXAMPLES]
    return Data(inputs[train], labels[train], inputs[test], labels[test])


def _model() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="tanh"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="tanh"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="tanh"),
            layers.Dense(10, activation="softmax"),
        ]
    )


workload = Workload(
    name="digits",
    model=_model,
    data=_load,
    data_set="scikit-learn digits, 1200 train, 597 test",
    total_worker_steps=_TOTAL_WORKER_STEPS,
    batch_size=32,
    learning_rate=0.055,
    momentum=0.9,
    largest_scaling=8,
    learning_rate_boundaries=(
        (_TOTAL_WORKER_STEPS // 2, 0.1),
        (_TOTAL_WORKER_STEPS * 3 // 4, 0.01),
    ),
    evaluation_interval_worker_steps=_TOTAL_WORKER_STEPS // 40,
)
