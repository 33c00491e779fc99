"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    op.create_table(
        "syncswitch_workloads",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("reference", sa.String(length=1024), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("data_set", sa.Text(), nullable=False),
        sa.Column("loss", sa.Text(), nullable=False),
        sa.Column("optimizer", sa.Text(), nullable=False),
        sa.Column("total_worker_steps", sa.BigInteger(), nullable=False),
        sa.Column("batch_size", sa.Integer(), nullable=False),
        sa.Column("learning_rate", sa.Double(), nullable=False),
        sa.Column("momentum", sa.Double(), nullable=False),
        sa.Column("learning_rate_boundaries", sa.JSON(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("evaluation_interval_worker_steps", sa.BigInteger(), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("first_protocol", sa.String(length=64), nullable=False),
        sa.Column("second_protocol", sa.String(length=64), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("batch_size > 0", name=op.f("ck_syncswitch_workloads_batch_size")),
        sa.CheckConstraint(
            "total_worker_steps > 0", name=op.f("ck_syncswitch_workloads_total_worker_steps")
        ),
        sa.CheckConstraint("workers > 0", name=op.f("ck_syncswitch_workloads_workers")),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_syncswitch_workloads")),
    )
    op.create_index(
        op.f("ix_syncswitch_workloads_name"), "syncswitch_workloads", ["name"], unique=False
    )
    op.create_index(
        op.f("ix_syncswitch_workloads_reference"),
        "syncswitch_workloads",
        ["reference"],
        unique=False,
    )
    op.create_table(
        "syncswitch_policies",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("workload", sa.String(length=255), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("total_worker_steps", sa.BigInteger(), nullable=False),
        sa.Column("first_protocol", sa.String(length=64), nullable=False),
        sa.Column("second_protocol", sa.String(length=64), nullable=False),
        sa.Column("switch_percent", sa.Double(), nullable=False),
        sa.Column("target_accuracy", sa.Double(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("mean_accuracy", sa.Double(), nullable=True),
        sa.Column("training_seconds", sa.Double(), nullable=True),
        sa.Column("baseline_seconds", sa.Double(), nullable=True),
        sa.Column("strategy", sa.String(length=64), nullable=False),
        sa.Column("study", sa.String(length=512), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("software", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "baseline_seconds >= 0", name=op.f("ck_syncswitch_policies_baseline_seconds")
        ),
        sa.CheckConstraint(
            "mean_accuracy BETWEEN 0 AND 1", name=op.f("ck_syncswitch_policies_mean_accuracy")
        ),
        sa.CheckConstraint(
            "switch_percent BETWEEN 0 AND 100", name=op.f("ck_syncswitch_policies_switch_percent")
        ),
        sa.CheckConstraint(
            "target_accuracy BETWEEN 0 AND 1", name=op.f("ck_syncswitch_policies_target_accuracy")
        ),
        sa.CheckConstraint(
            "threshold BETWEEN 0 AND 1", name=op.f("ck_syncswitch_policies_threshold")
        ),
        sa.CheckConstraint(
            "total_worker_steps > 0", name=op.f("ck_syncswitch_policies_total_worker_steps")
        ),
        sa.CheckConstraint(
            "training_seconds >= 0", name=op.f("ck_syncswitch_policies_training_seconds")
        ),
        sa.CheckConstraint("version > 0", name=op.f("ck_syncswitch_policies_version")),
        sa.CheckConstraint("workers > 0", name=op.f("ck_syncswitch_policies_workers")),
        sa.ForeignKeyConstraint(
            ["fingerprint"],
            ["syncswitch_workloads.fingerprint"],
            name=op.f("fk_syncswitch_policies_fingerprint"),
        ),
        sa.PrimaryKeyConstraint("fingerprint", "version", name=op.f("pk_syncswitch_policies")),
        sa.UniqueConstraint("study", name=op.f("uq_syncswitch_policies_study")),
    )
    op.create_table(
        "syncswitch_searches",
        sa.Column("study", sa.String(length=512), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("strategy", sa.String(length=64), nullable=False),
        sa.Column("settings", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("target_accuracy", sa.Double(), nullable=True),
        sa.Column("trainer", sa.String(length=64), nullable=False),
        sa.Column("base_seed", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("runs > 0", name=op.f("ck_syncswitch_searches_runs")),
        sa.CheckConstraint("settings > 0", name=op.f("ck_syncswitch_searches_settings")),
        sa.CheckConstraint(
            "target_accuracy BETWEEN 0 AND 1", name=op.f("ck_syncswitch_searches_target_accuracy")
        ),
        sa.CheckConstraint(
            "threshold BETWEEN 0 AND 1", name=op.f("ck_syncswitch_searches_threshold")
        ),
        sa.ForeignKeyConstraint(
            ["fingerprint"],
            ["syncswitch_workloads.fingerprint"],
            name=op.f("fk_syncswitch_searches_fingerprint"),
        ),
        sa.PrimaryKeyConstraint("study", name=op.f("pk_syncswitch_searches")),
    )
    op.create_index(
        op.f("ix_syncswitch_searches_fingerprint"),
        "syncswitch_searches",
        ["fingerprint"],
        unique=False,
    )
    op.create_table(
        "syncswitch_policy_aliases",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint", "version"],
            ["syncswitch_policies.fingerprint", "syncswitch_policies.version"],
            name=op.f("fk_syncswitch_policy_aliases_fingerprint"),
        ),
        sa.PrimaryKeyConstraint("fingerprint", "alias", name=op.f("pk_syncswitch_policy_aliases")),
    )
    op.create_table(
        "syncswitch_policy_evidence",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("study", sa.String(length=512), nullable=False),
        sa.Column("trial_number", sa.Integer(), nullable=False),
        sa.Column("switch_percent", sa.Double(), nullable=False),
        sa.Column("replicate", sa.Integer(), nullable=False),
        sa.Column("converged_accuracy", sa.Double(), nullable=False),
        sa.Column("diverged", sa.Boolean(), nullable=False),
        sa.Column("training_seconds", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "converged_accuracy BETWEEN 0 AND 1",
            name=op.f("ck_syncswitch_policy_evidence_converged_accuracy"),
        ),
        sa.CheckConstraint(
            "switch_percent BETWEEN 0 AND 100",
            name=op.f("ck_syncswitch_policy_evidence_switch_percent"),
        ),
        sa.CheckConstraint(
            "training_seconds >= 0", name=op.f("ck_syncswitch_policy_evidence_training_seconds")
        ),
        sa.ForeignKeyConstraint(
            ["fingerprint", "version"],
            ["syncswitch_policies.fingerprint", "syncswitch_policies.version"],
            name=op.f("fk_syncswitch_policy_evidence_fingerprint"),
        ),
        sa.PrimaryKeyConstraint(
            "fingerprint", "version", "position", name=op.f("pk_syncswitch_policy_evidence")
        ),
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
        sa.Column("study", sa.String(length=512), nullable=False),
        sa.Column("trial_number", sa.Integer(), nullable=False),
        sa.Column("switch_percent", sa.Double(), nullable=False),
        sa.Column("replicate", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("fork_from", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("worker_steps", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("process_id", sa.Integer(), nullable=False),
        sa.Column("process_started_at", sa.Double(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("converged_accuracy", sa.Double(), nullable=True),
        sa.Column("final_accuracy", sa.Double(), nullable=True),
        sa.Column("converged", sa.Boolean(), nullable=True),
        sa.Column("diverged", sa.Boolean(), nullable=True),
        sa.Column("stopped_early", sa.Boolean(), nullable=True),
        sa.Column("training_seconds", sa.Double(), nullable=True),
        sa.Column("inherited_seconds", sa.Double(), nullable=True),
        sa.Column("switch_overhead_seconds", sa.Double(), nullable=True),
        sa.Column("software", sa.JSON(), nullable=True),
        sa.CheckConstraint(
            "state <> 'complete' OR (converged_accuracy IS NOT NULL AND final_accuracy IS NOT NULL"
            " AND converged IS NOT NULL AND diverged IS NOT NULL AND stopped_early IS NOT NULL"
            " AND training_seconds IS NOT NULL AND inherited_seconds IS NOT NULL"
            " AND switch_overhead_seconds IS NOT NULL AND ended_at IS NOT NULL)",
            name=op.f("ck_syncswitch_trials_complete_is_measured"),
        ),
        sa.CheckConstraint(
            "state IN ('running', 'complete', 'failed')", name=op.f("ck_syncswitch_trials_state")
        ),
        sa.CheckConstraint(
            "converged_accuracy BETWEEN 0 AND 1",
            name=op.f("ck_syncswitch_trials_converged_accuracy"),
        ),
        sa.CheckConstraint(
            "final_accuracy BETWEEN 0 AND 1", name=op.f("ck_syncswitch_trials_final_accuracy")
        ),
        sa.CheckConstraint(
            "inherited_seconds >= 0", name=op.f("ck_syncswitch_trials_inherited_seconds")
        ),
        sa.CheckConstraint("replicate >= 0", name=op.f("ck_syncswitch_trials_replicate")),
        sa.CheckConstraint(
            "switch_overhead_seconds >= 0",
            name=op.f("ck_syncswitch_trials_switch_overhead_seconds"),
        ),
        sa.CheckConstraint(
            "switch_percent BETWEEN 0 AND 100", name=op.f("ck_syncswitch_trials_switch_percent")
        ),
        sa.CheckConstraint(
            "training_seconds >= 0", name=op.f("ck_syncswitch_trials_training_seconds")
        ),
        sa.CheckConstraint("trial_number >= 0", name=op.f("ck_syncswitch_trials_trial_number")),
        sa.CheckConstraint("worker_steps >= 0", name=op.f("ck_syncswitch_trials_worker_steps")),
        sa.ForeignKeyConstraint(
            ["study"], ["syncswitch_searches.study"], name=op.f("fk_syncswitch_trials_study")
        ),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_syncswitch_trials")),
        sa.UniqueConstraint(
            "study", "trial_number", name=op.f("uq_syncswitch_trials_study_trial_number")
        ),
    )
    op.create_index(
        op.f("ix_syncswitch_trials_state"), "syncswitch_trials", ["state"], unique=False
    )
    op.create_table(
        "syncswitch_evaluations",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("worker_step", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_seconds", sa.Double(), nullable=False),
        sa.Column("accuracy", sa.Double(), nullable=False),
        sa.Column("training_loss", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "accuracy BETWEEN 0 AND 1", name=op.f("ck_syncswitch_evaluations_accuracy")
        ),
        sa.CheckConstraint(
            "elapsed_seconds >= 0", name=op.f("ck_syncswitch_evaluations_elapsed_seconds")
        ),
        sa.CheckConstraint("worker_step >= 0", name=op.f("ck_syncswitch_evaluations_worker_step")),
        sa.ForeignKeyConstraint(
            ["trial_id"],
            ["syncswitch_trials.trial_id"],
            name=op.f("fk_syncswitch_evaluations_trial_id"),
        ),
        sa.PrimaryKeyConstraint("trial_id", "worker_step", name=op.f("pk_syncswitch_evaluations")),
    )
    op.create_table(
        "syncswitch_phases",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("protocol", sa.String(length=64), nullable=False),
        sa.Column("start_worker_step", sa.BigInteger(), nullable=False),
        sa.Column("end_worker_step", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("mean_staleness", sa.Double(), nullable=False),
        sa.Column("max_staleness", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "end_worker_step >= start_worker_step",
            name=op.f("ck_syncswitch_phases_end_worker_step"),
        ),
        sa.CheckConstraint("max_staleness >= 0", name=op.f("ck_syncswitch_phases_max_staleness")),
        sa.CheckConstraint("mean_staleness >= 0", name=op.f("ck_syncswitch_phases_mean_staleness")),
        sa.CheckConstraint("seconds >= 0", name=op.f("ck_syncswitch_phases_seconds")),
        sa.CheckConstraint(
            "start_worker_step >= 0", name=op.f("ck_syncswitch_phases_start_worker_step")
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["syncswitch_trials.trial_id"], name=op.f("fk_syncswitch_phases_trial_id")
        ),
        sa.PrimaryKeyConstraint("trial_id", "position", name=op.f("pk_syncswitch_phases")),
    )
