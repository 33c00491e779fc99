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

from syncswitch.storage.tables.base import FINITE, METADATA, UtcDateTime, limited, required

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
    *limited("> 0", "version", "workers", "total_worker_steps"),
    *limited("BETWEEN 0 AND 100", "switch_percent"),
    *limited(">= 0", "threshold", "training_seconds", "baseline_seconds", "expected_time"),
    *limited(">= 0", "speed_up_low", "speed_up_high"),
    *limited("BETWEEN 0 AND 1", "confidence", "keep", "kept_share", "delivered_share"),
    *limited("BETWEEN 0 AND 1", "baseline_kept_share"),
    *limited(FINITE, "target_accuracy", "mean_accuracy"),
    CheckConstraint("metric_goal IN ('max', 'min')", name="metric_goal"),
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
    *limited("BETWEEN 0 AND 100", "switch_percent"),
    *limited(">= 0", "training_seconds"),
    *limited(FINITE, "converged_accuracy"),
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
