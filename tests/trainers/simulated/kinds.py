"""Tiny jobs of the kinds that people train with Keras: models, examples, how they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from syncswitch.trainers.job.workload import Workload

COUNT = 64
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(COUNT, 6)).astype("float32")
KIND = (X[:, 0] > 0).astype("int32")
VALUE = X[:, :1] - X[:, 1:2]
PICTURES = (KIND[:, None, None, None] + 0.3 * RANDOM.normal(size=(COUNT, 8, 8, 1))).astype("f4")
TOKENS = RANDOM.integers(1, 9, (COUNT, 5)) * (1 + 8 * KIND[:, None])
LENGTHS = RANDOM.integers(1, 6, COUNT)
SERIES = np.cumsum(X, axis=1)[:, :, None]
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


def _wide_and_deep(keras: Any) -> Any:
    wide, deep = keras.Input((4,), name="wide"), keras.Input((2,), name="deep")
    hidden = keras.layers.Dense(4, activation="relu")(deep)
    both = keras.layers.concatenate([wide, hidden])
    return keras.Model([wide, deep], keras.layers.Dense(2, activation="softmax")(both))


def _structured(keras: Any) -> Any:
    number, town = keras.Input((1,), name="number"), keras.Input((), name="town", dtype="int32")
    where = keras.layers.Embedding(10, 3)(town)
    both = keras.layers.concatenate([number, where])
    return keras.Model(
        {"number": number, "town": town}, keras.layers.Dense(1, activation="sigmoid")(both)
    )


def _two_tasks(keras: Any) -> Any:
    inputs = keras.Input((6,))
    outputs = {
        "kind": keras.layers.Dense(2, activation="softmax")(inputs),
        "value": keras.layers.Dense(1)(inputs),
    }
    return keras.Model(inputs, outputs)


def _siamese(keras: Any) -> Any:
    one, other = keras.Input((3,)), keras.Input((3,))
    shared = keras.layers.Dense(4)
    apart = keras.layers.Subtract()([shared(one), shared(other)])
    return keras.Model((one, other), keras.layers.Dense(1, activation="sigmoid")(apart))


def _residual(keras: Any) -> Any:
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(2, 3, padding="same")(inputs)
    hidden = keras.layers.Add()([hidden, keras.layers.Conv2D(2, 3, padding="same")(hidden)])
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.BatchNormalization()(hidden))
    return keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(pooled))


def _attention(keras: Any) -> Any:
    inputs = keras.Input((5,), dtype="int32")
    hidden = keras.layers.Embedding(90, 4)(inputs)
    hidden = keras.layers.MultiHeadAttention(2, 2)(hidden, hidden)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
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
    """By topic."""
    rows, pictures = _one_after_another(6), _one_after_another(8, 8, 1)
    tokens, series = _one_after_another(5, dtype="int32"), _one_after_another(6, 1)
    dense = rows(lambda of: [of.Dense(4, activation="relu"), _softmax(of)])
    sigmoid = rows(lambda of: [of.Dense(1, activation="sigmoid")])
    linear = rows(lambda of: [of.Dense(1)])
    one_hot = np.eye(2, dtype="float32")[KIND]
    return {
        "tabular": Kind(dense, X, KIND),
        "imbalanced": Kind(
            sigmoid, X, KIND, "binary_crossentropy", ["auc"], fitted={"class_weight": {1: 4.0}}
        ),
        "weighted": Kind(dense, X, KIND, fitted={"sample_weight": np.linspace(0, 2, COUNT)}),
        "one-hot": Kind(dense, X, one_hot, "crossentropy"),
        "regression": Kind(linear, X, VALUE, "huber", ["mae"]),
        "structured": Kind(
            _structured, {"number": X[:, :1], "town": KIND}, KIND, "binary_crossentropy"
        ),
        "wide and deep": Kind(_wide_and_deep, (X[:, :4], X[:, 4:]), KIND),
        "siamese": Kind(_siamese, [X[:, :3], X[:, 3:]], KIND, "binary_crossentropy"),
        "two tasks": Kind(
            _two_tasks,
            X,
            {"kind": KIND, "value": VALUE},
            {"kind": CLASSES, "value": "mse"},
            {"kind": ["accuracy"], "value": ["mae"]},
            {"loss_weights": {"kind": 1.0, "value": 0.2}},
        ),
        "autoencoder": Kind(
            rows(lambda of: [of.Dense(2, activation="relu"), of.Dense(6)]), X, X, "mse", ["mse"]
        ),
        "pictures": Kind(
            pictures(lambda of: [of.Conv2D(2, 3), of.MaxPooling2D(), of.Flatten(), _softmax(of)]),
            PICTURES,
            KIND,
        ),
        "residual": Kind(_residual, PICTURES, KIND),
        "segmentation": Kind(
            pictures(lambda of: [of.Conv2D(2, 3, padding="same", activation="softmax")]),
            PICTURES,
            (PICTURES[..., 0] > 0.5).astype("int32"),
        ),
        "text": Kind(
            tokens(lambda of: [of.Embedding(90, 4), of.GlobalAveragePooling1D(), _softmax(of)]),
            TOKENS,
            KIND,
        ),
        "attention": Kind(_attention, TOKENS, KIND),
        "tagging": Kind(
            tokens(lambda of: [of.Embedding(90, 4, mask_zero=True), _softmax(of)]),
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
        "series": Kind(
            series(lambda of: [of.Conv1D(3, 2), of.Flatten(), of.Dense(1)]),
            SERIES,
            VALUE,
            "mae",
            ["mae"],
        ),
        "preprocessed": Kind(_preprocessed, {"number": X, "town": TOWNS}, KIND),
        "raw text": Kind(_raw_text, TEXTS, KIND, "binary_crossentropy"),
        "own metric": Kind(linear, X, VALUE.astype("float64"), squared, [within_one]),
        "recurrent": Kind(series(lambda of: [of.SimpleRNN(3), _softmax(of)]), SERIES, KIND),
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
