"""Tables of runs: trials, their evaluations and events, and when they reached a target."""

from __future__ import annotations

import math
from typing import Annotated, Any

from sqlalchemy import Column, Select, Table, func, literal, select
from sqlalchemy.types import Double

from syncswitch.storage.columns import TrialFacts
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.flat import Column as RecordColumn
from syncswitch.storage.records.flat import columns
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.base import own_value
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import EVALUATIONS, EVENTS, WORKLOADS
from syncswitch.storage.trials.choice import TrialChoice, conditions
from syncswitch.storage.trials.evaluations import inherited_accuracy_seconds

_FACTS = TRIAL_FACTS.c


_RUN_KEYS = (
    "trial_id",
    "workload",
    "workers",
    "simulated_cluster",
    "candidate_percent",
    "switch_percent",
    "replicate",
    "online",
    "switch_mechanism",
    "injections",
)
"""The first columns of each table; runs that agree in all but `trial_id` are comparable."""


class EvaluationFacts:
    """The columns of `evaluations`: one row per test of a model.

    A test belongs to the run that made it: the curve of a fork begins where it left its parent.
    """

    worker_step: Annotated[int, "worker-steps done"]
    elapsed_seconds: Annotated[float, "training time so far, a fork's prefix included"]
    accuracy: Annotated[
        float, "test accuracy, 0 to 1, or in another metric's own sense; more is better"
    ]
    metric: Annotated[str, "name of the metric that the runs are compared by"]
    value: Annotated[float, "the same as a value of the metric, in its unit"]
    training_loss: Annotated[
        float | None, "mean training loss since the evaluation before; null if it was not a number"
    ]
    further: Annotated[
        dict[str, float] | None, "values of further metrics by name, JSON; null for none"
    ]


class EventFacts:
    """The columns of `events`: one row per event of a complete run."""

    study: Annotated[str | None, "search that it belongs to; null for none"]
    trial_number: Annotated[int | None, "number in its search; null without one"]
    position: Annotated[int, "index of the event in its run, from 0"]
    kind: Annotated[str, "kind of event, for example detected, removed or lost"]
    worker: Annotated[int | None, "index of the worker; null if it does not concern a single one"]
    worker_step: Annotated[int, "worker-steps done at that moment"]
    elapsed_seconds: Annotated[float, "training time at that moment"]
    seconds: Annotated[float | None, "duration; null if that is meaningless"]
    reason: Annotated[str, "reason for people, with figures"]


class AccuracyTime:
    """The columns of `accuracy_times`: one row per completed run."""

    diverged: Annotated[bool, "whether it diverged"]
    metric: Annotated[str, "name of the metric that the runs are compared by"]
    target_value: Annotated[float, "target as given, in the metric's unit"]
    time_to_accuracy_seconds: Annotated[
        float | None,
        "training time at the first evaluation at the target, in a fork's prefix or after;"
        " null if there was none",
    ]
    is_censored: Annotated[
        bool, "whether it never reached the target: that takes longer than was observed"
    ]
    observed_seconds: Annotated[
        float | None,
        "the time to the target, or for a censored run the training time until its end",
    ]


def columns_of(rows: type) -> tuple[RecordColumn, ...]:
    """Returns the columns of a table of runs: the run's keys, and those that `rows` describes."""
    facts = {column.name: column for column in columns(TrialFacts)}
    return (*(facts[name] for name in _RUN_KEYS), *columns(rows))


def trials(choice: TrialChoice) -> Select[Any]:
    """Selects the columns of `TRIAL_FACTS`, in the order in which the trials were added.

    Raises UserError if the choice is impossible.
    """
    return select(TRIAL_FACTS).where(*conditions(choice)).order_by(_FACTS.trial_id)


def evaluations(choice: TrialChoice) -> Select[Any]:
    """Selects the evaluations of trials, each curve in the order of its worker-steps.

    Raises UserError if the choice is impossible.
    """
    return _rows(EvaluationFacts, EVALUATIONS, EVALUATIONS.c.worker_step, choice)


def events(choice: TrialChoice) -> Select[Any]:
    """Selects the events of trials, those of each in their order.

    Raises UserError if the choice is impossible.
    """
    return _rows(EventFacts, EVENTS, EVENTS.c.position, choice)


def _rows(rows: type, table: Table, order: Column[Any], choice: TrialChoice) -> Select[Any]:
    known = {
        **dict(_FACTS.items()),
        **dict(table.c.items()),  # both have a kind
        "value": own_value(EVALUATIONS.c.accuracy, _FACTS.metric_goal).label("value"),
    }
    columns = [known[column.name] for column in columns_of(rows)]
    return (
        select(*columns)
        .select_from(TRIAL_FACTS)
        .join(table, table.c.trial_id == _FACTS.trial_id)
        .where(*conditions(choice))
        .order_by(_FACTS.trial_id, order)
    )


def accuracy_times(choice: TrialChoice, target_value: float) -> Select[Any]:
    """Selects when each completed run first reached a value of its metric in a test.

    The time of a fork counts from the start of the whole run. A run that was stopped is censored at
    its stop. Raises UserError if the target or the choice is impossible.
    """
    if not math.isfinite(target_value):
        raise UserError(
            f"target_accuracy is {target_value}; give a number, for example 0.9",
            code="parameter-invalid",
        )
    given = literal(target_value, Double)
    chosen = (_FACTS.state == TrialState.COMPLETE, *conditions(choice))
    inherited = inherited_accuracy_seconds(
        select(_FACTS.trial_id).where(*chosen), own_value(given, WORKLOADS.c.metric_goal)
    )
    own_seconds = (
        select(func.min(EVALUATIONS.c.elapsed_seconds))
        .where(
            EVALUATIONS.c.trial_id == _FACTS.trial_id,
            EVALUATIONS.c.accuracy >= own_value(given, _FACTS.metric_goal),
        )
        .scalar_subquery()
    )
    reached = (
        select(
            *(_FACTS[name] for name in _RUN_KEYS),
            _FACTS.diverged,
            _FACTS.metric,
            _FACTS.training_seconds,
            func.coalesce(inherited.c.seconds, own_seconds).label("seconds"),
        )
        .select_from(TRIAL_FACTS)
        .outerjoin(inherited, inherited.c.trial_id == _FACTS.trial_id)
        .where(*chosen)
        .cte()
        .prefix_with("MATERIALIZED", dialect="postgresql")  # or it would look up each time thrice
        .c
    )
    return select(
        *(reached[name] for name in _RUN_KEYS),
        reached.diverged,
        reached.metric,
        given.label("target_value"),
        reached.seconds.label("time_to_accuracy_seconds"),
        reached.seconds.is_(None).label("is_censored"),
        func.coalesce(reached.seconds, reached.training_seconds).label("observed_seconds"),
    ).order_by(reached.trial_id)
