"""Statistics of the runs at each switch point, computed by the database.

Only completed runs count, and means are over those that did not diverge. Runs of all searches and
imported runs count alike, if they count for a switch point. A run that was stopped early counts
with its accuracy by then, and with the estimated time of the whole run. Runs under different
conditions (online policy, switch mechanism, injections) are kept apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from sqlalchemy import ColumnElement, Select, and_, case, func, literal_column, select
from typing_extensions import Unpack

from syncswitch.storage.columns import ConditionColumns, JobColumns, MetricColumns
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.metrics import student_half_width
from syncswitch.storage.records.flat import nested
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import WORKLOADS
from syncswitch.storage.trials.choice import RunChoice, conditions

_FACTS = TRIAL_FACTS.c
# The squares of smaller numbers would come near the least float.
_LEAST = 1e-150
_OF_METRIC = ("metric_goal", "metric_unit", "metric_lowest", "metric_highest")
# Runs that never switch are alike with all second protocols.
# Without bound values, PostgreSQL sees that the groups are what is selected.
_SWITCHES = _FACTS.candidate_percent < literal_column("100")
_NOTHING: ColumnElement[str] = literal_column("''")
_RULE = func.coalesce(_FACTS.momentum_after_switch, _NOTHING)
_PROTOCOLS = (
    _FACTS.first_protocol,
    case((_SWITCHES, _FACTS.second_protocol), else_=_NOTHING).label("second"),
    case((_SWITCHES, _RULE), else_=_NOTHING).label("rule"),
)
_CONDITIONS = (_FACTS.online, _FACTS.switch_mechanism, _FACTS.injections)


@dataclass(frozen=True)
class SwitchPointStatistics:
    """The completed runs of one switch point, with the same protocols and conditions.

    Means are over those that did not diverge. Standard deviations are those of a sample (n - 1),
    and intervals are Student's, so both are unknown for a single run.
    """

    job: JobColumns
    metric: MetricColumns
    under: ConditionColumns
    candidate_percent: Annotated[float, "the switch point: percent of W in the first protocol"]
    runs: Annotated[int, "number of completed runs"]
    diverged_runs: Annotated[int, "how many of them diverged; these are left out below"]
    stopped_runs: Annotated[int, "how many of the others were stopped early"]
    mean_accuracy: Annotated[float | None, "mean converged accuracy, 0 to 1"]
    mean_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    sd_accuracy: Annotated[float | None, "its standard deviation between runs"]
    lower_accuracy: Annotated[
        float | None, "lower end of the confidence interval of the mean, from 0"
    ]
    upper_accuracy: Annotated[float | None, "upper end of the interval, to 1"]
    lower_value: Annotated[float | None, "lower end of the interval of `mean_value`"]
    upper_value: Annotated[float | None, "upper end of that interval"]
    mean_final_accuracy: Annotated[float | None, "mean accuracy of the last evaluation, 0 to 1"]
    mean_final_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    mean_training_seconds: Annotated[
        float | None,
        "mean training time of whole runs, prefixes of forks included; stopped runs count with an"
        " estimate for the whole",
    ]
    sd_training_seconds: Annotated[float | None, "its standard deviation between runs"]
    mean_paid_seconds: Annotated[
        float | None, "mean training time that the runs paid for themselves"
    ]
    mean_switch_overhead_seconds: Annotated[
        float | None, "mean time of the switch, over the runs that made it themselves"
    ]
    target_accuracy: Annotated[
        float | None, "target of the runs; null if unknown or not the same for all"
    ]
    target_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    mean_time_to_accuracy_seconds: Annotated[
        float | None, "mean time to the target, over the runs that reached it"
    ]
    censored_runs: Annotated[int | None, "number of runs that had not reached it when they ended"]
    speed_up: Annotated[
        float | None,
        "mean training time of the first protocol alone (switch point 100) under the same"
        " conditions, over that of this switch point",
    ]


def switch_point_statistics(
    database: Database, *, confidence: float = 0.95, **choice: Unpack[RunChoice]
) -> list[SwitchPointStatistics]:
    """Returns the statistics of switch points, by workload and cluster, the latest switch first.

    The choice also applies to the baselines. Raises UserError if it, or the confidence of the
    intervals, is impossible.
    """
    if not 0 < confidence < 1:
        raise UserError(
            f"confidence is {confidence}; allowed: between 0 and 1, for example 0.95",
            code="parameter-invalid",
        )
    counting = [
        _FACTS.state == TrialState.COMPLETE,
        _FACTS.candidate_percent.is_not(None),  # leaves out the uses of policies as well
        *conditions(choice, RunChoice),
    ]
    sums = [row._asdict() for row in database.rows(_sums(counting))]
    baselines = {
        _comparable(row): row["mean_training_seconds"]
        for row in sums
        if row["candidate_percent"] == BASELINE_PERCENT
    }
    settings = [_statistics(row, baselines.get(_comparable(row)), confidence) for row in sums]
    return sorted(settings, key=_place)


def _comparable(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("fingerprint", "first_protocol", *(column.name for column in _CONDITIONS))
    return tuple(row[name] for name in names)


def _place(switch_point: SwitchPointStatistics) -> tuple[Any, ...]:
    """Returns the key to sort by; the default conditions come first."""
    conditions = (
        (switch_point.under.injections is not None, switch_point.under.injections or ""),
        (switch_point.under.online != "none", switch_point.under.online),
        (switch_point.under.switch_mechanism != "hot", switch_point.under.switch_mechanism),
    )
    job = switch_point.job
    workload = (job.workload, job.workers, job.fingerprint)
    protocols = (job.first_protocol, job.second_protocol, job.momentum_after_switch or "")
    return (*workload, *protocols, *conditions, -switch_point.candidate_percent)


def _statistics(
    row: dict[str, Any], baseline_seconds: float | None, confidence: float
) -> SwitchPointStatistics:
    metric = nested(Metric, row)
    measured = row["runs"] - row["diverged_runs"]
    mean, seconds = row["mean_accuracy"], row["mean_training_seconds"]
    sd = _deviation(row.pop("squared_accuracy"), row.pop("surplus_accuracy"), measured)
    sd_seconds = _deviation(
        row.pop("squared_seconds"), row.pop("surplus_seconds"), row.pop("timed_runs")
    )
    half = (
        None
        if sd is None
        else student_half_width(sd / math.sqrt(measured), measured - 1, confidence)
    )
    if row.pop("lowest_target_accuracy") != row["target_accuracy"]:
        row |= dict.fromkeys(("target_accuracy", "mean_time_to_accuracy_seconds"))
    if row["target_accuracy"] is None:
        row["censored_runs"] = None
    accuracies = {
        **{name: value for name, value in row.items() if name.endswith("accuracy")},
        # The interval of few runs may leave the range of the metric.
        "lower_accuracy": None if half is None else metric.limited(mean - half),
        "upper_accuracy": None if half is None else metric.limited(mean + half),
    }
    values = {
        **row,
        **metric.with_values(accuracies),
        "sd_accuracy": sd,
        "sd_training_seconds": sd_seconds,
        "speed_up": baseline_seconds / seconds if baseline_seconds and seconds else None,
    }
    return nested(SwitchPointStatistics, values)


def _deviation(squares: float | None, surplus: float | None, count: int) -> float | None:
    """Computes the standard deviation of a sample from its distances to the rounded mean.

    Their sum, the surplus, would be 0 with an exact mean; it corrects the squares for the rounding.
    """
    if squares is None or surplus is None or count < 2:
        return None
    return math.sqrt(max(0.0, squares - surplus * surplus / count) / (count - 1))


def _measured(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Returns the value for a run that did not diverge, else null, which aggregates ignore."""
    return case((~_FACTS.diverged, column))


def _sums(counting: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """Selects one row per switch point.

    The variances take two passes, first the means, then the squared distances from them: the
    squares of the values themselves would lose all digits of a small spread.
    """
    accuracy, seconds = _measured(_FACTS.converged_accuracy), _FACTS.whole_run_seconds
    keys = (_FACTS.fingerprint, _FACTS.candidate_percent, *_PROTOCOLS, *_CONDITIONS)
    first = (
        select(*keys, func.avg(accuracy).label("accuracy"), func.avg(seconds).label("seconds"))
        .where(*counting)
        .group_by(*keys)
        .subquery()
    )
    # These are the same for all runs of a workload.
    names = {field.name for field in fields(JobColumns)} - {"fingerprint", "first_protocol"}
    workload = [func.min(_FACTS[name]).label(name) for name in sorted(names | {"metric"})]
    workload += [func.min(WORKLOADS.c[name]).label(name) for name in _OF_METRIC]
    forked_after_it = _FACTS.fork_percent >= _FACTS.switch_percent
    overhead = case(
        (~_FACTS.diverged & forked_after_it.is_not(True), _FACTS.switch_overhead_seconds)
    )
    censored = case((~_FACTS.diverged & _FACTS.time_to_accuracy_is_censored, 1))
    target = _measured(_FACTS.target_accuracy)
    return (
        select(
            *keys,
            *workload,
            func.count().label("runs"),
            func.count(case((_FACTS.diverged, 1))).label("diverged_runs"),
            func.count(case((~_FACTS.diverged & _FACTS.stopped_early, 1))).label("stopped_runs"),
            func.avg(accuracy).label("mean_accuracy"),
            func.sum(_squared(accuracy - first.c.accuracy)).label("squared_accuracy"),
            func.sum(accuracy - first.c.accuracy).label("surplus_accuracy"),
            func.avg(_measured(_FACTS.final_accuracy)).label("mean_final_accuracy"),
            func.avg(seconds).label("mean_training_seconds"),
            func.count(seconds).label("timed_runs"),
            func.sum(_squared(seconds - first.c.seconds)).label("squared_seconds"),
            func.sum(seconds - first.c.seconds).label("surplus_seconds"),
            func.avg(_measured(_FACTS.paid_seconds)).label("mean_paid_seconds"),
            func.avg(overhead).label("mean_switch_overhead_seconds"),
            func.min(target).label("lowest_target_accuracy"),
            func.max(target).label("target_accuracy"),
            func.avg(_measured(_FACTS.time_to_accuracy_seconds)).label(
                "mean_time_to_accuracy_seconds"
            ),
            func.count(censored).label("censored_runs"),
        )
        .select_from(TRIAL_FACTS)
        .join(
            first,
            and_(
                *(first.c[key.name] == key for key in keys[:-1]),
                first.c.injections.is_not_distinct_from(_FACTS.injections),
            ),
        )
        .join(WORKLOADS, WORKLOADS.c.fingerprint == _FACTS.fingerprint)
        .where(*counting)
        .group_by(*keys)
    )


def _squared(value: ColumnElement[float]) -> ColumnElement[float]:
    # PostgreSQL raises an error for a product that is too small for a float.
    return case((func.abs(value) < _LEAST, 0.0), else_=value * value)
