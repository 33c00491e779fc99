"""Drafts that are written are tried, by three real steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.keras_api.draft.drafting import draft, try_workload

MODELS = """
import keras

def build(outputs=3, activation=None):
    dense = keras.layers.Dense(outputs, activation=activation)
    return keras.Sequential([keras.Input((4,)), dense])

def two():
    return build(2)

def compiled():
    model = build(1, "sigmoid")
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"])
    return model

def nothing():
    return None
"""
X = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")


@pytest.fixture
def write(keras: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    # Modules of a name are imported once.
    stem = f"models_of_{request.node.originalname}"

    def call(function: str, labels: Any) -> str:
        (tmp_path / f"{stem}.py").write_text(MODELS)
        np.savez(tmp_path / "data.npz", x=X, y=labels)
        path = tmp_path / "job.py"
        source, data = f"{tmp_path}/{stem}.py:{function}", str(tmp_path / "data.npz")
        path.write_text(draft(path, "job", source, data, None, 4, 8))
        return f"{path}:workload"

    return call


def test_a_plain_model(write: Any) -> None:
    tried = try_workload(write("build", X[:, :3].argmax(axis=1)))
    assert (tried.parameters, tried.examples, tried.test_examples) == (15, 40, 10)
    assert tried.total_worker_steps == 20
    assert 0 < tried.seconds < 5


def test_a_compiled_model_keeps_what_it_says(write: Any) -> None:
    reference = write("compiled", (X[:, 0] > 0).astype("int32"))
    assert try_workload(reference).parameters == 5
    workload = load_workload(reference)
    assert (workload.learning_rate, workload.loss) == (0.02, "binary_crossentropy")
    assert workload.total_worker_steps == 20


@pytest.mark.parametrize(
    ("function", "labels", "expected"),
    [
        ("two", X[:, :3].argmax(axis=1), "classes up to 2, and the model has 2 outputs; give it 3"),
        ("build", X[:, 0], "labels of --data are no classes, and the model is not compiled"),
        ("nothing", X[:, :3].argmax(axis=1), "--model makes a NoneType"),
        ("absent", X[:, :3].argmax(axis=1), "--model failed with ImportError"),
    ],
)
def test_what_does_not_fit(write: Any, function: str, labels: Any, expected: str) -> None:
    with pytest.raises(WorkloadError, match=expected):
        write(function, labels)
