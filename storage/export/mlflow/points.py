"""The values of runs for MLflow: what is compared, and the metric's own values; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialState
from syncswitch.storage.trials.values import StoredTrial

_RESULTS = (
    "converged_accuracy",
    "final_accuracy",
    "diverged",
    "stopped_early",
    "training_seconds",
    "inherited_seconds",
    "switch_overhead_seconds",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric.

    Attributes:
        elapsed_seconds: Since the run began.
    """

    name: str
    value: float
    worker_step: int
    elapsed_seconds: float


def metric_tags(metric: Metric) -> dict[str, str]:
    """Its name, direction and unit."""
    return {f"syncswitch.{name}": text for name, text in metric.naming.items() if text is not None}


def with_own(values: Mapping[str, float | None], metric: Metric) -> dict[str, float | None]:
    """With the metric's own value, under its name, beside each accuracy."""
    own = {}
    if metric.name != ACCURACY_NAME:
        for name, accuracy in values.items():
            start = name.removesuffix(ACCURACY_NAME)
            if name != start and accuracy is not None:
                own[f"{start}{metric.name}"] = metric.value(accuracy)
    return {**values, **own}


def curve(evaluations: Iterable[Evaluation], metric: Metric) -> list[Point]:
    """Its tests, each under the name of the metric too, where that is another one."""
    return [
        Point(name, value, one.worker_step, one.elapsed_seconds)
        for one in evaluations
        for name, value in {
            **with_own({"accuracy": one.accuracy}, metric),
            "training_loss": one.training_loss,
            "elapsed_seconds": one.elapsed_seconds,
            **dict(one.further),
        }.items()
        if value is not None and math.isfinite(value)
    ]


def results(run: StoredTrial | TrialRecord, metric: Metric) -> tuple[Point, ...]:
    """What is known of its end."""
    values = with_own({name: getattr(run, name) for name in _RESULTS}, metric)
    if isinstance(run, StoredTrial) and run.state != TrialState.COMPLETE:
        values = {name: value for name, value in values.items() if name.endswith("_seconds")}
    for phase in run.phases:
        values[f"{phase.protocol}_worker_steps_per_second"] = phase.worker_steps_per_second
        values[f"{phase.protocol}_mean_staleness"] = phase.mean_staleness
        values[f"{phase.protocol}_max_staleness"] = phase.max_staleness
    return points(values, run.worker_steps, run.training_seconds or 0.0)


def points(
    values: Mapping[str, float | None], worker_step: int, elapsed_seconds: float
) -> tuple[Point, ...]:
    """Those that are known, all at one moment."""
    return tuple(
        Point(name, float(value), worker_step, elapsed_seconds)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    )
