from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.metric import Metric, metric_name
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.keras_parts import decided_by
from tests.trainers.jobs import CONSTANT


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
        ({"metric": "mae", "metric_range": (1, 0)}, r"metric_range is \(1, 0\); give its least"),
        ({"metric": "mae", "metric_range": 7}, "metric_range is 7; give its least"),
        ({"metric_goal": "min"}, "are of a metric, and there is none"),
    ],
)
def test_what_is_no_metric_is_refused_in_one_line(
    keras: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message) as error:
        decided_by(replace(CONSTANT, **fields))
    assert "\n" not in str(error.value)
