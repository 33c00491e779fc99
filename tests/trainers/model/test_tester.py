from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.tensorflow_api import tf
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.run.record import trial_record
from tests.identities import GENERATED
from tests.trainers.jobs import CONSTANT

EXAMPLES = 1100
TRUTH = np.random.default_rng(0).integers(0, 3, EXAMPLES)
# The model's outputs are its inputs: right for all but every seventh example.
GUESS = np.where(np.arange(EXAMPLES) % 7 == 0, (TRUTH + 1) % 3, TRUTH)
ACCURACY = 1 - len(range(0, EXAMPLES, 7)) / EXAMPLES


def make_tester(
    keras: Any,
    outputs: np.ndarray,
    labels: np.ndarray,
    loss: Any = "mse",
    metric: Any = None,
    test_transform: Any = None,
    **fields: Any,
) -> ModelTester:
    """A model whose outputs are its inputs, tested against `labels`."""
    outputs = outputs.astype(np.float32)

    def model() -> Any:
        return keras.Sequential(
            [
                keras.Input((outputs.shape[1],)),
                keras.layers.Dense(outputs.shape[1], use_bias=False, kernel_initializer="identity"),
            ]
        )

    data = Data(outputs, labels, outputs, labels, test_transform=test_transform)
    workload = replace(CONSTANT, model=model, loss=loss, metric=metric, **fields)
    return ModelTester(ModelFunction(workload, data), workload, data, "/CPU:0")


def model_of(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Its parameters and statistics."""
    return np.eye(outputs.shape[1], dtype=np.float32).ravel(), np.zeros(0, np.float32)


def accuracy_of(keras: Any, outputs: np.ndarray, *arguments: Any, **fields: Any) -> float:
    tester = make_tester(keras, outputs, *arguments, **fields)
    # Twice: the first test must leave nothing behind for the second.
    tester.accuracy(*model_of(outputs))
    return tester.accuracy(*model_of(outputs))


def one_hot(numbers: np.ndarray, classes: int = 3) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[numbers]


def test_further_metrics_are_measured_beside_the_one_that_decides(keras: Any) -> None:
    labels = one_hot(TRUTH)
    fields = {"metric": "mse", "further_metrics": ("accuracy", "loss", "AUC", root)}
    tester = make_tester(keras, one_hot(GUESS), labels, "mae", **fields)
    for _ in range(2):
        accuracy = tester.accuracy(*model_of(one_hot(GUESS)))
        wrong = 2 / 3 * (1 - ACCURACY)
        assert accuracy == pytest.approx(-wrong)
        assert dict(tester.further) == {
            "accuracy": pytest.approx(ACCURACY),
            "loss": pytest.approx(wrong),
            "AUC": pytest.approx(1 - 3 / 4 * (1 - ACCURACY), abs=0.02),
            "root": pytest.approx(wrong**0.5),
        }


def root() -> Any:
    from keras import metrics

    return metrics.RootMeanSquaredError(name="root")


@pytest.mark.parametrize(
    ("further", "said"),
    [
        (("mae", "mae"), "a further metric is called 'mae', like something else"),
        (("training_loss",), "a further metric is called 'training_loss', like something else"),
        (("nothing",), "Keras has no metric 'nothing'"),
        ((lambda: __import__("keras").metrics.F1Score(),), "'f1_score' gives 3 values"),
    ],
)
def test_a_further_metric_that_is_none_is_refused(
    keras: Any, further: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(WorkloadError, match=said):
        make_tester(keras, one_hot(GUESS), one_hot(TRUTH), metric="mse", further_metrics=further)


HALF = TRUTH % 2
HALF_GUESS = np.where(np.where(np.arange(EXAMPLES) % 7 == 0, 1 - HALF, HALF), 0.8, 0.3)


@pytest.mark.parametrize(
    ("outputs", "labels", "loss"),
    [
        (one_hot(GUESS), TRUTH.astype(np.int32), "sparse_categorical_crossentropy"),
        # As Keras's own CIFAR-10 and CIFAR-100 have them.
        (one_hot(GUESS), TRUTH.astype(np.uint8)[:, None], "sparse_categorical_crossentropy"),
        (one_hot(GUESS), one_hot(TRUTH), "categorical_crossentropy"),
        *(
            (HALF_GUESS[:, None], labels, "binary_crossentropy")
            for one in (HALF.astype("float32"), HALF.astype("int32"))
            for labels in (one, one[:, None])
        ),
    ],
)
def test_without_a_metric_it_is_the_accuracy_that_fits_the_labels(
    keras: Any, outputs: np.ndarray, labels: np.ndarray, loss: str
) -> None:
    assert accuracy_of(keras, outputs, labels, loss) == pytest.approx(ACCURACY)


class TestModelTester:
    @pytest.mark.parametrize("examples", [300, 512, 1024, EXAMPLES])
    def test_batches_of_all_sizes_are_traced_once(self, keras: Any, examples: int) -> None:
        traced = []

        def transform(inputs: Any, labels: Any) -> Any:
            if not tf.executing_eagerly():
                traced.append(inputs.shape)
            return inputs, labels

        tester = make_tester(
            keras, one_hot(GUESS[:examples]), one_hot(TRUTH[:examples]), test_transform=transform
        )
        is_uneven = examples > 512 and examples % 512
        assert traced == [(None if is_uneven else min(examples, 512), 3)]
        found = tester.accuracy(*model_of(one_hot(GUESS)))
        assert found == pytest.approx(np.mean(GUESS[:examples] == TRUTH[:examples]))
        assert len(traced) == 1

    @pytest.mark.parametrize(
        ("build", "said"),
        [
            (lambda of: "accuracy", r"keras\.metrics\.Metric"),
            (lambda of: of.F1Score(average=None), r"gives 3 values.*give one that is a"),
            *(
                (
                    lambda of, value=value: of.MeanMetricWrapper(lambda y, _: value + 0 * y),
                    f"gives {given}, and .* from 0 to 1; give its range",
                )
                for value, given in ((3.77e18, "3.77e\\+18"), (-0.5, "-0.5"), (1.1, "1.1"))
            ),
        ],
    )
    def test_what_is_no_metric_or_no_share_is_refused(
        self, keras: Any, build: Any, said: str
    ) -> None:
        with pytest.raises(WorkloadError, match=said):
            make_tester(keras, one_hot(GUESS), one_hot(TRUTH), metric=lambda: build(keras.metrics))

    @pytest.mark.parametrize(
        ("metric", "expected"), [("mae", -2.0), ("mse", -20 / 3), ("R2Score", -0.2)]
    )
    def test_an_error_is_compared_as_its_negative(
        self, keras: Any, metric: str, expected: float
    ) -> None:
        outputs = np.array([[3.0], [1.0], [2.0]])
        labels = np.array([[1.0], [1.0], [6.0]], np.float32)
        assert accuracy_of(keras, outputs, labels, metric=metric) == pytest.approx(expected)

    def test_the_loss_of_the_tests_is_their_mean_whatever_the_batches(self, keras: Any) -> None:
        outputs = np.arange(EXAMPLES, dtype=float).reshape(-1, 1) / EXAMPLES
        labels = np.zeros((EXAMPLES, 1), np.float32)
        found = accuracy_of(keras, outputs, labels, "mae", metric="loss")
        assert found == pytest.approx(-(EXAMPLES - 1) / (2 * EXAMPLES), rel=1e-5)

    def test_what_is_worse_than_the_declared_range_has_diverged(self, keras: Any) -> None:
        outputs, labels = np.array([[30.0]]), np.array([[1.0]], np.float32)
        for limits, expected in (((0, 40), -29.0), ((0, 20), math.nan)):
            fields = {"metric": "mae", "metric_range": limits}
            found = accuracy_of(keras, outputs, labels, **fields)
            assert found == pytest.approx(expected, nan_ok=True)

    def test_rounding_and_infinite_values_are_none_of_that(self, keras: Any) -> None:
        for value, accuracy in ((1 + 1e-6, 1.0), (-1e-7, 0.0)):
            metric = keras.metrics.MeanMetricWrapper(lambda labels, _, v=value: v + 0 * labels)
            fields = {"metric": lambda m=metric: m}
            assert accuracy_of(keras, one_hot(GUESS), one_hot(TRUTH), **fields) == accuracy
        metric = keras.metrics.MeanMetricWrapper(lambda labels, _: np.inf + 0 * labels)
        value = accuracy_of(keras, one_hot(GUESS), one_hot(TRUTH), metric=lambda: metric)
        assert np.isnan(value)

    def test_the_test_transform_is_applied(self, keras: Any) -> None:
        accuracy = accuracy_of(
            keras,
            one_hot(GUESS),
            one_hot(TRUTH),
            test_transform=lambda inputs, labels: (-inputs, (1.0 - labels) / 2),
        )
        # argmax of what was turned round: the first of the two others, of model and of label.
        first_other = np.where(np.arange(3) == 0, 1, 0)
        assert accuracy == pytest.approx(np.mean(first_other[GUESS] == first_other[TRUTH]))

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_parameters_that_are_not_finite_have_no_accuracy(
        self, keras: Any, value: float
    ) -> None:
        tester = make_tester(keras, one_hot(GUESS), one_hot(TRUTH))
        parameters, statistics = model_of(one_hot(GUESS))
        parameters[3] = value
        assert math.isnan(tester.accuracy(parameters, statistics))

    def test_chance_is_known_for_classes_alone(self, keras: Any) -> None:
        loss = "sparse_categorical_crossentropy"
        numbers = make_tester(keras, one_hot(GUESS), TRUTH.astype(np.int32), loss)
        assert numbers.is_chance(0.34)
        assert not numbers.is_chance(0.5)
        hot = make_tester(keras, one_hot(GUESS), one_hot(TRUTH))
        assert hot.is_chance(0.34)
        many = np.where(np.arange(len(TRUTH)) < 0.7 * len(TRUTH), 0, TRUTH).astype(np.int32)
        # A good model may be near the share of a class that makes most of the test set.
        assert not make_tester(keras, one_hot(GUESS), many, loss).is_chance(0.7)

    @pytest.mark.parametrize(
        ("accuracy", "switch_percent", "is_told"),
        [(0.39, 100.0, True), (0.41, 100.0, False), (0.39, 50.0, False)],
    )
    def test_bsp_near_chance_is_told(
        self,
        keras: Any,
        accuracy: float,
        switch_percent: float,
        caplog: pytest.LogCaptureFixture,
        *,
        is_told: bool,
    ) -> None:
        """A tenth of the way from a third, the share of each of three classes, is 0.4."""
        tester = make_tester(keras, one_hot(GUESS), one_hot(np.arange(len(GUESS)) % 3))
        spec = TrialSpec(GENERATED, switch_percent, seed=1)
        record = trial_record(
            spec,
            datetime.now(timezone.utc),
            worker_steps=GENERATED.total_worker_steps,
            evaluations=(Evaluation(GENERATED.total_worker_steps, 1.0, accuracy, 0.5),),
            phases=(),
            training_seconds=1.0,
        )
        tester.warn_if_hardly_above_chance(record)
        told = (
            f"BSP alone reached an accuracy of {accuracy:.4f}, where guessing the most frequent"
            f" class gives 0.3336: the job learns next to nothing on {GENERATED.workers} workers,"
            " and a search would as well; check learning_rate, which is multiplied by the workers"
            " (up to largest_scaling)"
        )
        assert [line for line in caplog.messages if "guessing" in line] == [told] * is_told

    def test_one_output_of_logits_is_cut_at_zero(self, keras: Any) -> None:
        accuracy = accuracy_of(
            keras,
            np.array([[-2.0], [0.3], [0.2], [-0.1]]),
            np.array([0, 1, 1, 0], np.int32),
            lambda: keras.losses.BinaryCrossentropy(from_logits=True),
        )
        assert accuracy == 1.0

    def test_one_output_that_is_no_class_needs_a_metric(self, keras: Any) -> None:
        with pytest.raises(
            WorkloadError, match=r"labels other than 0 and 1, for one output.* give a metric"
        ):
            make_tester(keras, np.array([[0.2], [7.5]]), np.array([[0.3], [7.0]]))

    @pytest.mark.parametrize("label", [[1, 1, 0], [0.5, 0.1, 7], [2, -1, 0]])
    def test_several_values_have_none(self, keras: Any, label: list[float]) -> None:
        """Those of an autoencoder, say: where the largest is says nothing of the others."""
        words = "labels that are neither classes nor one-hot have no accuracy; give a metric"
        with pytest.raises(WorkloadError, match=words):
            make_tester(keras, one_hot(GUESS[:2]), np.array([label, label], np.float32))
