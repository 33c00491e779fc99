"""The tables of timing policies."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
)

from syncswitch.storage.records.metric import GOALS
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.storage.tables.base import FINITE, METADATA, UtcDateTime, limited, required, stored

POLICIES = Table(
    "syncswitch_policies",
    METADATA,
    *stored(
        TimingPolicy,
        fingerprint=Column(
            "fingerprint", ForeignKey("syncswitch_workloads.fingerprint"), primary_key=True
        ),
        version=Column("version", Integer, primary_key=True),
        created_at=UtcDateTime(),
        reason=String(255),
        metric=String(255),
        evidence=None,
    ),
    Column("imported_at", UtcDateTime),
    UniqueConstraint("fingerprint", "study", "created_at"),
    Index(None, "workload", "fingerprint"),  # workloads are also found by former names
    *limited("> 0", "version", "workers", "total_worker_steps"),
    *limited("BETWEEN 0 AND 100", "switch_percent"),
    *limited(">= 0", "threshold", "training_seconds", "baseline_seconds", "expected_time"),
    *limited(">= 0", "speed_up_low", "speed_up_high"),
    *limited("BETWEEN 0 AND 1", "confidence", "min_kept_share", "kept_share", "delivered_share"),
    *limited("BETWEEN 0 AND 1", "baseline_kept_share"),
    *limited(FINITE, "target_accuracy", "mean_accuracy"),
    CheckConstraint(f"metric_goal IN {GOALS}", name="metric_goal"),
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
    *stored(Evidence),
    ForeignKeyConstraint(["fingerprint", "version"], [POLICIES.c.fingerprint, POLICIES.c.version]),
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
    ForeignKeyConstraint(["fingerprint", "version"], [POLICIES.c.fingerprint, POLICIES.c.version]),
    info={"meaning": "A name that points at a version of a workload's policy."},
)
