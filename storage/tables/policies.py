"""The tables of timing policies."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
)

from syncswitch.storage.tables.base import METADATA, UtcDateTime, finite, required

POLICIES = Table(
    "syncswitch_policies",
    METADATA,
    Column("fingerprint", ForeignKey("syncswitch_workloads.fingerprint"), primary_key=True),
    Column("version", Integer, primary_key=True),
    required("workload", String(255)),
    required("workers", Integer),
    required("total_worker_steps", BigInteger),
    required("first_protocol", String(64)),
    required("second_protocol", String(64)),
    required("switch_percent", Double),
    required("target_accuracy", Double),
    required("threshold", Double),
    Column("mean_accuracy", Double),
    Column("training_seconds", Double),
    Column("baseline_seconds", Double),
    required("strategy", String(64)),
    required("study", String(512)),
    required("created_at", UtcDateTime),
    Column("imported_at", UtcDateTime),
    required("software", JSON),
    required("guarded", Boolean),
    Column("confidence", Double),
    Column("keep", Double),
    Column("kept_share", Double),
    Column("delivered_share", Double),
    Column("baseline_kept_share", Double),
    Column("expected_time", Double),
    Column("speed_up_low", Double),
    Column("speed_up_high", Double),
    Column("reason", String(255)),
    Column("band", JSON(none_as_null=True)),
    required("metric", String(255)),
    required("metric_goal", String(8)),
    Column("metric_unit", String(64)),
    Column("metric_lowest", Double),
    Column("metric_highest", Double),
    UniqueConstraint("fingerprint", "study", "created_at"),
    Index(None, "workload", "fingerprint"),  # workloads are also found by former names
    CheckConstraint("version > 0", name="version"),
    CheckConstraint("workers > 0", name="workers"),
    CheckConstraint("total_worker_steps > 0", name="total_worker_steps"),
    CheckConstraint("switch_percent BETWEEN 0 AND 100", name="switch_percent"),
    finite("target_accuracy"),
    CheckConstraint("threshold >= 0", name="threshold"),
    finite("mean_accuracy"),
    CheckConstraint("training_seconds >= 0", name="training_seconds"),
    CheckConstraint("baseline_seconds >= 0", name="baseline_seconds"),
    CheckConstraint("confidence BETWEEN 0 AND 1", name="confidence"),
    CheckConstraint("metric_goal IN ('max', 'min')", name="metric_goal"),
    CheckConstraint("keep BETWEEN 0 AND 1", name="keep"),
    CheckConstraint("kept_share BETWEEN 0 AND 1", name="kept_share"),
    CheckConstraint("delivered_share BETWEEN 0 AND 1", name="delivered_share"),
    CheckConstraint("expected_time >= 0", name="expected_time"),
    CheckConstraint("baseline_kept_share BETWEEN 0 AND 1", name="baseline_kept_share"),
    CheckConstraint("speed_up_low >= 0", name="speed_up_low"),
    CheckConstraint("speed_up_high >= 0", name="speed_up_high"),
    info={
        "meaning": ""
        "One version of the timing policy of a workload; never changed. `study` is not a foreign "
        "key: a policy may come from a search in another database, and then has the time of its "
        "import. A search publishes once."
    },
)

EVIDENCE = Table(
    "syncswitch_policy_evidence",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    required("study", String(512)),
    required("trial_number", Integer),
    required("switch_percent", Double),
    required("replicate", Integer),
    required("converged_accuracy", Double),
    required("diverged", Boolean),
    required("training_seconds", Double),
    ForeignKeyConstraint(
        ["fingerprint", "version"],
        [POLICIES.c.fingerprint, POLICIES.c.version],
    ),
    UniqueConstraint(
        "fingerprint",
        "version",
        "study",
        "trial_number",
        name="uq_syncswitch_policy_evidence_trial",
    ),
    CheckConstraint("switch_percent BETWEEN 0 AND 100", name="switch_percent"),
    finite("converged_accuracy"),
    CheckConstraint("training_seconds >= 0", name="training_seconds"),
    info={
        "meaning": "One trial that a policy rests on, as it stood when the policy was published."
    },
)

ALIASES = Table(
    "syncswitch_policy_aliases",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    Column("alias", String(64), primary_key=True),
    required("version", Integer),
    ForeignKeyConstraint(
        ["fingerprint", "version"],
        [POLICIES.c.fingerprint, POLICIES.c.version],
    ),
    info={"meaning": "A name that points at a version of a workload's policy."},
)
