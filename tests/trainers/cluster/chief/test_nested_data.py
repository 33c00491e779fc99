"""Nested, ragged, sparse and weighted examples train alike in threads and in processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.members.connected import ConnectedCluster
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.workload import Workload
from tests.trainers.cluster.engines import new_engine
from tests.trainers.final import assert_bitwise_equal, train_to_end

COUNT = 48


def model() -> Any:
    from keras import Input, Model, layers

    numbers, words = Input((4,), name="numbers"), Input((6,), sparse=True, name="words")
    tokens = Input((None,), ragged=True, dtype="int32", name="tokens")
    text = layers.GlobalAveragePooling1D()(layers.Embedding(10, 3)(tokens))
    hidden = layers.concatenate([numbers, layers.Dense(3)(words), text])
    outputs = {
        "kind": layers.Dense(2, activation="softmax")(hidden),
        "size": layers.Dense(1)(hidden),
    }
    return Model({"numbers": numbers, "words": words, "tokens": tokens}, outputs)


def data() -> Data:
    import tensorflow as tf
    from scipy.sparse import csr_array

    random = np.random.default_rng(0)
    numbers = random.normal(size=(COUNT, 4)).astype("float32")
    rows = [random.integers(1, 9, size=length).tolist() for length in random.integers(1, 6, COUNT)]
    words = csr_array(random.binomial(1, 0.3, (COUNT, 6)).astype("float32"))
    inputs = {"numbers": numbers, "words": words, "tokens": tf.ragged.constant(rows)}
    labels = {"kind": (numbers[:, 0] > 0).astype("int32"), "size": numbers[:, 1:2]}
    weights = np.linspace(0, 2, COUNT)
    return Data(inputs, labels, inputs, labels, train_weights=weights, test_weights=weights)


NESTED = Workload(
    name="nested",
    model=model,
    data=data,
    data_set="nested",
    total_worker_steps=24,
    batch_size=8,
    learning_rate=0.1,
    evaluation_interval_worker_steps=12,
    loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
    loss_weights={"kind": 1.0, "size": 0.1},
    metric_output="kind",
)


def test_in_threads_and_in_processes(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, 2)
    spec = TrialSpec(workload_identity(NESTED, 2, "bsp", "asp"), 100.0, 1)
    with ClusterTrainer(NESTED, 2) as trainer:
        record, state = train_to_end(trainer, spec, tmp_path / "threads")
        trainer._cluster = ConnectedCluster(trainer._program, 2, engine)
        other, same = train_to_end(trainer, spec, tmp_path / "processes")
    assert_bitwise_equal(state, same)
    found, wanted = ([one.accuracy for one in each.evaluations] for each in (other, record))
    assert found == wanted
