"""Under which conditions a trial ran, and what happened to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0005"
down_revision: str | None = "0004"


def upgrade() -> None:
    op.execute("DROP VIEW syncswitch_trial_facts")
    _conditions()
    _events()
    _trial_facts()


def _conditions() -> None:
    """Whatever ran so far kept to its timing policy, and nobody disturbed it."""
    for name, default in (("online", "none"), ("switch_mechanism", "hot")):
        op.add_column(
            "syncswitch_trials",
            sa.Column(name, sa.String(length=16), server_default=default, nullable=False),
        )
    op.add_column("syncswitch_trials", sa.Column("injections", sa.Text(), nullable=True))


def _events() -> None:
    op.create_table(
        "syncswitch_events",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("worker_step", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_seconds", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("worker", sa.Integer(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        *(
            sa.CheckConstraint(f"{name} >= 0", name=op.f(f"ck_syncswitch_events_{name}"))
            for name in ("position", "worker_step", "elapsed_seconds", "worker", "seconds")
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"],
            ["syncswitch_trials.trial_id"],
            name=op.f("fk_syncswitch_events_trial_id"),
        ),
        sa.PrimaryKeyConstraint("trial_id", "position", name=op.f("pk_syncswitch_events")),
    )


def _trial_facts() -> None:
    """The view with three more columns.

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
        " t.switch_percent, t.replicate, t.seed, t.parent_trial_id, t.fork_percent,"
        " t.online, t.switch_mechanism, t.injections, t.state,"
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
