"""Which workloads ran on a simulated cluster: a simulated job and a real one are two jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0004"
down_revision: str | None = "0003"


def upgrade() -> None:
    op.execute("DROP VIEW syncswitch_trial_facts")
    # Null in all rows: whatever was measured so far ran on a real cluster.
    op.add_column(
        "syncswitch_workloads",
        sa.Column("simulated_cluster", sa.String(length=64), nullable=True),
    )
    _trial_facts()


def _trial_facts() -> None:
    """The view with one more column.

    A migration that changes one of its tables has to drop it first.
    """
    phase = (
        "(SELECT {value} FROM syncswitch_phases AS p"
        " WHERE p.trial_id = t.trial_id AND p.protocol = w.{which}_protocol)"
    )
    rate = (
        "CASE WHEN SUM(p.seconds) > 1e-9"
        " THEN SUM(p.end_worker_step - p.start_worker_step) / SUM(p.seconds) END"
    )
    phases = ", ".join(
        f"{phase.format(value='SUM(p.seconds)', which=which)} AS {which}_phase_seconds,"
        f" {phase.format(value=rate, which=which)} AS {which}_phase_worker_steps_per_second"
        for which in ("first", "second")
    )
    missing_seconds = (
        "(SELECT CASE WHEN p.seconds > 1e-9 AND p.end_worker_step > p.start_worker_step"
        " AND p.protocol ="
        " CASE WHEN t.switch_percent < 100 THEN w.second_protocol ELSE w.first_protocol END"
        " THEN (w.total_worker_steps - t.worker_steps) * p.seconds"
        " / (p.end_worker_step - p.start_worker_step) END"
        " FROM syncswitch_phases AS p WHERE p.trial_id = t.trial_id"
        " ORDER BY p.position DESC LIMIT 1)"
    )
    whole_run_seconds = (
        "CASE WHEN t.diverged THEN NULL"
        " WHEN t.stopped_early AND t.worker_steps < w.total_worker_steps"
        f" THEN t.training_seconds + {missing_seconds} ELSE t.training_seconds END"
    )
    op.execute(
        "CREATE VIEW syncswitch_trial_facts AS SELECT t.trial_id, w.name AS workload,"
        " t.fingerprint, w.workers, w.simulated_cluster, w.first_protocol, w.second_protocol,"
        " w.total_worker_steps, t.study, t.trial_number, t.source, t.candidate_percent,"
        " t.switch_percent, t.replicate, t.seed, t.parent_trial_id, t.fork_percent, t.state,"
        " t.converged_accuracy, t.final_accuracy, t.converged, t.diverged, t.stopped_early,"
        " t.worker_steps, t.training_seconds, t.inherited_seconds,"
        " t.training_seconds - t.inherited_seconds AS paid_seconds,"
        f" {whole_run_seconds} AS whole_run_seconds, t.switch_overhead_seconds,"
        f" {phases}, t.target_accuracy, t.time_to_accuracy_seconds,"
        " CASE WHEN t.target_accuracy IS NOT NULL AND t.state = 'complete'"
        " THEN t.time_to_accuracy_seconds IS NULL END AS time_to_accuracy_is_censored,"
        " t.started_at, t.ended_at, t.host, t.failure, t.software"
        " FROM syncswitch_trials AS t"
        " JOIN syncswitch_workloads AS w ON w.fingerprint = t.fingerprint"
    )
