from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import numpy as np
import pytest
from keras import losses, metrics

from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.tensorflow_api import tf
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.run.record import Position, trial_record
from tests.identities import GENERATED
from tests.trainers.jobs import CONSTANT
from tests.wording import Said


def one_hot(numbers: np.ndarray) -> np.ndarray:
    return np.eye(3, dtype=np.float32)[numbers]


EXAMPLES = 1100
TRUTH = np.random.default_rng(0).integers(0, 3, EXAMPLES)
# The model's outputs are its inputs: right for all but every seventh example.
GUESS = np.where(np.arange(EXAMPLES) % 7 == 0, (TRUTH + 1) % 3, TRUTH)
ACCURACY = 1 - len(range(0, EXAMPLES, 7)) / EXAMPLES
GUESSES, TRUTHS = one_hot(GUESS), one_hot(TRUTH)
HALF = TRUTH % 2
HALF_GUESS = np.where(np.where(np.arange(EXAMPLES) % 7 == 0, 1 - HALF, HALF), 0.8, 0.3)
SPARSE = "sparse_categorical_crossentropy"
OF_LOGITS = partial(losses.BinaryCrossentropy, from_logits=True)


def make_tester(
    keras: Any,
    outputs: Any = GUESSES,
    labels: Any = TRUTHS,
    loss: Any = "mse",
    test_transform: Any = None,
    **fields: Any,
) -> ModelTester:
    """A model whose outputs are its inputs, tested against `labels`."""
    outputs, labels = np.asarray(outputs, np.float32), np.asarray(labels)

    def model() -> Any:
        return keras.Sequential(
            [
                keras.Input((outputs.shape[1],)),
                keras.layers.Dense(outputs.shape[1], use_bias=False, kernel_initializer="identity"),
            ]
        )

    data = Data(outputs, labels, outputs, labels, test_transform=test_transform)
    workload = replace(CONSTANT, model=model, loss=loss, **fields)
    return ModelTester(ModelFunction(workload, data), workload, data, "/CPU:0")


def accuracy_of(tester: ModelTester, width: int = 3) -> float:
    model = np.eye(width, dtype=np.float32).ravel(), np.zeros(0, np.float32)
    # Twice: the first test must leave nothing behind for the second.
    tester.accuracy(*model)
    return tester.accuracy(*model)


def test_further_metrics_are_measured_beside_the_one_that_decides(keras: Any) -> None:
    further = ("accuracy", "loss", "AUC", lambda: metrics.RootMeanSquaredError(name="root"))
    tester = make_tester(keras, loss="mae", metric="mse", further_metrics=further)
    wrong = 2 / 3 * (1 - ACCURACY)
    assert accuracy_of(tester) == pytest.approx(-wrong, rel=1e-5)
    assert dict(tester.further) == {
        "accuracy": pytest.approx(ACCURACY),
        "loss": pytest.approx(wrong, rel=1e-5),
        "AUC": pytest.approx(1 - 3 / 4 * (1 - ACCURACY), abs=0.02),
        "root": pytest.approx(wrong**0.5),
    }


def constant(value: float) -> Any:
    """A metric that always gives this."""
    return metrics.MeanMetricWrapper(lambda labels, _: value + 0 * labels)


several_values = partial(metrics.F1Score, average=None)


def test_what_is_no_metric_or_no_share_is_refused(keras: Any, said: Said) -> None:
    for fields in (
        {"further_metrics": ("mae", "mae")},
        {"further_metrics": ("training_loss",)},
        {"further_metrics": ("nothing",)},
        {"further_metrics": (several_values,)},
        {"metric": lambda: "accuracy"},
        # Their variables are made by the first batch.
        {"metric": lambda: metrics.R2Score(name="my r2")},
        {"further_metrics": (lambda: metrics.F1Score(name="my f1"),)},
        {"metric": lambda: metrics.MeanIoU(num_classes=0, name="iou")},
        {"metric": several_values},
        *({"metric": lambda value=value: constant(value)} for value in (3.77e18, -0.5, 1.1)),
        # Without a metric: values of one output, and those of an autoencoder, say.
        {"outputs": [[0.2], [7.5]], "labels": [[0.3], [7.0]], "metric": None},
        *(
            {"labels": np.array([label] * EXAMPLES, np.float32), "metric": None}
            for label in ([1, 1, 0], [0.5, 0.1, 7], [2, -1, 0])
        ),
    ):
        said.refusal("workload-unsuitable", make_tester, keras, **{"metric": "mse", **fields})


@pytest.mark.parametrize(
    ("outputs", "labels", "loss"),
    [
        (GUESSES, TRUTH.astype(np.int32), SPARSE),
        # As Keras's own CIFAR-10 and CIFAR-100 have them.
        (GUESSES, TRUTH.astype(np.uint8)[:, None], SPARSE),
        (GUESSES, TRUTHS, "categorical_crossentropy"),
        *(
            (HALF_GUESS[:, None], labels, "binary_crossentropy")
            for one in (HALF.astype("float32"), HALF.astype("int32"))
            for labels in (one, one[:, None])
        ),
        # They are cut at zero.
        (np.where(HALF_GUESS > 0.5, 0.3, -0.1)[:, None], HALF, OF_LOGITS),
    ],
)
def test_without_a_metric_it_is_the_accuracy_that_fits_the_labels(
    keras: Any, outputs: np.ndarray, labels: np.ndarray, loss: Any
) -> None:
    tester = make_tester(keras, outputs, labels, loss)
    assert accuracy_of(tester, outputs.shape[1]) == pytest.approx(ACCURACY)


@pytest.mark.parametrize("examples", [300, 512, 1024, EXAMPLES])
def test_batches_of_all_sizes_are_traced_once(keras: Any, examples: int) -> None:
    traced = []

    def transform(inputs: Any, labels: Any) -> Any:
        if not tf.executing_eagerly():
            traced.append(inputs.shape)
        return inputs, labels

    outputs, labels = one_hot(GUESS[:examples]), one_hot(TRUTH[:examples])
    tester = make_tester(keras, outputs, labels, test_transform=transform)
    is_uneven = examples > 512 and examples % 512
    assert traced == [(None if is_uneven else min(examples, 512), 3)]
    assert accuracy_of(tester) == pytest.approx(np.mean(GUESS[:examples] == TRUTH[:examples]))
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("outputs", "labels", "fields", "expected"),
    [
        # An error is compared as its negative.
        *(
            ([[3.0], [1.0], [2.0]], [[1.0], [1.0], [6.0]], {"metric": metric}, expected)
            for metric, expected in (("mae", -2.0), ("mse", -20 / 3), ("R2Score", -0.2))
        ),
        # What is worse than the declared range has diverged.
        ([[30.0]], [[1.0]], {"metric": "mae", "metric_range": (0, 40)}, -29.0),
        ([[30.0]], [[1.0]], {"metric": "mae", "metric_range": (0, 20)}, math.nan),
        # Rounding and infinite values are none of that.
        ([[1.0]], [[1.0]], {"metric": lambda: constant(1 + 1e-6)}, 1.0),
        ([[1.0]], [[1.0]], {"metric": lambda: constant(-1e-7)}, 0.0),
        ([[1.0]], [[1.0]], {"metric": lambda: constant(math.inf)}, math.nan),
        # The loss of the tests is their mean, whatever the batches.
        (
            np.arange(EXAMPLES, dtype=float).reshape(-1, 1) / EXAMPLES,
            np.zeros((EXAMPLES, 1), np.float32),
            {"metric": "loss", "loss": "mae"},
            -(EXAMPLES - 1) / (2 * EXAMPLES),
        ),
    ],
)
def test_a_metric_becomes_an_accuracy(
    keras: Any, outputs: Any, labels: Any, fields: dict[str, Any], expected: float
) -> None:
    tester = make_tester(keras, outputs, np.asarray(labels, np.float32), **fields)
    assert accuracy_of(tester, 1) == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_the_test_transform_is_applied(keras: Any) -> None:
    def turn(inputs: Any, labels: Any) -> Any:
        return -inputs, (1.0 - labels) / 2

    # argmax of what was turned round: the first of the two others, of model and of label.
    first_other = np.array([1, 0, 0])
    expected = np.mean(first_other[GUESS] == first_other[TRUTH])
    assert accuracy_of(make_tester(keras, test_transform=turn)) == pytest.approx(expected)


def test_parameters_that_are_not_finite_have_no_accuracy(keras: Any) -> None:
    tester = make_tester(keras)
    for value in (math.nan, math.inf):
        assert math.isnan(tester.accuracy(np.full(9, value, np.float32), np.zeros(0, np.float32)))


def test_chance_is_known_for_classes_alone(keras: Any) -> None:
    numbers = make_tester(keras, labels=TRUTH.astype(np.int32), loss=SPARSE)
    assert numbers.is_chance(0.34)
    assert not numbers.is_chance(0.5)
    assert make_tester(keras).is_chance(0.34)
    many = np.where(np.arange(EXAMPLES) < 0.7 * EXAMPLES, 0, TRUTH).astype(np.int32)
    # A good model may be near the share of a class that makes most of the test set.
    assert not make_tester(keras, labels=many, loss=SPARSE).is_chance(0.7)


def test_bsp_near_chance_is_told(keras: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A tenth of the way from a third, the share of each of three classes, is 0.4."""
    tester = make_tester(keras, labels=one_hot(np.arange(EXAMPLES) % 3))
    W = GENERATED.total_worker_steps
    for accuracy, percent in ((0.41, 100.0), (0.39, 50.0), (0.39, 100.0)):
        record = trial_record(
            TrialSpec(GENERATED, percent, seed=1),
            datetime.now(timezone.utc),
            Position(W, elapsed_seconds=1.0),
            [Evaluation(W, 1.0, accuracy, 0.5)],
        )
        tester.warn_if_hardly_above_chance(record)
    (told,) = (line for line in caplog.messages if "guessing" in line)
    assert told.startswith(
        "BSP alone reached an accuracy of 0.3900, where guessing the most frequent class gives"
        f" 0.3336: the job learns next to nothing on {GENERATED.workers} workers"
    )
