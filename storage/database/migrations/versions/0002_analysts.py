"""What analysts ask for: imported runs, settings, forks, time to accuracy, throughput."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    _workloads()
    _searches()
    _trials()
    _phases()
    _evaluations()
    _policies()
    _trial_facts()


def _workloads() -> None:
    with op.batch_alter_table("syncswitch_workloads") as table:
        for name in ("model", "data_set", "loss", "optimizer", "metric"):
            table.alter_column(name, existing_type=sa.Text(), nullable=True)
        table.alter_column("batch_size", existing_type=sa.Integer(), nullable=True)
        for name in ("learning_rate", "momentum"):
            table.alter_column(name, existing_type=sa.Double(), nullable=True)
        table.alter_column("learning_rate_boundaries", existing_type=sa.JSON(), nullable=True)
        table.alter_column(
            "evaluation_interval_worker_steps", existing_type=sa.BigInteger(), nullable=True
        )


def _searches() -> None:
    with op.batch_alter_table("syncswitch_searches") as table:
        table.create_unique_constraint(
            op.f("uq_syncswitch_searches_study_fingerprint"), ["study", "fingerprint"]
        )


def _trials() -> None:
    # Nearly all trials are complete, and SQLite took it instead of the index of the study.
    op.drop_index(op.f("ix_syncswitch_trials_state"), "syncswitch_trials")
    with op.batch_alter_table("syncswitch_trials") as table:
        table.add_column(sa.Column("fingerprint", sa.String(length=64), nullable=True))
        table.add_column(sa.Column("source", sa.String(length=1024), nullable=True))
        table.add_column(sa.Column("candidate_percent", sa.Double(), nullable=True))
        table.add_column(sa.Column("parent_trial_id", sa.Integer(), nullable=True))
        table.add_column(sa.Column("fork_percent", sa.Double(), nullable=True))
        table.add_column(sa.Column("target_accuracy", sa.Double(), nullable=True))
        table.add_column(sa.Column("time_to_accuracy_seconds", sa.Double(), nullable=True))
    # Every trial of a search counts for the setting that was asked for.
    op.execute(
        "UPDATE syncswitch_trials SET candidate_percent = switch_percent, fingerprint ="
        " (SELECT fingerprint FROM syncswitch_searches"
        " WHERE syncswitch_searches.study = syncswitch_trials.study)"
    )
    op.execute(
        "UPDATE syncswitch_trials SET failure = 'unknown'"
        " WHERE state = 'failed' AND failure IS NULL"
    )
    _known_targets()
    with op.batch_alter_table("syncswitch_trials") as table:
        table.alter_column("fingerprint", existing_type=sa.String(length=64), nullable=False)
        _may_be_unknown(table)
        _trial_keys(table)
        _trial_checks(table)
    op.create_index(
        op.f("ix_syncswitch_trials_fingerprint_candidate_percent_state"),
        "syncswitch_trials",
        ["fingerprint", "candidate_percent", "state"],
    )
    op.create_index(
        op.f("ix_syncswitch_trials_parent_trial_id"), "syncswitch_trials", ["parent_trial_id"]
    )


def _known_targets() -> None:
    """A search that published a policy knew its target."""
    op.execute(
        "UPDATE syncswitch_trials SET target_accuracy = (SELECT target_accuracy"
        " FROM syncswitch_policies WHERE syncswitch_policies.study = syncswitch_trials.study)"
        " WHERE state = 'complete'"
    )
    op.execute(
        "UPDATE syncswitch_trials SET time_to_accuracy_seconds = (SELECT MIN(elapsed_seconds)"
        " FROM syncswitch_evaluations"
        " WHERE syncswitch_evaluations.trial_id = syncswitch_trials.trial_id"
        " AND syncswitch_evaluations.accuracy >= syncswitch_trials.target_accuracy)"
        " WHERE target_accuracy IS NOT NULL"
    )


def _may_be_unknown(table: BatchOperations) -> None:
    """An imported run has no owner, perhaps no times, and no number in a search."""
    for name, kind in (
        ("study", sa.String(length=512)),
        ("trial_number", sa.Integer()),
        ("seed", sa.BigInteger()),
        ("started_at", sa.DateTime(timezone=True)),
        ("heartbeat_at", sa.DateTime(timezone=True)),
        ("host", sa.String(length=255)),
        ("process_id", sa.Integer()),
        ("process_started_at", sa.Double()),
    ):
        table.alter_column(name, existing_type=kind, nullable=True)


def _trial_keys(table: BatchOperations) -> None:
    table.create_unique_constraint(op.f("uq_syncswitch_trials_source"), ["source"])
    table.drop_constraint(op.f("fk_syncswitch_trials_study"), type_="foreignkey")
    table.create_foreign_key(
        op.f("fk_syncswitch_trials_study"),
        "syncswitch_searches",
        ["study", "fingerprint"],
        ["study", "fingerprint"],
    )
    table.create_foreign_key(
        op.f("fk_syncswitch_trials_fingerprint"),
        "syncswitch_workloads",
        ["fingerprint"],
        ["fingerprint"],
    )
    table.create_foreign_key(
        op.f("fk_syncswitch_trials_parent_trial_id"),
        "syncswitch_trials",
        ["parent_trial_id"],
        ["trial_id"],
    )


def _trial_checks(table: BatchOperations) -> None:
    table.drop_constraint(op.f("ck_syncswitch_trials_complete_is_measured"), type_="check")
    for name, condition in (
        ("numbered_in_search", "(study IS NULL) = (trial_number IS NULL)"),
        ("searched_or_imported", "(study IS NULL) <> (source IS NULL)"),
        ("candidate_percent", "candidate_percent BETWEEN 0 AND 100"),
        ("fork_percent", "fork_percent BETWEEN 0 AND 100"),
        ("fork", "(parent_trial_id IS NULL) = (fork_percent IS NULL)"),
        ("no_fork_of_itself", "parent_trial_id <> trial_id"),
        ("target_accuracy", "target_accuracy BETWEEN 0 AND 1"),
        ("time_to_accuracy_seconds", "time_to_accuracy_seconds >= 0"),
        ("time_to_a_target", "time_to_accuracy_seconds IS NULL OR target_accuracy IS NOT NULL"),
        (
            "running_has_owner",
            "state <> 'running' OR (started_at IS NOT NULL AND heartbeat_at IS NOT NULL"
            " AND host IS NOT NULL AND process_id IS NOT NULL"
            " AND process_started_at IS NOT NULL)",
        ),
        ("failed_has_reason", "state <> 'failed' OR failure IS NOT NULL"),
        (
            "complete_is_measured",
            "state <> 'complete' OR (converged_accuracy IS NOT NULL AND final_accuracy IS NOT NULL"
            " AND converged IS NOT NULL AND diverged IS NOT NULL AND stopped_early IS NOT NULL"
            " AND training_seconds IS NOT NULL AND inherited_seconds IS NOT NULL"
            " AND switch_overhead_seconds IS NOT NULL AND ended_at IS NOT NULL)"
            " OR (source IS NOT NULL AND diverged IS NOT NULL AND diverged)",
        ),
    ):
        table.create_check_constraint(op.f(f"ck_syncswitch_trials_{name}"), sa.text(condition))


def _phases() -> None:
    with op.batch_alter_table("syncswitch_phases") as table:
        table.alter_column("mean_staleness", existing_type=sa.Double(), nullable=True)
        table.alter_column("max_staleness", existing_type=sa.Integer(), nullable=True)
        table.add_column(
            sa.Column(
                "worker_steps_per_second",
                sa.Double(),
                sa.Computed(
                    "CASE WHEN seconds > 1e-9"
                    " THEN (end_worker_step - start_worker_step) / seconds END",
                    persisted=True,
                ),
                nullable=True,
            )
        )


def _evaluations() -> None:
    """On SQLite without row numbers, which makes the file half as large; elsewhere as it was."""
    if op.get_bind().dialect.name == "sqlite":
        with op.batch_alter_table(
            "syncswitch_evaluations", recreate="always", table_kwargs={"sqlite_with_rowid": False}
        ):
            pass


def _policies() -> None:
    with op.batch_alter_table("syncswitch_policies") as table:
        table.add_column(sa.Column("imported_at", sa.DateTime(timezone=True), nullable=True))
        table.drop_constraint(op.f("uq_syncswitch_policies_study"), type_="unique")
        table.create_unique_constraint(
            op.f("uq_syncswitch_policies_fingerprint_study_created_at"),
            ["fingerprint", "study", "created_at"],
        )
    op.create_index(
        op.f("ix_syncswitch_policies_workload_fingerprint"),
        "syncswitch_policies",
        ["workload", "fingerprint"],
    )
    op.create_index(
        "uq_syncswitch_policies_study",
        "syncswitch_policies",
        ["study"],
        unique=True,
        sqlite_where=sa.text("imported_at IS NULL"),
        postgresql_where=sa.text("imported_at IS NULL"),
    )


def _trial_facts() -> None:
    """One wide row per trial, for dashboards and for our own tables of trials.

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
    op.execute(
        "CREATE VIEW syncswitch_trial_facts AS SELECT t.trial_id, w.name AS workload,"
        " t.fingerprint, w.workers, w.first_protocol, w.second_protocol, w.total_worker_steps,"
        " t.study, t.trial_number, t.source, t.candidate_percent, t.switch_percent, t.replicate,"
        " t.seed, t.parent_trial_id, t.fork_percent, t.state, t.converged_accuracy,"
        " t.final_accuracy, t.converged, t.diverged, t.stopped_early, t.worker_steps,"
        " t.training_seconds, t.inherited_seconds,"
        " t.training_seconds - t.inherited_seconds AS paid_seconds, t.switch_overhead_seconds,"
        f" {phases}, t.target_accuracy, t.time_to_accuracy_seconds,"
        " CASE WHEN t.target_accuracy IS NOT NULL AND t.state = 'complete'"
        " THEN t.time_to_accuracy_seconds IS NULL END AS time_to_accuracy_is_censored,"
        " t.started_at, t.ended_at, t.host, t.failure, t.software"
        " FROM syncswitch_trials AS t"
        " JOIN syncswitch_workloads AS w ON w.fingerprint = t.fingerprint"
    )
