"""Losses of several outputs, weights and masks are those of `compile` and `fit`."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.model.batches import Outputs, Weighted
from syncswitch.trainers.model.function import ModelFunction
from tests.failing import fails
from tests.trainers.jobs import CONSTANT, DENSE, digits_data
from tests.wording import Said

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(8, 3)).astype("float32")
CLASSES, VALUES = RANDOM.integers(0, 4, 8), RANDOM.normal(size=(8, 1)).astype("float32")
WEIGHTS = RANDOM.uniform(0, 2, 8).astype("float32")


def two_outputs(keras: Any, *, named: bool = True) -> Any:
    inputs = keras.Input((3,))
    kind = keras.layers.Dense(4, activation="softmax", name="kind")(inputs)
    size = keras.layers.Dense(1, name="size")(inputs)
    return keras.Model(inputs, {"kind": kind, "size": size} if named else [kind, size])


def of_keras(model: Any, loss: Any, labels: Any, factors: Any = None, weights: Any = None) -> float:
    model.compile("sgd", loss, loss_weights=factors, run_eagerly=True)
    found = model.evaluate(X, labels, sample_weight=weights, batch_size=8, verbose=0)
    return float(found[0] if isinstance(found, list) else found)


def mine(model: Any, loss: Any, labels: Any, factors: Any = None, weights: Any = None) -> float:
    outputs = Outputs(replace(CONSTANT, loss=loss, loss_weights=factors), model)
    told = labels if weights is None else Weighted(labels, weights)
    return float(outputs.loss(told, model(X)))


NAMED = {"kind": CLASSES, "size": VALUES}


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("factors", [None, "by name"])
@pytest.mark.parametrize("weights", [None, "by name", "one"])
def test_several_outputs(keras: Any, *, is_named: bool, factors: Any, weights: Any) -> None:
    model = two_outputs(keras, named=is_named)
    loss = {"kind": "sparse_categorical_crossentropy", "size": keras.losses.Huber(0.5)}
    labels: Any = NAMED if is_named else (CLASSES, VALUES)
    factors = {"kind": 0.5, "size": 2.0} if factors else None
    given = {None: None, "by name": {"kind": WEIGHTS, "size": 2 * WEIGHTS}, "one": WEIGHTS}[weights]
    if weights == "by name" and not is_named:
        given = (WEIGHTS, 2 * WEIGHTS)
    expected = of_keras(model, loss, labels, factors, given)
    assert mine(model, loss, labels, factors, given) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "loss", ["mse", "binary_crossentropy", "crossentropy", "object", "function", "builder"]
)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_one_output(keras: Any, loss: Any, weights: Any) -> None:
    def cubes(labels: Any, outputs: Any) -> Any:
        return keras.ops.mean(keras.ops.abs(labels - outputs) ** 3, axis=-1)

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid")])
    labels = (VALUES > 0).astype("float32")
    built = {"object": keras.losses.Huber(0.5), "function": cubes, "builder": cubes}.get(loss, loss)
    given = (lambda: cubes) if loss == "builder" else built
    expected = of_keras(model, built, labels, weights=weights)
    assert mine(model, given, labels, weights=weights) == pytest.approx(expected, rel=1e-5)


def test_padding_of_sequences_does_not_count(keras: Any) -> None:
    tokens = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [2, 2, 1, 3]])
    labels = np.array([[1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 0]])
    embedding = keras.layers.Embedding(4, 3, mask_zero=True)
    dense = keras.layers.Dense(2, activation="softmax")
    model = keras.Sequential([keras.Input((4,)), embedding, dense])
    loss = "sparse_categorical_crossentropy"
    model.compile("sgd", loss, run_eagerly=True)
    found = float(Outputs(replace(CONSTANT, loss=loss), model).loss(labels, model(tokens)))
    assert found == pytest.approx(model.evaluate(tokens, labels, verbose=0), rel=1e-5)


def test_the_metric_is_told_of_its_output_alone(keras: Any) -> None:
    model = two_outputs(keras)
    workload = replace(CONSTANT, loss={"kind": "ce", "size": "mse"}, metric_output="size")
    told = Outputs(workload, model).decisive(Weighted(NAMED, WEIGHTS), model(X))
    assert told.labels is VALUES
    assert told.outputs.shape == (8, 1)
    assert told.weights is WEIGHTS
    assert told.loss.__name__ == "mean_squared_error"


def test_names_that_do_not_fit(keras: Any, said: Said) -> None:
    for changes, labels in (
        ({"loss": {"kin": "mse"}}, NAMED),
        ({"loss": ["mse"]}, NAMED),
        ({"loss_weights": {"kin": 1.0}}, NAMED),
        ({}, {"kind": CLASSES}),
        ({}, VALUES),
    ):
        model = two_outputs(keras)
        outputs = Outputs(replace(CONSTANT, **{"loss": "mse", **changes}), model)
        said.refusal("workload-unsuitable", outputs.loss, labels, model(X))


@pytest.mark.parametrize("wanted", [None, "kin"])
def test_of_several_outputs_one_decides(keras: Any, wanted: str | None) -> None:
    model = two_outputs(keras)
    outputs = Outputs(replace(CONSTANT, metric_output=wanted), model)
    expected = f"metric_output is {wanted!r}, and the model has the outputs 'kind', 'size'; give"
    with fails("workload-unsuitable", expected):
        outputs.decisive(NAMED, model(X))


DIGITS = digits_data().train_labels
ONE_HOT = np.eye(10, dtype="float32")[DIGITS]


INPUTS = digits_data().train_inputs


def test_examples_that_the_model_cannot_take_are_refused(keras: Any, said: Said) -> None:
    for examples, loss in (
        ({"train_labels": DIGITS + 1}, None),
        ({"train_labels": DIGITS - 1}, None),
        ({"train_labels": ONE_HOT}, None),
        ({"train_labels": DIGITS}, "categorical_crossentropy"),
        ({"train_labels": DIGITS.astype(str)}, None),
        ({"train_labels": np.where(DIGITS, DIGITS, np.nan)}, "mse"),
        ({"train_inputs": INPUTS.reshape(len(INPUTS), -1)}, None),
        ({"train_inputs": np.repeat(INPUTS[:, None], 3, 1)}, None),
        ({"train_inputs": np.full(INPUTS.shape, "a")}, None),
        ({"train_inputs": {"a": INPUTS}}, None),
        ({"train_inputs": (INPUTS, INPUTS)}, None),
    ):
        workload = replace(DENSE, loss=loss) if loss else DENSE
        said.refusal(
            "workload-unsuitable", ModelFunction, workload, replace(digits_data(), **examples)
        )


def test_a_class_that_is_ignored_is_no_error(keras: Any) -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    ModelFunction(replace(DENSE, loss=loss), replace(digits_data(), train_labels=DIGITS - 1))


def test_missing_values_are_told_and_trained(keras: Any, caplog: pytest.LogCaptureFixture) -> None:
    inputs = INPUTS.copy()
    inputs[3, 2] = np.nan
    with caplog.at_level(logging.WARNING):
        ModelFunction(replace(DENSE, name="holes"), replace(digits_data(), train_inputs=inputs))
    assert "8 values of train_inputs are NaN" in caplog.text
