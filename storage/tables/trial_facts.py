"""The view `syncswitch_trial_facts`: one wide row per trial, for dashboards and our own queries."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, MetaData, Table, literal_column

from syncswitch.storage.columns import TrialFacts
from syncswitch.storage.records.flat import columns
from syncswitch.storage.tables.base import TABLE_PREFIX, own_value, stored
from syncswitch.storage.tables.trials import TRIALS

# So that any whole number can be compared with them.
_NUMBERS = {one.name: BigInteger() for one in columns(TrialFacts) if one.kind is int}
TRIAL_FACTS = Table(f"{TABLE_PREFIX}trial_facts", MetaData(), *stored(TrialFacts, **_NUMBERS))
"""The view; its columns are the fields of `TrialFacts`."""


def _in_sql(expression: ColumnElement[Any]) -> str:
    return str(expression.compile(compile_kwargs={"literal_binds": True}))


_IN_PHASE = (
    "(SELECT {value} FROM syncswitch_phases AS p"
    " WHERE p.trial_id = t.trial_id AND p.protocol = t.{which}_protocol)"
)
_PHASE_SECONDS = "SUM(p.seconds)"
_PHASE_RATE = (
    "CASE WHEN SUM(p.seconds) > 1e-9"
    " THEN SUM(p.end_worker_step - p.start_worker_step) / SUM(p.seconds) END"
)
_MISSING_SECONDS = (
    "(SELECT CASE WHEN p.seconds > 1e-9 AND p.end_worker_step > p.start_worker_step"
    " AND p.protocol ="
    " CASE WHEN t.switch_percent < 100 THEN t.second_protocol ELSE t.first_protocol END"
    " THEN (w.total_worker_steps - t.worker_steps) * p.seconds"
    " / (p.end_worker_step - p.start_worker_step) END"
    " FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id"
    " ORDER BY p.position DESC LIMIT 1)"
)
_OF_FAILED_SWITCHES = (
    "(SELECT {value} FROM syncswitch_failed_switches AS f WHERE f.trial_id = t.trial_id)"
)
_COMPUTED = {
    "failed_switches": _OF_FAILED_SWITCHES.format(value="COUNT(*)"),
    "guard_lost_seconds": _OF_FAILED_SWITCHES.format(value="SUM(f.lost_seconds)"),
    "workload": "w.name",
    "metric": "w.metric_name",
    **{
        f"{which}_value": _in_sql(
            own_value(literal_column(f"t.{which}_accuracy"), literal_column("w.metric_goal"))
        )
        for which in ("converged", "final", "target")
    },
    "kind": "CASE WHEN t.study IS NOT NULL THEN 'search' WHEN t.source IS NOT NULL THEN 'import'"
    " ELSE 'use' END",
    "paid_seconds": "t.training_seconds - t.inherited_seconds",
    "whole_run_seconds": "CASE WHEN t.state <> 'complete' OR t.diverged THEN NULL"
    " WHEN t.stopped_early AND t.worker_steps < w.total_worker_steps"
    f" THEN t.training_seconds + {_MISSING_SECONDS} ELSE t.training_seconds END",
    "time_to_accuracy_is_censored": "CASE WHEN t.target_accuracy IS NOT NULL"
    " AND t.state = 'complete' THEN t.time_to_accuracy_seconds IS NULL END",
    **{
        f"{which}_phase_{name}": _IN_PHASE.format(value=value, which=which)
        for which in ("first", "second")
        for name, value in (("seconds", _PHASE_SECONDS), ("worker_steps_per_second", _PHASE_RATE))
    },
}


def create_view() -> str:
    """Returns the statement that makes the view."""
    columns = []
    for name in TRIAL_FACTS.columns.keys():  # noqa: SIM118 (no dictionary)
        table = "t" if name in TRIALS.c else "w"
        columns.append(f"{_COMPUTED.get(name, f'{table}.{name}')} AS {name}")
    return (
        f"CREATE VIEW {TRIAL_FACTS.name} AS SELECT {', '.join(columns)} FROM syncswitch_trials AS t"
        " JOIN syncswitch_workloads AS w ON w.fingerprint = t.fingerprint"
    )
