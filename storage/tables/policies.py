"""The tables of timing policies."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from syncswitch.storage.tables.base import Base, finite


class PolicyRow(Base):
    """One version of the timing policy of a workload; never changed.

    `study` refers to no table here: a policy may come from a search in another database, and then
    says when it was imported. A search publishes once.
    """

    __tablename__ = "syncswitch_policies"
    __table_args__ = (
        UniqueConstraint("fingerprint", "study", "created_at"),
        Index(None, "workload", "fingerprint"),  # a workload is found by its former names, too
        Index(
            "uq_syncswitch_policies_study",
            "study",
            unique=True,
            sqlite_where=text("imported_at IS NULL"),
            postgresql_where=text("imported_at IS NULL"),
        ),
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
    )

    fingerprint: Mapped[str] = mapped_column(
        ForeignKey("syncswitch_workloads.fingerprint"), primary_key=True
    )
    version: Mapped[int] = mapped_column(primary_key=True)
    workload: Mapped[str] = mapped_column(String(255))
    workers: Mapped[int]
    total_worker_steps: Mapped[int] = mapped_column(BigInteger)
    first_protocol: Mapped[str] = mapped_column(String(64))
    second_protocol: Mapped[str] = mapped_column(String(64))
    switch_percent: Mapped[float]
    target_accuracy: Mapped[float]
    threshold: Mapped[float]
    mean_accuracy: Mapped[float | None]
    training_seconds: Mapped[float | None]
    baseline_seconds: Mapped[float | None]
    strategy: Mapped[str] = mapped_column(String(64))
    study: Mapped[str] = mapped_column(String(512))
    created_at: Mapped[datetime]
    imported_at: Mapped[datetime | None]
    software: Mapped[dict[str, str]]
    guarded: Mapped[bool]
    confidence: Mapped[float | None]
    keep: Mapped[float | None]
    kept_share: Mapped[float | None]
    delivered_share: Mapped[float | None]
    baseline_kept_share: Mapped[float | None]
    expected_time: Mapped[float | None]
    speed_up_low: Mapped[float | None]
    speed_up_high: Mapped[float | None]
    reason: Mapped[str | None] = mapped_column(String(255))
    band: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    metric: Mapped[str] = mapped_column(String(255))
    metric_goal: Mapped[str] = mapped_column(String(8))
    metric_unit: Mapped[str | None] = mapped_column(String(64))
    metric_lowest: Mapped[float | None]
    metric_highest: Mapped[float | None]

    evidence: Mapped[list[EvidenceRow]] = relationship(order_by="EvidenceRow.position")


class EvidenceRow(Base):
    """One trial that a policy rests on, as it stood when the policy was published."""

    __tablename__ = "syncswitch_policy_evidence"
    __table_args__ = (
        ForeignKeyConstraint(
            ["fingerprint", "version"],
            [PolicyRow.fingerprint, PolicyRow.version],
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
    )

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    study: Mapped[str] = mapped_column(String(512))
    trial_number: Mapped[int]
    switch_percent: Mapped[float]
    replicate: Mapped[int]
    converged_accuracy: Mapped[float]
    diverged: Mapped[bool]
    training_seconds: Mapped[float]


class PolicyAliasRow(Base):
    """A name that points at a version of a workload's policy."""

    __tablename__ = "syncswitch_policy_aliases"
    __table_args__ = (
        ForeignKeyConstraint(
            ["fingerprint", "version"],
            [PolicyRow.fingerprint, PolicyRow.version],
        ),
    )

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    alias: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int]
