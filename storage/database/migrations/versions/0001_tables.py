"""All tables, and the view of trials. Names follow the convention of the models' metadata."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    op.create_table(
        "syncswitch_workloads",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("reference", sa.String(1024), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("data_set", sa.Text()),
        sa.Column("loss", sa.Text()),
        sa.Column("optimizer", sa.Text()),
        sa.Column("total_worker_steps", sa.BigInteger(), nullable=False),
        sa.Column("batch_size", sa.Integer()),
        sa.Column("learning_rate", sa.Double()),
        sa.Column("momentum", sa.Double()),
        sa.Column("learning_rate_boundaries", sa.JSON(none_as_null=True)),
        sa.Column("metric", sa.Text()),
        sa.Column("evaluation_interval_worker_steps", sa.BigInteger()),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("first_protocol", sa.String(64), nullable=False),
        sa.Column("second_protocol", sa.String(64), nullable=False),
        sa.Column("simulated_cluster", sa.String(64)),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("batch_size > 0", name="batch_size"),
        sa.CheckConstraint("total_worker_steps > 0", name="total_worker_steps"),
        sa.CheckConstraint("workers > 0", name="workers"),
        sa.PrimaryKeyConstraint("fingerprint"),
    )
    op.create_index(None, "syncswitch_workloads", ["name"])
    op.create_index(None, "syncswitch_workloads", ["reference"])
    op.create_table(
        "syncswitch_policies",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("workload", sa.String(255), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("total_worker_steps", sa.BigInteger(), nullable=False),
        sa.Column("first_protocol", sa.String(64), nullable=False),
        sa.Column("second_protocol", sa.String(64), nullable=False),
        sa.Column("switch_percent", sa.Double(), nullable=False),
        sa.Column("target_accuracy", sa.Double(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("mean_accuracy", sa.Double()),
        sa.Column("training_seconds", sa.Double()),
        sa.Column("baseline_seconds", sa.Double()),
        sa.Column("strategy", sa.String(64), nullable=False),
        sa.Column("study", sa.String(512), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True)),
        sa.Column("software", sa.JSON(), nullable=False),
        sa.Column("confidence", sa.Double()),
        sa.Column("criterion", sa.String(16), server_default="mean", nullable=False),
        sa.Column("keep", sa.Double()),
        sa.Column("kept_share", sa.Double()),
        sa.Column("baseline_kept_share", sa.Double()),
        sa.Column("speed_up_low", sa.Double()),
        sa.Column("speed_up_high", sa.Double()),
        sa.Column("reason", sa.String(255)),
        sa.CheckConstraint("criterion IN ('kept', 'mean')", name="criterion"),
        sa.CheckConstraint("baseline_kept_share BETWEEN 0 AND 1", name="baseline_kept_share"),
        sa.CheckConstraint("baseline_seconds >= 0", name="baseline_seconds"),
        sa.CheckConstraint("confidence BETWEEN 0 AND 1", name="confidence"),
        sa.CheckConstraint("keep BETWEEN 0 AND 1", name="keep"),
        sa.CheckConstraint("kept_share BETWEEN 0 AND 1", name="kept_share"),
        sa.CheckConstraint("mean_accuracy BETWEEN 0 AND 1", name="mean_accuracy"),
        sa.CheckConstraint("speed_up_high >= 0", name="speed_up_high"),
        sa.CheckConstraint("speed_up_low >= 0", name="speed_up_low"),
        sa.CheckConstraint("switch_percent BETWEEN 0 AND 100", name="switch_percent"),
        sa.CheckConstraint("target_accuracy BETWEEN 0 AND 1", name="target_accuracy"),
        sa.CheckConstraint("threshold BETWEEN 0 AND 1", name="threshold"),
        sa.CheckConstraint("total_worker_steps > 0", name="total_worker_steps"),
        sa.CheckConstraint("training_seconds >= 0", name="training_seconds"),
        sa.CheckConstraint("version > 0", name="version"),
        sa.CheckConstraint("workers > 0", name="workers"),
        sa.ForeignKeyConstraint(["fingerprint"], ["syncswitch_workloads.fingerprint"]),
        sa.PrimaryKeyConstraint("fingerprint", "version"),
        sa.UniqueConstraint("fingerprint", "study", "created_at"),
    )
    op.create_index(None, "syncswitch_policies", ["workload", "fingerprint"])
    op.create_index(
        "uq_syncswitch_policies_study",
        "syncswitch_policies",
        ["study"],
        unique=True,
        sqlite_where=sa.text("imported_at IS NULL"),
        postgresql_where=sa.text("imported_at IS NULL"),
    )
    op.create_table(
        "syncswitch_searches",
        sa.Column("study", sa.String(512), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("strategy", sa.String(64), nullable=False),
        sa.Column("settings", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("target_accuracy", sa.Double()),
        sa.Column("trainer", sa.String(64), nullable=False),
        sa.Column("base_seed", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("options", sa.JSON(), server_default="{}", nullable=False),
        sa.CheckConstraint("runs > 0", name="runs"),
        sa.CheckConstraint("settings > 0", name="settings"),
        sa.CheckConstraint("target_accuracy BETWEEN 0 AND 1", name="target_accuracy"),
        sa.CheckConstraint("threshold BETWEEN 0 AND 1", name="threshold"),
        sa.ForeignKeyConstraint(["fingerprint"], ["syncswitch_workloads.fingerprint"]),
        sa.PrimaryKeyConstraint("study"),
        sa.UniqueConstraint("study", "fingerprint"),
    )
    op.create_index(None, "syncswitch_searches", ["fingerprint"])
    op.create_table(
        "syncswitch_policy_aliases",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint", "version"],
            ["syncswitch_policies.fingerprint", "syncswitch_policies.version"],
        ),
        sa.PrimaryKeyConstraint("fingerprint", "alias"),
    )
    op.create_table(
        "syncswitch_policy_evidence",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("study", sa.String(512), nullable=False),
        sa.Column("trial_number", sa.Integer(), nullable=False),
        sa.Column("switch_percent", sa.Double(), nullable=False),
        sa.Column("replicate", sa.Integer(), nullable=False),
        sa.Column("converged_accuracy", sa.Double(), nullable=False),
        sa.Column("diverged", sa.Boolean(), nullable=False),
        sa.Column("training_seconds", sa.Double(), nullable=False),
        sa.CheckConstraint("converged_accuracy BETWEEN 0 AND 1", name="converged_accuracy"),
        sa.CheckConstraint("switch_percent BETWEEN 0 AND 100", name="switch_percent"),
        sa.CheckConstraint("training_seconds >= 0", name="training_seconds"),
        sa.ForeignKeyConstraint(
            ["fingerprint", "version"],
            ["syncswitch_policies.fingerprint", "syncswitch_policies.version"],
        ),
        sa.PrimaryKeyConstraint("fingerprint", "version", "position"),
        sa.UniqueConstraint(
            "fingerprint",
            "version",
            "study",
            "trial_number",
            name="uq_syncswitch_policy_evidence_trial",
        ),
    )
    op.create_table(
        "syncswitch_trials",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("study", sa.String(512)),
        sa.Column("trial_number", sa.Integer()),
        sa.Column("source", sa.String(1024)),
        sa.Column("candidate_percent", sa.Double()),
        sa.Column("switch_percent", sa.Double(), nullable=False),
        sa.Column("replicate", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger()),
        sa.Column("fork_from", sa.Text()),
        sa.Column("parent_trial_id", sa.Integer()),
        sa.Column("fork_percent", sa.Double()),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("worker_steps", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True)),
        sa.Column("host", sa.String(255)),
        sa.Column("process_id", sa.Integer()),
        sa.Column("process_started_at", sa.Double()),
        sa.Column("failure", sa.Text()),
        sa.Column("converged_accuracy", sa.Double()),
        sa.Column("final_accuracy", sa.Double()),
        sa.Column("converged", sa.Boolean()),
        sa.Column("diverged", sa.Boolean()),
        sa.Column("stopped_early", sa.Boolean()),
        sa.Column("training_seconds", sa.Double()),
        sa.Column("inherited_seconds", sa.Double()),
        sa.Column("switch_overhead_seconds", sa.Double()),
        sa.Column("target_accuracy", sa.Double()),
        sa.Column("time_to_accuracy_seconds", sa.Double()),
        sa.Column("software", sa.JSON(none_as_null=True)),
        sa.Column("online", sa.String(16), server_default="none", nullable=False),
        sa.Column("switch_mechanism", sa.String(16), server_default="hot", nullable=False),
        sa.Column("injections", sa.Text()),
        sa.Column("speculative", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("converged_evaluations", sa.Integer()),
        sa.Column("plateau_accuracy", sa.Double()),
        sa.CheckConstraint(
            "state <> 'complete' OR (converged_accuracy IS NOT NULL AND final_accuracy IS NOT"
            " NULL AND converged IS NOT NULL AND diverged IS NOT NULL AND stopped_early IS NOT"
            " NULL AND training_seconds IS NOT NULL AND inherited_seconds IS NOT NULL AND"
            " switch_overhead_seconds IS NOT NULL AND ended_at IS NOT NULL) OR (source IS NOT"
            " NULL AND diverged IS NOT NULL AND diverged)",
            name="complete_is_measured",
        ),
        sa.CheckConstraint("state <> 'failed' OR failure IS NOT NULL", name="failed_has_reason"),
        sa.CheckConstraint(
            "state <> 'running' OR (started_at IS NOT NULL AND heartbeat_at IS NOT NULL AND host"
            " IS NOT NULL AND process_id IS NOT NULL AND process_started_at IS NOT NULL)",
            name="running_has_owner",
        ),
        sa.CheckConstraint("state IN ('running', 'complete', 'failed')", name="state"),
        sa.CheckConstraint("(parent_trial_id IS NULL) = (fork_percent IS NULL)", name="fork"),
        sa.CheckConstraint("(study IS NULL) <> (source IS NULL)", name="searched_or_imported"),
        sa.CheckConstraint("(study IS NULL) = (trial_number IS NULL)", name="numbered_in_search"),
        sa.CheckConstraint("converged_accuracy BETWEEN 0 AND 1", name="converged_accuracy"),
        sa.CheckConstraint("final_accuracy BETWEEN 0 AND 1", name="final_accuracy"),
        sa.CheckConstraint("plateau_accuracy BETWEEN 0 AND 1", name="plateau_accuracy"),
        sa.CheckConstraint("fork_percent BETWEEN 0 AND 100", name="fork_percent"),
        sa.CheckConstraint("inherited_seconds >= 0", name="inherited_seconds"),
        sa.CheckConstraint("parent_trial_id <> trial_id", name="no_fork_of_itself"),
        sa.CheckConstraint("replicate >= 0", name="replicate"),
        sa.CheckConstraint("candidate_percent BETWEEN 0 AND 100", name="candidate_percent"),
        sa.CheckConstraint("switch_overhead_seconds >= 0", name="switch_overhead_seconds"),
        sa.CheckConstraint("switch_percent BETWEEN 0 AND 100", name="switch_percent"),
        sa.CheckConstraint("target_accuracy BETWEEN 0 AND 1", name="target_accuracy"),
        sa.CheckConstraint("time_to_accuracy_seconds >= 0", name="time_to_accuracy_seconds"),
        sa.CheckConstraint(
            "time_to_accuracy_seconds IS NULL OR target_accuracy IS NOT NULL",
            name="time_to_a_target",
        ),
        sa.CheckConstraint("training_seconds >= 0", name="training_seconds"),
        sa.CheckConstraint("trial_number >= 0", name="trial_number"),
        sa.CheckConstraint("worker_steps >= 0", name="worker_steps"),
        sa.ForeignKeyConstraint(["fingerprint"], ["syncswitch_workloads.fingerprint"]),
        sa.ForeignKeyConstraint(["parent_trial_id"], ["syncswitch_trials.trial_id"]),
        sa.ForeignKeyConstraint(
            ["study", "fingerprint"],
            ["syncswitch_searches.study", "syncswitch_searches.fingerprint"],
            name="fk_syncswitch_trials_study",
        ),
        sa.PrimaryKeyConstraint("trial_id"),
        sa.UniqueConstraint("source"),
        sa.UniqueConstraint("study", "trial_number"),
    )
    op.create_index(None, "syncswitch_trials", ["fingerprint", "candidate_percent", "state"])
    op.create_index(None, "syncswitch_trials", ["parent_trial_id"])
    op.create_table(
        "syncswitch_checkpoints",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("percent", sa.Double(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.CheckConstraint("percent BETWEEN 0 AND 100", name="percent"),
        sa.ForeignKeyConstraint(["trial_id"], ["syncswitch_trials.trial_id"]),
        sa.PrimaryKeyConstraint("trial_id", "percent"),
    )
    op.create_table(
        "syncswitch_evaluations",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("worker_step", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_seconds", sa.Double(), nullable=False),
        sa.Column("accuracy", sa.Double(), nullable=False),
        sa.Column("training_loss", sa.Double()),
        sa.CheckConstraint("accuracy BETWEEN 0 AND 1", name="accuracy"),
        sa.CheckConstraint("elapsed_seconds >= 0", name="elapsed_seconds"),
        sa.CheckConstraint("worker_step >= 0", name="worker_step"),
        sa.ForeignKeyConstraint(["trial_id"], ["syncswitch_trials.trial_id"]),
        sa.PrimaryKeyConstraint("trial_id", "worker_step"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "syncswitch_events",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("worker_step", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_seconds", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("worker", sa.Integer()),
        sa.Column("seconds", sa.Double()),
        sa.CheckConstraint("elapsed_seconds >= 0", name="elapsed_seconds"),
        sa.CheckConstraint("position >= 0", name="position"),
        sa.CheckConstraint("seconds >= 0", name="seconds"),
        sa.CheckConstraint("worker >= 0", name="worker"),
        sa.CheckConstraint("worker_step >= 0", name="worker_step"),
        sa.ForeignKeyConstraint(["trial_id"], ["syncswitch_trials.trial_id"]),
        sa.PrimaryKeyConstraint("trial_id", "position"),
    )
    op.create_table(
        "syncswitch_phases",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("protocol", sa.String(64), nullable=False),
        sa.Column("start_worker_step", sa.BigInteger(), nullable=False),
        sa.Column("end_worker_step", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column(
            "worker_steps_per_second",
            sa.Double(),
            sa.Computed(
                "CASE WHEN seconds > 1e-9 THEN (end_worker_step - start_worker_step) / seconds END",
                persisted=True,
            ),
        ),
        sa.Column("mean_staleness", sa.Double()),
        sa.Column("max_staleness", sa.Integer()),
        sa.CheckConstraint("end_worker_step >= start_worker_step", name="end_worker_step"),
        sa.CheckConstraint("max_staleness >= 0", name="max_staleness"),
        sa.CheckConstraint("mean_staleness >= 0", name="mean_staleness"),
        sa.CheckConstraint("seconds >= 0", name="seconds"),
        sa.CheckConstraint("start_worker_step >= 0", name="start_worker_step"),
        sa.ForeignKeyConstraint(["trial_id"], ["syncswitch_trials.trial_id"]),
        sa.PrimaryKeyConstraint("trial_id", "position"),
    )
    _trial_facts()


def _trial_facts() -> None:
    """The view; a migration that changes one of its tables has to drop it first."""
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
        "CASE WHEN t.state <> 'complete' OR t.diverged THEN NULL"
        " WHEN t.stopped_early AND t.worker_steps < w.total_worker_steps"
        f" THEN t.training_seconds + {missing_seconds} ELSE t.training_seconds END"
    )
    op.execute(
        "CREATE VIEW syncswitch_trial_facts AS SELECT t.trial_id, w.name AS workload,"
        " t.fingerprint, w.workers, w.simulated_cluster, w.first_protocol, w.second_protocol,"
        " w.total_worker_steps, t.study, t.trial_number, t.source, t.candidate_percent,"
        " t.switch_percent, t.replicate, t.seed, t.parent_trial_id, t.fork_percent,"
        " t.online, t.switch_mechanism, t.injections, t.speculative, t.state,"
        " t.converged_accuracy, t.converged_evaluations, t.final_accuracy, t.converged,"
        " t.diverged, t.stopped_early,"
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
