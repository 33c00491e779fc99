"""What goes wrong with a first workload is said in one line that tells what to change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.keras_parts import build_metric, build_model, build_optimizer
from syncswitch.trainers.model.function import ModelFunction
from tests.trainers.jobs import DENSE, dense_model, digits_data

CLASSES = digits_data().train_labels
ONE_HOT = np.eye(10, dtype="float32")[CLASSES]


def refused(changes: dict[str, Any], expected: str, **examples: Any) -> None:
    data = replace(digits_data(), **examples)
    with pytest.raises(WorkloadError, match=expected) as error:
        ModelFunction(replace(DENSE, **changes), data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("labels", "loss", "expected"),
    [
        (
            CLASSES + 1,
            None,
            "classes from 1 to 10, and the model has 10 outputs, for 0 to 9",
        ),
        (CLASSES - 1, None, "classes from -1 to 8, and the model has 10 outputs"),
        (ONE_HOT, None, "these labels are one-hot, of shape .10,.; give categorical_crossentropy"),
        (CLASSES, "categorical_crossentropy", "takes one-hot labels, and these are numbers of"),
        (CLASSES.astype(str), None, "the labels are text such as .*give numbers of classes"),
        (np.where(CLASSES, CLASSES, np.nan), "mse", r"\d+ labels are NaN, so that every loss"),
    ],
)
def test_labels(keras: Any, labels: Any, loss: str | None, expected: str) -> None:
    refused({"loss": loss} if loss else {}, expected, train_labels=labels)


def test_a_class_that_is_ignored_is_no_error(keras: Any) -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    ModelFunction(replace(DENSE, loss=loss), replace(digits_data(), train_labels=CLASSES - 1))


def test_inputs(keras: Any) -> None:
    inputs = digits_data().train_inputs
    flat = inputs.reshape(len(inputs), -1)
    refused(
        {}, r"has the shape \(64,\), and the model takes \(8, 8, 1\); reshape", train_inputs=flat
    )
    batches = np.repeat(inputs[:, None], 3, 1)
    refused({}, "it is a batch of 3; leave out batch", train_inputs=batches)
    words = np.full(inputs.shape, "a")
    refused({}, "is text, and the model takes float32; make numbers of it", train_inputs=words)
    refused({}, "the model takes '.*, and data.. gives 'a'; name", train_inputs={"a": inputs})
    refused({}, "the model takes 1 inputs, .*gives 2; give a dict", train_inputs=(inputs, inputs))


def test_missing_values_are_told_and_trained(keras: Any, caplog: pytest.LogCaptureFixture) -> None:
    inputs = digits_data().train_inputs.copy()
    inputs[3, 2] = np.nan
    with caplog.at_level(logging.WARNING):
        ModelFunction(replace(DENSE, name="holes"), replace(digits_data(), train_inputs=inputs))
    assert "8 values of train_inputs are NaN" in caplog.text


@pytest.mark.parametrize(
    ("field", "make", "build", "expected"),
    [
        ("model", lambda _: dense_model(), build_model, "model is a Sequential; give a function"),
        ("model", lambda _: dense_model(), build_model, "from_compiled makes a workload"),
        ("optimizer", lambda _: "adam", build_optimizer, "optimizer is 'adam'; give a function"),
        ("optimizer", lambda of: of.optimizers.Adam(), build_optimizer, "optimizer is a Adam; giv"),
        ("metric", lambda of: of.metrics.AUC(), build_metric, "metric is a AUC; give a function"),
    ],
)
def test_what_is_no_function_that_builds(
    keras: Any, field: str, make: Callable[[Any], Any], build: Callable[[Any], Any], expected: str
) -> None:
    with pytest.raises(WorkloadError, match=expected):
        build(replace(DENSE, **{field: make(keras)}))
