from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import rate_function
from syncswitch.trainers.job.keras_parts import (
    build_loss,
    build_metric,
    build_model,
    build_optimizer,
    build_schedule,
    metric_of,
    schedule_boundaries,
)
from tests.failing import fails
from tests.trainers.jobs import CONSTANT, DENSE, dense_model
from tests.wording import Said


def half(of: Any, precision: str) -> Any:
    """A model that computes so, which is a layer of another one."""
    dense = of.layers.Dense(2, dtype=precision, name="half")
    inner = of.Sequential([of.Input((4,)), dense])
    return of.Sequential([of.Input((4,)), inner, of.layers.Dense(1)])


def scaling(of: Any) -> Any:
    return of.optimizers.LossScaleOptimizer(of.optimizers.SGD())


def nameless(of: Any) -> Any:
    class Nameless(of.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        def __call__(self, step: Any) -> float:
            return 0.1

    return Nameless()


def test_what_is_no_such_part_is_refused_in_one_line(keras: Any, said: Said) -> None:
    for build, field, make in (
        (build_loss, "loss", "nonsense"),
        (build_model, "model", lambda of: lambda: half(of, "float16")),
        (build_model, "model", lambda of: lambda: half(of, "mixed_float16")),
        (build_model, "model", lambda _: dense_model()),
        (build_optimizer, "optimizer", lambda of: lambda: scaling(of)),
        (build_optimizer, "optimizer", lambda _: lambda: 3),
        (build_optimizer, "optimizer", "adam"),
        (build_optimizer, "optimizer", lambda of: lambda: of.optimizers.SGD(name="my own")),
        (build_optimizer, "optimizer", lambda of: of.optimizers.Adam()),
        (build_metric, "metric", lambda of: of.metrics.AUC()),
        (build_schedule, "learning_rate", lambda of: lambda: nameless(of)),
    ):
        value = make(keras) if callable(make) else make
        workload = replace(CONSTANT, **{field: value})
        said.refusal("workload-unsuitable", build, workload)


def test_boundaries_of_a_schedule_are_those_of_a_workload(keras: Any) -> None:
    """Keras keeps the rate before a boundary at the boundary itself."""
    schedules = keras.optimizers.schedules
    piecewise = schedules.PiecewiseConstantDecay([10, 20.5], [0.1, 0.01, 0.003])
    assert schedule_boundaries(piecewise) == (0.1, ((11, 0.1), (21, 0.03)))
    assert schedule_boundaries(schedules.CosineDecay(0.1, 10)) is None
    # A rate that begins at 0 has no factors.
    assert schedule_boundaries(schedules.PiecewiseConstantDecay([10], [0.0, 0.1])) is None
    assert build_schedule(DENSE) is None


def test_a_rate_below_zero_is_refused_when_it_comes(keras: Any) -> None:
    class Falling(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        def __call__(self, step: Any) -> float:
            return 0.1 - 0.02 * float(step)

        def get_config(self) -> dict[str, Any]:
            return {}

    workload = replace(DENSE, learning_rate=Falling, learning_rate_boundaries=())
    rate_at = rate_function(workload)
    assert rate_at(5) == pytest.approx(0.0, abs=1e-9)
    with fails("workload-unsuitable", r"gives -0.0[12]\d* at worker-step 6"):
        rate_at(6)


def right(labels: Any, _: Any) -> Any:
    return labels


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Metric()),
        ({"metric": "mae"}, Metric("MeanAbsoluteError", "min", None, 0.0, None)),
        ({"metric": "mape"}, Metric("MeanAbsolutePercentageError", "min", "%", 0.0, None)),
        ({"metric": "AUC"}, Metric("AUC", "max", None, 0.0, 1.0)),
        ({"metric": "R2Score"}, Metric("R2Score", "max", None, None, 1.0)),
        ({"metric": "FalsePositives"}, Metric("FalsePositives", "min", None, 0.0, None)),
        ({"metric": "SparseCategoricalAccuracy"}, Metric()),
        ({"metric": "loss"}, Metric("loss", "min", None, None, None)),
        (
            {"metric": "mae", "metric_unit": "km", "metric_range": (0, 500)},
            Metric("MeanAbsoluteError", "min", "km", 0, 500),
        ),
        ({"metric": "AUC", "metric_goal": "min"}, Metric("AUC", "min", None, None, None)),
    ],
)
def test_keras_says_what_the_workload_does_not(fields: dict[str, Any], expected: Metric) -> None:
    assert metric_of(replace(CONSTANT, **fields)) == expected


def test_a_metric_of_its_own_is_a_share_unless_the_workload_says_otherwise(keras: Any) -> None:
    own = replace(CONSTANT, metric=lambda: keras.metrics.MeanMetricWrapper(right, name="right"))
    assert metric_of(own) == Metric("right")
    assert metric_of(replace(own, metric_goal="min")) == Metric("right", "min", None, None, None)
    assert workload_identity(own, 2, "bsp", "asp").metric.name == "right"
    named = replace(own, metric=lambda: keras.metrics.BinaryAccuracy(name="accuracy"))
    assert workload_identity(named, 2, "bsp", "asp").metric == Metric()


@pytest.mark.parametrize(("metric", "name"), [("mae", "MeanAbsoluteError"), ("loss", "loss")])
def test_output_unit_and_range_of_a_metric_make_another_job_of_the_same_metric(
    metric: str, name: str
) -> None:
    plain = replace(CONSTANT, metric=metric)
    identities = [
        workload_identity(job, 2, "bsp", "asp")
        for job in (
            plain,
            replace(plain, metric_output="kind"),
            replace(plain, metric_output="price"),
            replace(plain, metric_unit="km"),
            replace(plain, metric_range=(0, 9)),
            replace(plain, metric_range=(0.0, 9.0)),
        )
    ]
    *others, last = (one.fingerprint for one in identities)
    assert len(set(others)) == 5
    assert last == others[-1]
    assert {one.metric.name for one in identities} == {name}


def test_what_is_no_metric_is_refused_in_one_line(said: Said) -> None:
    for fields in (
        {"metric": "mea"},
        {"metric": "mae", "metric_goal": "less"},
        {"metric": "mae", "metric_unit": ""},
        {"metric": "mae", "metric_range": (1, 0)},
        {"metric": "mae", "metric_range": 7},
        {"metric_goal": "min"},
    ):
        said.refusal("workload-unsuitable", lambda job=fields: metric_of(replace(CONSTANT, **job)))
