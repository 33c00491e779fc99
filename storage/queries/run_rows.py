"""What runs did, row by row: their evaluations and events, and when they reached a target."""

from __future__ import annotations

import math
from typing import Annotated, Any, get_type_hints

from sqlalchemy import Column, Select, Table, func, literal, select
from sqlalchemy.types import Double

from syncswitch.storage.errors import UserError
from syncswitch.storage.queries.trial_filter import TrialChoice, conditions
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.base import own_value
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import EVALUATIONS, EVENTS, WORKLOADS
from syncswitch.storage.trials.evaluations import inherited_accuracy_seconds

_FACTS = TRIAL_FACTS.c


class RunKeys:
    """The keys of a run's rows: runs are comparable where all keys but the first agree."""

    trial_id: Annotated[int, "number of the trial in this database"]
    workload: Annotated[str, "name of the workload"]
    workers: Annotated[int, "n, size of the cluster"]
    simulated_cluster: Annotated[str | None, "digest of its profile; null for a real one"]
    candidate_percent: Annotated[float | None, "switch point the run counts for; null if for none"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    replicate: Annotated[int, "number of this repeat of the switch point"]
    online: Annotated[str, "online policy: none, greedy or elastic"]
    switch_mechanism: Annotated[str, "how it switched: hot or restart"]
    injections: Annotated[str | None, "disturbances on purpose, joined by '; '; null for none"]


class EvaluationFacts(RunKeys):
    """The columns of `evaluations`: one row per test of a model.

    A test belongs to the run that made it: the curve of a fork begins where it left its parent.
    """

    worker_step: Annotated[int, "worker-steps done"]
    elapsed_seconds: Annotated[float, "training time so far, a fork's prefix included"]
    accuracy: Annotated[
        float, "test accuracy, 0 to 1; of another metric what is compared, more is better"
    ]
    metric: Annotated[str, "name of what the runs are compared by"]
    value: Annotated[float, "the metric's own value, in its unit"]
    training_loss: Annotated[
        float | None, "mean since the evaluation before; null where it was not a number"
    ]
    further: Annotated[
        dict[str, float] | None, "own values of further metrics by name, JSON; null for none"
    ]


class EventFacts(RunKeys):
    """The columns of `events`: one row per event of a complete run."""

    study: Annotated[str | None, "search it belongs to; null if imported"]
    trial_number: Annotated[int | None, "number in its search; null if imported"]
    position: Annotated[int, "number of the event in its run, from 0"]
    kind: Annotated[str, "what it was, for example detected, removed or lost"]
    worker: Annotated[int | None, "number of the worker; null where it is about no single one"]
    worker_step: Annotated[int, "worker-steps done at that moment"]
    elapsed_seconds: Annotated[float, "training time at that moment"]
    seconds: Annotated[float | None, "how long it took; null where that says nothing"]
    reason: Annotated[str, "why, with figures, for people"]


class AccuracyTime(RunKeys):
    """The columns of `accuracy_times`: one row per completed run."""

    diverged: Annotated[bool, "whether it diverged"]
    metric: Annotated[str, "name of what the runs are compared by"]
    target_value: Annotated[float, "as asked for, in the metric's unit"]
    time_to_accuracy_seconds: Annotated[
        float | None,
        "training time at the first evaluation at the target, in a fork's prefix or after;"
        " null if never there",
    ]
    is_censored: Annotated[bool, "never at the target: it would take longer than was observed"]
    observed_seconds: Annotated[
        float | None, "the time to the target, or where censored the training time until the end"
    ]


_RUN_KEYS = tuple(_FACTS[name] for name in RunKeys.__annotations__)


def evaluations(choice: TrialChoice) -> Select[Any]:
    """Selects the evaluations of trials, each curve in the order of its worker-steps.

    Raises UserError where the choice is impossible.
    """
    return _rows(EvaluationFacts, EVALUATIONS, EVALUATIONS.c.worker_step, choice)


def events(choice: TrialChoice) -> Select[Any]:
    """Selects the events of trials, those of each in their order.

    Raises UserError where the choice is impossible.
    """
    return _rows(EventFacts, EVENTS, EVENTS.c.position, choice)


def _rows(
    keys: type[RunKeys],
    table: Table,
    order: Column[Any],
    choice: TrialChoice,
) -> Select[Any]:
    """Rows of a table with what is known of their trials, in the order of the trials."""
    known = {
        **dict(_FACTS.items()),
        **dict(table.c.items()),  # both have a kind
        "value": own_value(EVALUATIONS.c.accuracy, _FACTS.metric_goal).label("value"),
    }
    columns = [known[name] for name in get_type_hints(keys)]
    return (
        select(*columns)
        .select_from(TRIAL_FACTS)
        .join(table, table.c.trial_id == _FACTS.trial_id)
        .where(*conditions(choice))
        .order_by(_FACTS.trial_id, order)
    )


def accuracy_times(choice: TrialChoice, target_value: float) -> Select[Any]:
    """Selects when each completed run first tested at a value of its metric, or a better one.

    The time of a fork counts from the start of the whole run. One that was stopped is censored at
    its stop. Raises UserError where the target or the choice is impossible.
    """
    if not math.isfinite(target_value):
        raise UserError(f"target_accuracy is {target_value}; give a number, for example 0.9")
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
            *_RUN_KEYS,
            _FACTS.diverged,
            _FACTS.metric,
            _FACTS.training_seconds,
            func.coalesce(inherited.c.seconds, own_seconds).label("seconds"),
        )
        .select_from(TRIAL_FACTS)
        .outerjoin(inherited, inherited.c.trial_id == _FACTS.trial_id)
        .where(*chosen)
        .cte()
        .prefix_with("MATERIALIZED", dialect="postgresql")  # or it looks up each time thrice
        .c
    )
    return select(
        *(reached[column.name] for column in _RUN_KEYS),
        reached.diverged,
        reached.metric,
        given.label("target_value"),
        reached.seconds.label("time_to_accuracy_seconds"),
        reached.seconds.is_(None).label("is_censored"),
        func.coalesce(reached.seconds, reached.training_seconds).label("observed_seconds"),
    ).order_by(reached.trial_id)
