from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.metric import Metric, metric_name
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import rate_function
from syncswitch.trainers.job.keras_parts import (
    build_loss,
    build_model,
    build_optimizer,
    build_schedule,
    decided_by,
    schedule_boundaries,
)
from tests.trainers.jobs import CONSTANT, DENSE


class TestParts:
    def test_a_loss_is_built_from_its_name_or_a_function(self, keras: Any) -> None:
        labels, outputs = np.array([0, 1, 1]), np.array([[0.5], [0.25], [0.5]])
        # As those of `compile`: labels of shape [batch] go with outputs of shape [batch, 1].
        entropies = build_loss(replace(DENSE, loss="binary_crossentropy"))(labels, outputs)
        assert np.asarray(entropies) == pytest.approx(-np.log([0.5, 0.25, 0.5]))
        assert build_loss(replace(DENSE, loss="mse"))(labels, outputs).shape == (3,)
        huber = replace(DENSE, loss=lambda: keras.losses.Huber())
        assert isinstance(build_loss(huber), keras.losses.Huber)

    def test_an_unknown_loss_is_named(self, keras: Any) -> None:
        with pytest.raises(WorkloadError, match="'nonsense'"):
            build_loss(replace(DENSE, loss="nonsense"))

    @pytest.mark.parametrize("precision", ["mixed_float16", "float16"])
    def test_a_model_that_computes_in_float16_is_refused(self, keras: Any, precision: str) -> None:
        """Also where a model is a layer of it."""
        inner = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(2, dtype=precision, name="half")]
        )
        outer = keras.Sequential([keras.Input((4,)), inner, keras.layers.Dense(1)])
        with pytest.raises(WorkloadError) as error:
            build_model(replace(CONSTANT, model=lambda: outer))
        assert str(error.value) == (
            f"workload 'constant-gradient': layer 'half' computes in float16 ({precision}), and "
            "the loss is not scaled for it, so that small gradients would become 0; "
            "take mixed_bfloat16 or float32"
        )

    def test_an_optimizer_that_scales_the_loss_is_refused(self, keras: Any) -> None:
        def scaling() -> Any:
            return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())

        with pytest.raises(
            WorkloadError, match="'constant-gradient': the optimizer is a LossScale"
        ):
            build_optimizer(replace(CONSTANT, optimizer=scaling))

    def test_what_is_no_optimizer_is_named(self, keras: Any) -> None:
        with pytest.raises(WorkloadError, match="int"):
            build_optimizer(replace(DENSE, optimizer=lambda: 3))

    def test_boundaries_of_a_schedule_are_those_of_a_workload(self, keras: Any) -> None:
        """Keras keeps the rate before a boundary at the boundary itself."""
        schedules = keras.optimizers.schedules
        piecewise = schedules.PiecewiseConstantDecay([10, 20.5], [0.1, 0.01, 0.003])
        assert schedule_boundaries(piecewise) == (0.1, ((11, 0.1), (21, 0.03)))
        for other in (
            schedules.CosineDecay(0.1, 10),
            # A rate that begins at 0 has no factors.
            schedules.PiecewiseConstantDecay([10], [0.0, 0.1]),
        ):
            assert schedule_boundaries(other) is None

    def test_without_a_schedule_there_is_none(self) -> None:
        assert build_schedule(DENSE) is None

    def test_a_schedule_that_does_not_say_its_settings_is_refused(self, keras: Any) -> None:
        class Nameless(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
            def __call__(self, step: Any) -> float:
                return 0.1

        with pytest.raises(WorkloadError, match=r"Nameless has no get_config\(\)") as error:
            build_schedule(replace(DENSE, learning_rate=Nameless, learning_rate_boundaries=()))
        assert "\n" not in str(error.value)

    def test_a_rate_below_zero_is_refused_when_it_comes(self, keras: Any) -> None:
        class Falling(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
            def __call__(self, step: Any) -> float:
                return 0.1 - 0.02 * float(step)

            def get_config(self) -> dict[str, Any]:
                return {}

        workload = replace(DENSE, learning_rate=Falling, learning_rate_boundaries=())
        rate_at = rate_function(workload)
        assert rate_at(5) == pytest.approx(0.0, abs=1e-9)
        with pytest.raises(WorkloadError, match=r"gives -0.0[12]\d* at worker-step 6"):
            rate_at(6)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Metric()),
        ({"metric": "mae"}, Metric("MeanAbsoluteError", "min", None, 0.0, None)),
        ({"metric": "mape"}, Metric("MeanAbsolutePercentageError", "min", "%", 0.0, None)),
        ({"metric": "AUC"}, Metric("AUC", "max", None, 0.0, 1.0)),
        ({"metric": "R2Score"}, Metric("R2Score", "max", None, None, 1.0)),
        ({"metric": "FalsePositives"}, Metric("FalsePositives", "min", None, 0.0, None)),
        ({"metric": "loss"}, Metric("loss", "min", None, None, None)),
        (
            {"metric": "mae", "metric_unit": "km", "metric_range": (0, 500)},
            Metric("MeanAbsoluteError", "min", "km", 0, 500),
        ),
        ({"metric": "AUC", "metric_goal": "min"}, Metric("AUC", "min", None, None, None)),
    ],
)
def test_keras_says_what_the_workload_does_not(
    keras: Any, fields: dict[str, Any], expected: Metric
) -> None:
    assert decided_by(replace(CONSTANT, **fields)) == expected


def test_a_metric_of_its_own_is_a_share_unless_the_workload_says_otherwise(keras: Any) -> None:
    def right(labels: Any, _: Any) -> Any:
        return labels

    own = replace(CONSTANT, metric=lambda: keras.metrics.MeanMetricWrapper(right, name="right"))
    assert decided_by(own) == Metric("right")
    less = replace(own, metric_goal="min")
    assert decided_by(less) == Metric("right", "min", None, None, None)
    assert metric_name(workload_identity(own, 2, "bsp", "asp").metric) == "right"


@pytest.mark.parametrize("metric", ["mae", "loss"])
def test_of_several_outputs_it_is_that_of_one(keras: Any, metric: str) -> None:
    named = [
        workload_identity(replace(CONSTANT, metric=metric, metric_output=one), 2, "bsp", "asp")
        for one in ("kind", "price")
    ]
    assert named[0].fingerprint != named[1].fingerprint
    shown = {"mae": "MeanAbsoluteError", "loss": "loss"}[metric]
    assert [metric_name(one.metric) for one in named] == [shown, shown]


def test_a_direction_is_a_part_of_the_fingerprint(keras: Any) -> None:
    own = replace(CONSTANT, metric="mae")
    identities = [
        workload_identity(one, 2, "bsp", "asp")
        for one in (own, replace(own, metric_unit="km"), replace(own, metric_range=(0, 9)))
    ]
    assert len({one.fingerprint for one in identities}) == 3
    same = replace(own, metric_range=(0.0, 9.0))
    assert workload_identity(same, 2, "bsp", "asp").fingerprint == identities[2].fingerprint
    assert identities[1].decided_by == Metric("MeanAbsoluteError", "min", "km", 0.0, None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metric": "mea"}, "Keras has no metric 'mea'; give a name such as"),
        ({"metric": "mae", "metric_goal": "less"}, "metric_goal is 'less'; give max"),
        ({"metric": "mae", "metric_unit": ""}, "metric_unit is ''; give a text"),
        ({"metric": "mae", "metric_range": (1, 0)}, r"metric_range is \(1, 0\); give its lowest"),
        ({"metric": "mae", "metric_range": 7}, "metric_range is 7; give its lowest"),
        ({"metric_goal": "min"}, "describe a metric, and there is none"),
    ],
)
def test_what_is_no_metric_is_refused_in_one_line(
    keras: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message) as error:
        decided_by(replace(CONSTANT, **fields))
    assert "\n" not in str(error.value)
