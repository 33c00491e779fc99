"""The metric that a workload is decided by: built, with its direction, range and unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.job.keras_parts import built_part
from syncswitch.trainers.job.losses import build_loss
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload

_Range = tuple[float | None, float | None]

_RANGES: dict[str, _Range] = {
    **dict.fromkeys(
        ("ConcordanceCorrelation", "CosineSimilarity", "PearsonCorrelation"), (-1.0, 1.0)
    ),
    **dict.fromkeys(
        ("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives"), (0.0, None)
    ),
    "Poisson": (None, None),
    "R2Score": (None, 1.0),
    "Sum": (None, None),
}
"""Of Keras' metrics that are neither errors, from 0 on, nor shares, from 0 to 1."""

_TAKEN = ("training_loss", "elapsed_seconds")
_FALSE = ("FalseNegatives", "FalsePositives")
_UNITS = {"MeanAbsolutePercentageError": "%"}


def decided_by(workload: Workload) -> Metric:
    """Direction, range and unit of the workload's metric: as it says, else as Keras says.

    Keras knows no direction of a metric of somebody's own, which is taken for a share, more of
    which is better, unless the workload says otherwise.
    """
    built = build_metric(workload)
    if built is None:
        return Metric()
    name = LOSS_METRIC if workload.metric == LOSS_METRIC else metric_class(built)
    kind = next((one for one in type(built).__mro__ if one.__module__.startswith("keras.")), None)
    known = name if kind is None else kind.__name__
    goal = workload.metric_goal or _goal(built, name, known)
    limits = workload.metric_range or _usual_range(workload, known, goal)
    # As a database gives them back: the fingerprint knows 1 from 1.0.
    lowest, highest = (None if one is None else float(one) for one in limits)
    return Metric(name, goal, workload.metric_unit or _UNITS.get(known), lowest, highest)


def metric_class(built: Any) -> str:
    """Name of its class, or of the function that somebody wrote."""
    import keras

    is_function = type(built) is keras.metrics.MeanMetricWrapper
    return str(built.name) if is_function else type(built).__name__


def _goal(built: Any, name: str, known: str) -> str:
    is_down = getattr(built, "_direction", None) == "down" or known in _FALSE
    is_down = is_down or name == LOSS_METRIC
    return "min" if is_down else "max"


def _usual_range(workload: Workload, known: str, goal: str) -> _Range:
    if workload.metric == LOSS_METRIC:
        return None, None
    if known in _RANGES:
        return _RANGES[known]
    if goal == "max":
        return 0.0, 1.0
    # What somebody wrote may be below 0, Keras' errors are not.
    return (None, None) if workload.metric_goal else (0.0, None)


def further_workloads(workload: Workload) -> dict[str, Workload]:
    """The workload as if it were decided by each of its further metrics, by their names.

    Raises:
        WorkloadError: Two have one name, or one that is taken.
    """
    plain = replace(
        workload, further_metrics=(), metric_goal=None, metric_unit=None, metric_range=None
    )
    found: dict[str, Workload] = {}
    for wanted in workload.further_metrics:
        one = replace(plain, metric=wanted)
        name = wanted if isinstance(wanted, str) else build_metric(one).name
        if name in found or name in _TAKEN:
            raise WorkloadError(
                f"workload {workload.name!r}: a further metric is called {name!r}, as something"
                " else is; give it another name"
            )
        found[name] = one
    return found


def build_metric(workload: Workload) -> Any:
    """Makes the metric; None where the workload leaves the choice to its labels."""
    import keras

    if workload.metric is None:
        return None
    if workload.metric == LOSS_METRIC:
        return _test_loss(_decisive_loss(workload))
    if workload.metric in ("accuracy", "acc"):
        return None
    if isinstance(workload.metric, str):
        return _named(workload.metric, workload)
    return built_part(workload, "metric", keras.metrics.Metric, "return a keras.metrics.Metric")


def _named(name: str, workload: Workload) -> Any:
    import keras

    try:
        found = keras.metrics.get(name)
    except (TypeError, ValueError) as error:
        raise WorkloadError(
            f"workload {workload.name!r}: Keras has no metric {name!r}; give a name such as 'mae',"
            f" {LOSS_METRIC!r} for the loss of the tests, or a function that builds a Keras metric"
        ) from error
    if isinstance(found, keras.metrics.Metric):
        return found
    return keras.metrics.MeanMetricWrapper(found, name=name)


def _decisive_loss(workload: Workload) -> Any:
    """The loss, of several outputs of the one that a run is judged by."""
    loss = build_loss(workload)
    found = loss.get(workload.metric_output) if isinstance(loss, dict) else loss
    if not callable(found):
        raise WorkloadError(
            f"workload {workload.name!r}: metric is {LOSS_METRIC!r}, and output"
            f" {workload.metric_output!r} has no loss; give loss as a dict by output, and the"
            " metric_output by whose loss a run is judged"
        )
    return found


def _test_loss(loss: Any) -> Any:
    """The mean of the workload's loss over the examples of the test set."""
    import keras

    class TestLoss(keras.metrics.Mean):  # type: ignore[misc]
        """Takes labels and outputs, as other metrics do."""

        def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
            values = keras.ops.mean(loss(labels, outputs))
            # The last batch may be smaller.
            super().update_state(values, sample_weight=keras.ops.shape(outputs)[0])

    return TestLoss(name=LOSS_METRIC)
