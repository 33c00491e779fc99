"""The view `syncswitch_trial_facts`: one wide row per trial, the same on every database.

Dashboards may read it, and all our tables of trials do.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    literal_column,
)

from syncswitch.storage.tables.base import TABLE_PREFIX, StateText, UtcDateTime, own_value

TRIAL_FACTS = Table(
    f"{TABLE_PREFIX}trial_facts",
    MetaData(),
    Column("trial_id", Integer, nullable=False, comment="number in this database"),
    Column("workload", String, nullable=False, comment="name of the workload"),
    Column("fingerprint", String, nullable=False, comment="of the workload on its cluster"),
    Column("workers", Integer, nullable=False, comment="n, size of the cluster"),
    Column("simulated_cluster", String, comment="digest of its profile; null for a real one"),
    Column("first_protocol", String, nullable=False, comment="before the switch"),
    Column("second_protocol", String, nullable=False, comment="after the switch"),
    Column("total_worker_steps", BigInteger, nullable=False, comment="W, length of the job"),
    Column("metric", String, nullable=False, comment="name of what its runs are compared by"),
    Column(
        "metric_goal",
        String,
        nullable=False,
        comment="max where more of the metric is better; where min, every accuracy is its negative",
    ),
    Column("metric_unit", String, comment="of the metric's values; null for none"),
    Column(
        "kind",
        String,
        nullable=False,
        comment="search, import, or use: a later run with a policy, which no search made",
    ),
    Column("study", String, comment="search it belongs to; null if of none"),
    Column("trial_number", Integer, comment="number in its search; null if of none"),
    Column("source", String, comment="what it was imported from; null if it was not"),
    Column("use_id", String, comment="of a use, the same in every database; null if it is none"),
    Column("policy_version", Integer, comment="that a use trained with; null if it is none"),
    Column(
        "candidate_percent",
        Double,
        comment="switch point it counts for; null if it counts for none",
    ),
    Column("switch_percent", Double, nullable=False, comment="percent of W in the first protocol"),
    Column(
        "replicate", Integer, nullable=False, comment="number of this repeat of the switch point"
    ),
    Column("seed", BigInteger, comment="of parameters and order of data; null if unknown"),
    Column("parent_trial_id", Integer, comment="trial it was forked from; null if of none"),
    Column("fork_percent", Double, comment="percent of W at which it was forked"),
    Column("online", String, nullable=False, comment="online policy: none, greedy or elastic"),
    Column("switch_mechanism", String, nullable=False, comment="how it switched: hot or restart"),
    Column("injections", Text, comment="disturbances on purpose, joined by '; '; null for none"),
    Column(
        "speculative",
        Boolean,
        nullable=False,
        comment="begun in advance, before the search was known to need it",
    ),
    Column("state", StateText, nullable=False, comment="running, complete or failed"),
    Column(
        "converged_accuracy",
        Double,
        comment="mean accuracy of the last evaluations, those in a fork's prefix included, 0 to 1;"
        " of another metric what is compared, of which more is better",
    ),
    Column("converged_value", Double, comment="the metric's own value of it, in its unit"),
    Column(
        "converged_evaluations",
        Integer,
        comment="of so many: 5, or all of a shorter run; 1 if imported; null if unknown",
    ),
    Column("final_accuracy", Double, comment="of the last evaluation, 0 to 1"),
    Column("final_value", Double, comment="the metric's own value of it, in its unit"),
    Column("converged", Boolean, comment="whether the last 5 evaluations span at most 0.1 pp"),
    Column("diverged", Boolean, comment="whether it diverged"),
    Column("stopped_early", Boolean, comment="whether it was stopped before W"),
    Column(
        "plateau_accuracy",
        Double,
        comment="of a whole run of a search that may stop runs, where it might have been stopped",
    ),
    Column(
        "worker_steps", BigInteger, nullable=False, comment="done so far, a fork's prefix included"
    ),
    Column(
        "training_seconds",
        Double,
        comment="training time until its end or its stop, a fork's prefix included; of a failed"
        " run only where it was stopped because it was no longer needed",
    ),
    Column("inherited_seconds", Double, comment="part of it that a fork did not pay for"),
    Column("paid_seconds", Double, comment="the other part"),
    Column(
        "whole_run_seconds",
        Double,
        comment="training_seconds, of a stopped run what the whole would have taken; null if"
        " unknown, failed or diverged",
    ),
    Column("switch_overhead_seconds", Double, comment="what the switch took, not training time"),
    Column("first_phase_seconds", Double, comment="the part of paid_seconds in the first protocol"),
    Column("first_phase_worker_steps_per_second", Double, comment="throughput in it"),
    Column(
        "second_phase_seconds", Double, comment="the part of paid_seconds in the second protocol"
    ),
    Column("second_phase_worker_steps_per_second", Double, comment="throughput in it"),
    Column(
        "guard",
        String,
        comment="off, quiet, or alarmed: it sent the run back to its switch; null if unknown",
    ),
    Column(
        "failed_switches",
        BigInteger,
        nullable=False,
        comment="so many failed, each a row of syncswitch_failed_switches",
    ),
    Column(
        "held_percent",
        Double,
        comment="switch with which the run came to its end, after those that failed; 100 for the"
        " first protocol alone; null where it ended at an alarm, or nobody knows",
    ),
    Column(
        "guard_lost_seconds",
        Double,
        comment="training time from failed switches to their alarms, in vain; null for none",
    ),
    Column("target_accuracy", Double, comment="of the search or the policy; null while unknown"),
    Column("target_value", Double, comment="the metric's own value of it, in its unit"),
    Column(
        "time_to_accuracy_seconds",
        Double,
        comment="training time at the first evaluation at the target, in a fork's prefix or after",
    ),
    Column(
        "time_to_accuracy_is_censored",
        Boolean,
        comment="never at the target: the time is more than training_seconds",
    ),
    Column("started_at", UtcDateTime, comment="UTC"),
    Column("ended_at", UtcDateTime, comment="UTC; null while running"),
    Column("host", String, comment="of the chief; null if unknown"),
    Column("failure", Text, comment="why it failed"),
    Column("software", JSON, comment="version by name of distribution"),
)
"""Its columns; the comments are their documentation."""


def _in_sql(expression: ColumnElement[Any]) -> str:
    return str(expression.compile(compile_kwargs={"literal_binds": True}))


_OF_WORKLOAD = frozenset(
    {
        "workers",
        "simulated_cluster",
        "first_protocol",
        "second_protocol",
        "total_worker_steps",
        "metric_goal",
        "metric_unit",
    }
)
_IN_PHASE = (
    "(SELECT {value} FROM syncswitch_phases AS p"
    " WHERE p.trial_id = t.trial_id AND p.protocol = w.{which}_protocol)"
)
_PHASE_SECONDS = "SUM(p.seconds)"
_PHASE_RATE = (
    "CASE WHEN SUM(p.seconds) > 1e-9"
    " THEN SUM(p.end_worker_step - p.start_worker_step) / SUM(p.seconds) END"
)
_MISSING_SECONDS = (
    "(SELECT CASE WHEN p.seconds > 1e-9 AND p.end_worker_step > p.start_worker_step"
    " AND p.protocol ="
    " CASE WHEN t.switch_percent < 100 THEN w.second_protocol ELSE w.first_protocol END"
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
    """The statement that makes the view."""
    columns = []
    for name in TRIAL_FACTS.columns.keys():  # noqa: SIM118 (no dictionary)
        table = "w" if name in _OF_WORKLOAD else "t"
        columns.append(f"{_COMPUTED.get(name, f'{table}.{name}')} AS {name}")
    return (
        f"CREATE VIEW {TRIAL_FACTS.name} AS SELECT {', '.join(columns)} FROM syncswitch_trials AS t"
        " JOIN syncswitch_workloads AS w ON w.fingerprint = t.fingerprint"
    )
