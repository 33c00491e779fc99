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

def subclassed():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.Dense(1)

        def call(self, inputs):
            return self.layer(inputs)

    model = Own()
    model.compile("sgd", "mse")
    return model

def single():
    return build(1)

def nested():
    inputs = {name: keras.Input((2,), name=name) for name in ("a", "b")}
    row = keras.layers.concatenate(list(inputs.values()))
    return keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(row))

def columns():
    import numpy as np
    x = np.load(__file__.replace(__file__.rpartition("/")[2], "data.npz"))["x"]
    return {"a": x[:, :2], "b": x[:, 2:]}, x[:, 0] > 0

def nothing():
    return None
"""
X = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")


@pytest.fixture
def write(keras: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    # Modules of a name are imported once.
    stem = f"models_of_{request.node.originalname}"

    def call(function: str, labels: Any, loading: str | None = None) -> str:
        (tmp_path / f"{stem}.py").write_text(MODELS)
        np.savez(tmp_path / "data.npz", x=X, y=labels)
        path = tmp_path / "job.py"
        source, data = f"{tmp_path}/{stem}.py:{function}", str(tmp_path / "data.npz")
        data = f"{tmp_path}/{stem}.py:{loading}" if loading else data
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


def test_values_have_an_error_and_its_metric(write: Any) -> None:
    workload = load_workload(write("single", X[:, 0]))
    assert (workload.loss, workload.metric) == ("mean_squared_error", "mae")


def test_a_class_of_ones_own_is_built_for_each_run(write: Any) -> None:
    workload = load_workload(write("subclassed", X[:, 0]))
    assert workload.metric == "loss"
    one, other = workload.model(), workload.model()
    assert (np.asarray(one.weights[0]) != np.asarray(other.weights[0])).any()


def test_inputs_by_name_and_labels_of_true_and_false(write: Any) -> None:
    tried = try_workload(write("nested", X[:, 0], "columns"))
    assert (tried.parameters, tried.examples, tried.test_examples) == (10, 40, 10)


@pytest.mark.parametrize(
    ("function", "labels", "expected"),
    [
        ("single", np.array(["no", "yes"] * 25), "--data are text such as .*; give numbers of"),
        ("two", X[:, :3].argmax(axis=1), "classes up to 2, and the model has 2 outputs; give it 3"),
        (
            "build",
            X[:, 0],
            "labels of --data are no classes of a single output, and the model is not compiled",
        ),
        ("nothing", X[:, :3].argmax(axis=1), "--model makes a NoneType"),
        ("absent", X[:, :3].argmax(axis=1), "--model failed with ImportError"),
    ],
)
def test_what_does_not_fit(write: Any, function: str, labels: Any, expected: str) -> None:
    with pytest.raises(WorkloadError, match=expected):
        write(function, labels)
