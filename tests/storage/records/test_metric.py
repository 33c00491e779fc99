from __future__ import annotations

import math

import pytest

from syncswitch.storage.records.metric import WORST, Metric, metric_name

ERROR = Metric("MeanAbsoluteError", "min", "km", 0.0, None)


def test_what_is_compared_is_better_where_it_is_more() -> None:
    assert Metric().accuracy(0.9) == 0.9
    assert ERROR.accuracy(2.5) == -2.5
    assert ERROR.value(-2.5) == 2.5
    assert math.copysign(1, ERROR.accuracy(0.0)) == 1  # no -0.0


@pytest.mark.parametrize(
    ("metric", "limits", "worst"),
    [
        (Metric(), (0.0, 1.0), 0.0),
        (ERROR, (None, 0.0), WORST),
        (Metric("R2Score", "max", None, None, 1.0), (None, 1.0), WORST),
        (Metric("share of errors", "min", None, 0.0, 1.0), (-1.0, 0.0), -1.0),
    ],
)
def test_limits_are_those_of_what_is_compared(
    metric: Metric, limits: tuple[float | None, float | None], worst: float
) -> None:
    assert metric.accuracies == limits
    assert metric.worst_accuracy == worst
    assert [metric.is_possible(one) for one in (math.nan, math.inf, -math.inf)] == [False] * 3
    assert [metric.is_possible(one) for one in limits if one is not None].count(False) == 0


def test_values_are_shown_in_their_unit() -> None:
    assert Metric().text(0.91234) == "0.9123"
    assert ERROR.text(-2.5) == "2.5000 km"
    assert ERROR.text(-12345.678) == "12,345.7 km"
    assert [ERROR.range_text, Metric().range_text] == ["0 or more", "from 0 to 1"]


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (None, "accuracy"),
        ("loss", "loss"),
        ('{"class":"AUC","curve":"PR"}', "AUC"),
        ("{", "accuracy"),
    ],
)
def test_a_metric_is_called_by_its_class(description: str | None, name: str) -> None:
    assert metric_name(description) == name
