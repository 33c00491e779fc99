"""Jobs of many kinds, as `compile` and `fit` would get them: search, run with the policy, page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from syncswitch.cli.run.main import main as run_program
from syncswitch.cli.search.main import main as search_program
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.kept import kept_for_the_next

COUNT = 64
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(COUNT, 6)).astype("float32")
KIND = (X[:, 0] > 0).astype("int32")
VALUE = X[:, :1] - X[:, 1:2]
PICTURES = (KIND[:, None, None, None] + 0.3 * RANDOM.normal(size=(COUNT, 8, 8, 1))).astype("f4")
TOKENS = RANDOM.integers(1, 9, (COUNT, 5)) * (1 + 8 * KIND[:, None])
LENGTHS = RANDOM.integers(1, 6, COUNT)
TOWNS = np.array(["Bern", "Rom"], object)[KIND][:, None]
TEXTS = np.array(["a good film", "a bad film"], object)[KIND]
CLASSES = "sparse_categorical_crossentropy"


@dataclass(frozen=True)
class Kind:
    """The arguments of `compile` and `fit`."""

    model: Callable[[Any], Any]
    x: Any
    y: Any
    loss: Any = CLASSES
    metrics: Any = ("accuracy",)
    compiled: dict[str, Any] = field(default_factory=dict)
    fitted: dict[str, Any] = field(default_factory=dict)


def _one_after_another(*shape: int | None, **options: Any) -> Callable[..., Callable[[Any], Any]]:
    """A sequential model of layers, given by a function of `keras.layers`."""

    def with_layers(of: Callable[[Any], list[Any]]) -> Callable[[Any], Any]:
        return lambda keras: keras.Sequential([keras.Input(shape, **options), *of(keras.layers)])

    return with_layers


def _two_tasks(keras: Any) -> Any:
    inputs = keras.Input((6,))
    outputs = {
        "kind": keras.layers.Dense(2, activation="softmax")(inputs),
        "value": keras.layers.Dense(1)(inputs),
    }
    return keras.Model(inputs, outputs)


def _residual(keras: Any) -> Any:
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(2, 3, padding="same")(inputs)
    hidden = keras.layers.Add()([hidden, keras.layers.Conv2D(2, 3, padding="same")(hidden)])
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.BatchNormalization()(hidden))
    return keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(pooled))


def _preprocessed(keras: Any) -> Any:
    """Learns what numbers and categories there are before it is trained."""
    scaled, known = keras.layers.Normalization(), keras.layers.StringLookup(output_mode="one_hot")
    scaled.adapt(X)
    known.adapt(TOWNS)
    number, town = keras.Input((6,), name="number"), keras.Input((1,), dtype="string", name="town")
    both = keras.layers.concatenate([scaled(number), known(town)])
    return keras.Model(
        {"number": number, "town": town}, keras.layers.Dense(2, activation="softmax")(both)
    )


def _raw_text(keras: Any) -> Any:
    of = keras.layers
    vectors = of.TextVectorization(output_sequence_length=4)
    vectors.adapt(TEXTS)
    pooled = [of.Embedding(9, 3), of.GlobalAveragePooling1D(), of.Dense(1, activation="sigmoid")]
    return keras.Sequential([keras.Input((), dtype="string"), vectors, *pooled])


def squared(labels: Any, outputs: Any) -> Any:
    """A loss as people write one; TensorFlow takes no two types of numbers from each other."""
    import keras

    return keras.ops.mean(keras.ops.square(labels - outputs), axis=-1)


def within_one(labels: Any, outputs: Any) -> Any:
    """A metric as people write one: the share of values that are missed by less than one."""
    import keras

    return keras.ops.cast(keras.ops.abs(labels - outputs) < 1, "float32")


def _ragged() -> Any:
    import tensorflow as tf

    rows = [row[:length].tolist() for row, length in zip(TOKENS, LENGTHS, strict=True)]
    return tf.ragged.constant(rows)


def _sparse() -> Any:
    from scipy.sparse import csr_array

    return csr_array(np.where(X > 0, X, 0))


def _softmax(layers: Any) -> Any:
    return layers.Dense(2, activation="softmax")


def kinds() -> dict[str, Kind]:
    """One of each mechanism, by topic; others differ in their layers alone."""
    rows = _one_after_another(6)
    dense = rows(lambda of: [of.Dense(4, activation="relu"), _softmax(of)])
    linear = rows(lambda of: [of.Dense(1)])
    return {
        "imbalanced": Kind(
            rows(lambda of: [of.Dense(1, activation="sigmoid")]),
            X,
            KIND,
            "binary_crossentropy",
            ["auc"],
            fitted={"class_weight": {1: 4.0}},
        ),
        "weighted": Kind(dense, X, KIND, fitted={"sample_weight": np.linspace(0, 2, COUNT)}),
        "regression": Kind(linear, X, VALUE, "huber", ["mae"]),
        "two tasks": Kind(
            _two_tasks,
            X,
            {"kind": KIND, "value": VALUE},
            {"kind": CLASSES, "value": "mse"},
            {"kind": ["accuracy"], "value": ["mae"]},
            {"loss_weights": {"kind": 1.0, "value": 0.2}},
        ),
        "residual": Kind(_residual, PICTURES, KIND),
        "tagging": Kind(
            _one_after_another(5, dtype="int32")(
                lambda of: [of.Embedding(90, 4, mask_zero=True), _softmax(of)]
            ),
            np.where(np.arange(5) < LENGTHS[:, None], TOKENS, 0),
            (TOKENS > 8).astype("int32"),
        ),
        "ragged text": Kind(
            _one_after_another(None, dtype="int32", ragged=True)(
                lambda of: [of.Embedding(90, 4), of.GlobalAveragePooling1D(), _softmax(of)]
            ),
            _ragged(),
            KIND,
        ),
        "bag of words": Kind(
            _one_after_another(6, sparse=True)(lambda of: [_softmax(of)]), _sparse(), KIND
        ),
        "preprocessed": Kind(_preprocessed, {"number": X, "town": TOWNS}, KIND),
        "raw text": Kind(_raw_text, TEXTS, KIND, "binary_crossentropy"),
        "own metric": Kind(linear, X, VALUE.astype("float64"), squared, [within_one]),
    }


def workload(name: str) -> Workload:
    """The workload of `compile` and `fit` for one of the kinds: 16 worker-steps."""
    import keras

    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    kind = kinds()[name]
    model = kind.model(keras)
    metrics = kind.metrics if isinstance(kind.metrics, dict) else list(kind.metrics)
    model.compile(keras.optimizers.SGD(0.05), kind.loss, metrics=metrics, **kind.compiled)
    return from_compiled(
        model,
        kind.x,
        kind.y,
        validation_data=(kind.x, kind.y),
        batch_size=16,
        epochs=4,
        name=name.replace(" ", "-"),
        evaluation_interval_worker_steps=4,
        **kind.fitted,
    )


# How the metric is called, unless it is the accuracy.
_METRICS = {
    "imbalanced": "AUC",
    "regression": "MeanAbsoluteError",
    "own metric": "within_one",
}


@pytest.fixture
def one_model() -> Iterator[None]:
    """For search and run, as to trace a model takes most of the time."""
    with kept_for_the_next():
        yield


def call(program: Any, *arguments: object) -> Result:
    result = CliRunner().invoke(program, list(map(str, arguments)))
    assert result.exit_code == 0, result.stderr
    return result


def measured(kind: Kind, path: Path) -> float:
    """What plain Keras says of the file of a model, by the metric that it is compiled with."""
    from syncswitch.trainers.model.tensorflow_api import keras, tf

    model = keras.saving.load_model(path)
    metrics = kind.metrics if isinstance(kind.metrics, dict) else list(kind.metrics)
    model.compile(loss=kind.loss, metrics=metrics, run_eagerly=True)
    x = tf.nest.map_structure(_text_as_tensor, kind.x)
    found = model.evaluate(x, kind.y, len(kind.y), return_dict=True, verbose=0)
    names = [name for name in found if not name.endswith("loss")]
    return float(found[min(names)])  # of two tasks the first one's


def _text_as_tensor(one: Any) -> Any:
    from syncswitch.trainers.model.tensorflow_api import tf

    return tf.constant(one.tolist()) if str(getattr(one, "dtype", "")) == "object" else one


@pytest.mark.usefixtures("one_model")
@pytest.mark.parametrize("name", kinds())
def test_it_is_searched_trained_and_reported(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    metric = _METRICS.get(name, "accuracy")
    # So much may be lost that the switch is at half of the job.
    threshold = 100.0 if name == "regression" else 0.9
    file = tmp_path / "job.py"
    file.write_text(
        f"from tests.searcher.test_kinds import workload as of\nworkload = of({name!r})\n"
    )
    job, stored = f"{file}:workload", ("--storage", url)
    monkeypatch.setenv("SYNCSWITCH_CHECKPOINTS", str(tmp_path / "checkpoints"))
    cluster = ("--trainer", "simulated", "--workers", 2)
    plan = ("--strategy", "paper", "--settings", 1, "--runs", 1, "--threshold", threshold)
    call(search_program, "run", job, *cluster, *plan, *stored)
    model, page = tmp_path / "model.keras", tmp_path / "report.html"
    found = json.loads(call(run_program, job, *cluster, "-o", model, "--json", *stored).stdout)
    policy = found["policy"]
    assert (policy["version"], policy["switch_percent"], policy["metric"]) == (1, 50.0, metric)
    assert [(one["protocol"], one["end_worker_step"]) for one in found["phases"]] == [
        ("bsp", 8),
        ("asp", 16),
    ]
    assert found["final_value"] == pytest.approx(measured(kinds()[name], model), abs=1e-5)
    call(search_program, "report", job, "-o", page, *stored)
    assert f">converged {metric}" in page.read_text()
