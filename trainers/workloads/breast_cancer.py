"""Breast tumours, benign or malignant: a small network on measured features, trained in seconds.

The 569 tumours with 30 features each, from the UCI Breast Cancer Wisconsin (Diagnostic) data, come
with the package.
"""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload

_TEST_EXAMPLES = 189
_TOTAL_WORKER_STEPS = 2400


def _load() -> Data:
    import numpy as np

    from syncswitch.trainers.workloads.shipped import shipped_table

    table = shipped_table("breast_cancer")
    features, labels = table[:, :-1], table[:, -1].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[_TEST_EXAMPLES:], order[:_TEST_EXAMPLES]
    mean, deviation = features[train].mean(axis=0), features[train].std(axis=0)
    inputs = ((features - mean) / deviation).astype(np.float32)
    return Data(inputs[train], labels[train], inputs[test], labels[test])


def _model() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((30,)),
            layers.Dense(64, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(2, activation="softmax"),
        ]
    )


workload = Workload(
    name="breast-cancer",
    model=_model,
    data=_load,
    data_set="scikit-learn breast cancer, 380 train, 189 test",
    total_worker_steps=_TOTAL_WORKER_STEPS,
    batch_size=16,
    learning_rate=0.02,
    momentum=0.9,
    learning_rate_boundaries=(
        (_TOTAL_WORKER_STEPS // 2, 0.1),
        (_TOTAL_WORKER_STEPS * 3 // 4, 0.01),
    ),
    evaluation_interval_worker_steps=_TOTAL_WORKER_STEPS // 40,
)
