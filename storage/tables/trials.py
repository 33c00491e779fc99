"""The tables. Their names start with `syncswitch_`: Optuna's stand in the same database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Computed,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.base import Base, finite

# Few trials are uses; an index of all would be taken for "is no use", which chooses nothing.
_IS_USE = text("use_id IS NOT NULL")
_OF_USES: dict[str, Any] = {"sqlite_where": _IS_USE, "postgresql_where": _IS_USE}


class WorkloadRow(Base):
    """A workload on a cluster of one size, with one pair of protocols.

    What nobody recorded of an imported job is null. `simulated_cluster` is null for a real one.
    `next_seed` is the least that was not handed out to a run with a policy.
    """

    __tablename__ = "syncswitch_workloads"
    __table_args__ = (
        CheckConstraint("total_worker_steps > 0", name="total_worker_steps"),
        CheckConstraint("batch_size > 0", name="batch_size"),
        CheckConstraint("workers > 0", name="workers"),
    )

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), index=True)
    reference: Mapped[str] = mapped_column(String(1024), index=True)
    model: Mapped[str | None] = mapped_column(Text)
    data_set: Mapped[str | None] = mapped_column(Text)
    loss: Mapped[str | None] = mapped_column(Text)
    optimizer: Mapped[str | None] = mapped_column(Text)
    total_worker_steps: Mapped[int] = mapped_column(BigInteger)
    batch_size: Mapped[int | None]
    learning_rate: Mapped[float | None]
    momentum: Mapped[float | None]
    learning_rate_boundaries: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    metric: Mapped[str | None] = mapped_column(Text)
    evaluation_interval_worker_steps: Mapped[int | None] = mapped_column(BigInteger)
    workers: Mapped[int]
    first_protocol: Mapped[str] = mapped_column(String(64))
    second_protocol: Mapped[str] = mapped_column(String(64))
    simulated_cluster: Mapped[str | None] = mapped_column(String(64))
    metric_name: Mapped[str] = mapped_column(String(255))
    metric_goal: Mapped[str] = mapped_column(String(8))
    metric_unit: Mapped[str | None] = mapped_column(String(64))
    metric_lowest: Mapped[float | None]
    metric_highest: Mapped[float | None]
    registered_at: Mapped[datetime]
    next_seed: Mapped[int] = mapped_column(BigInteger, server_default="0")


class SearchRow(Base):
    """One search, which is one Optuna study; `dropped` says why another pair of protocols won."""

    __tablename__ = "syncswitch_searches"
    __table_args__ = (
        UniqueConstraint("study", "fingerprint"),
        CheckConstraint("settings > 0", name="settings"),
        CheckConstraint("runs > 0", name="runs"),
        CheckConstraint("threshold >= 0", name="threshold"),
        finite("target_accuracy"),
    )

    study: Mapped[str] = mapped_column(String(512), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(ForeignKey(WorkloadRow.fingerprint), index=True)
    strategy: Mapped[str] = mapped_column(String(64))
    settings: Mapped[int]
    runs: Mapped[int]
    threshold: Mapped[float]
    target_accuracy: Mapped[float | None]
    trainer: Mapped[str] = mapped_column(String(64))
    base_seed: Mapped[int] = mapped_column(BigInteger)
    registered_at: Mapped[datetime]
    options: Mapped[dict[str, Any]] = mapped_column(JSON)
    pairs: Mapped[list[str]] = mapped_column(JSON)
    dropped: Mapped[str | None] = mapped_column(Text)

    workload: Mapped[WorkloadRow] = relationship()


class TrialRow(Base):
    """One training run: what was asked for, who runs it, what it measured.

    A trial belongs to a search, or was imported and then names its `source`, or it used a policy:
    then it has a `use_id`, and counts for no switch point. The measured columns are null until the
    run is complete, and in an imported run of which only its divergence is known; imported runs ran
    under the conditions that are the default. A failed run has times only where nobody needed it.
    """

    __tablename__ = "syncswitch_trials"
    __table_args__ = (
        UniqueConstraint("study", "trial_number"),
        UniqueConstraint("source"),
        ForeignKeyConstraint(
            ["study", "fingerprint"],
            [SearchRow.study, SearchRow.fingerprint],
            name="fk_syncswitch_trials_study",
        ),
        ForeignKeyConstraint(
            ["fingerprint", "policy_version"],
            ["syncswitch_policies.fingerprint", "syncswitch_policies.version"],
            name="fk_syncswitch_trials_policy",
        ),
        Index(None, "fingerprint", "candidate_percent", "state"),
        Index(None, "parent_trial_id"),
        Index("ix_syncswitch_trials_uses", "fingerprint", "policy_version", **_OF_USES),
        Index("uq_syncswitch_trials_use_id", "use_id", unique=True, **_OF_USES),
        CheckConstraint("state IN ('running', 'complete', 'failed')", name="state"),
        CheckConstraint("(study IS NULL) = (trial_number IS NULL)", name="numbered_in_search"),
        CheckConstraint(
            "(study IS NOT NULL AND source IS NULL AND use_id IS NULL)"
            " OR (study IS NULL AND (source IS NULL) <> (use_id IS NULL))",
            name="searched_imported_or_used",
        ),
        CheckConstraint("(use_id IS NULL) = (policy_version IS NULL)", name="used_a_policy"),
        CheckConstraint("guard IN ('off', 'quiet', 'alarmed')", name="guard"),
        CheckConstraint("held_percent BETWEEN 0 AND 100", name="held_percent"),
        CheckConstraint("trial_number >= 0", name="trial_number"),
        CheckConstraint("switch_percent BETWEEN 0 AND 100", name="switch_percent"),
        CheckConstraint("candidate_percent BETWEEN 0 AND 100", name="candidate_percent"),
        CheckConstraint("replicate >= 0", name="replicate"),
        CheckConstraint("fork_percent BETWEEN 0 AND 100", name="fork_percent"),
        CheckConstraint("(parent_trial_id IS NULL) = (fork_percent IS NULL)", name="fork"),
        CheckConstraint("parent_trial_id <> trial_id", name="no_fork_of_itself"),
        CheckConstraint("worker_steps >= 0", name="worker_steps"),
        *map(finite, ("converged_accuracy", "final_accuracy", "plateau_accuracy")),
        CheckConstraint("training_seconds >= 0", name="training_seconds"),
        CheckConstraint("inherited_seconds >= 0", name="inherited_seconds"),
        CheckConstraint("switch_overhead_seconds >= 0", name="switch_overhead_seconds"),
        CheckConstraint("time_to_accuracy_seconds >= 0", name="time_to_accuracy_seconds"),
        CheckConstraint(
            "time_to_accuracy_seconds IS NULL OR target_accuracy IS NOT NULL",
            name="time_to_a_target",
        ),
        CheckConstraint(
            "state <> 'running' OR (started_at IS NOT NULL AND heartbeat_at IS NOT NULL"
            " AND host IS NOT NULL AND process_id IS NOT NULL"
            " AND process_started_at IS NOT NULL)",
            name="running_has_owner",
        ),
        CheckConstraint("state <> 'failed' OR failure IS NOT NULL", name="failed_has_reason"),
        CheckConstraint(
            "state <> 'complete' OR (converged_accuracy IS NOT NULL AND final_accuracy IS NOT NULL"
            " AND converged IS NOT NULL AND diverged IS NOT NULL AND stopped_early IS NOT NULL"
            " AND training_seconds IS NOT NULL AND inherited_seconds IS NOT NULL"
            " AND switch_overhead_seconds IS NOT NULL AND ended_at IS NOT NULL)"
            " OR (source IS NOT NULL AND diverged IS NOT NULL AND diverged)",
            name="complete_is_measured",
        ),
    )

    trial_id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(ForeignKey(WorkloadRow.fingerprint))
    study: Mapped[str | None] = mapped_column(String(512))
    trial_number: Mapped[int | None]
    source: Mapped[str | None] = mapped_column(String(1024))
    use_id: Mapped[str | None] = mapped_column(String(64))
    policy_version: Mapped[int | None]
    candidate_percent: Mapped[float | None]
    switch_percent: Mapped[float]
    replicate: Mapped[int]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    fork_from: Mapped[str | None] = mapped_column(Text)
    parent_trial_id: Mapped[int | None] = mapped_column(ForeignKey("syncswitch_trials.trial_id"))
    fork_percent: Mapped[float | None]
    state: Mapped[TrialState]
    worker_steps: Mapped[int] = mapped_column(BigInteger)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    host: Mapped[str | None] = mapped_column(String(255))
    process_id: Mapped[int | None]
    process_started_at: Mapped[float | None]
    failure: Mapped[str | None] = mapped_column(Text)
    converged_accuracy: Mapped[float | None]
    final_accuracy: Mapped[float | None]
    converged: Mapped[bool | None]
    diverged: Mapped[bool | None]
    stopped_early: Mapped[bool | None]
    training_seconds: Mapped[float | None]
    inherited_seconds: Mapped[float | None]
    switch_overhead_seconds: Mapped[float | None]
    target_accuracy: Mapped[float | None]
    time_to_accuracy_seconds: Mapped[float | None]
    software: Mapped[dict[str, str] | None] = mapped_column(JSON(none_as_null=True))
    online: Mapped[str] = mapped_column(String(16), server_default="none")
    switch_mechanism: Mapped[str] = mapped_column(String(16), server_default="hot")
    injections: Mapped[str | None] = mapped_column(Text)
    speculative: Mapped[bool] = mapped_column(server_default=false())
    converged_evaluations: Mapped[int | None]
    plateau_accuracy: Mapped[float | None]
    guard: Mapped[str | None] = mapped_column(String(16))
    held_percent: Mapped[float | None]

    workload: Mapped[WorkloadRow] = relationship()


class PhaseRow(Base):
    """The part of a trial that used one protocol. Staleness is null where nobody measured it."""

    __tablename__ = "syncswitch_phases"
    __table_args__ = (
        CheckConstraint("start_worker_step >= 0", name="start_worker_step"),
        CheckConstraint("end_worker_step >= start_worker_step", name="end_worker_step"),
        CheckConstraint("seconds >= 0", name="seconds"),
        CheckConstraint("mean_staleness >= 0", name="mean_staleness"),
        CheckConstraint("max_staleness >= 0", name="max_staleness"),
    )

    trial_id: Mapped[int] = mapped_column(ForeignKey(TrialRow.trial_id), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    protocol: Mapped[str] = mapped_column(String(64))
    start_worker_step: Mapped[int] = mapped_column(BigInteger)
    end_worker_step: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float]
    worker_steps_per_second: Mapped[float | None] = mapped_column(
        # An empty phase has no throughput; so short a time would overflow PostgreSQL's floats.
        Computed(
            "CASE WHEN seconds > 1e-9 THEN (end_worker_step - start_worker_step) / seconds END",
            persisted=True,
        )
    )
    mean_staleness: Mapped[float | None]
    max_staleness: Mapped[int | None]


class FailedSwitchRow(Base):
    """A switch that a guarded trial went back to; see `FailedSwitch`."""

    __tablename__ = "syncswitch_failed_switches"
    __table_args__ = (
        CheckConstraint("position >= 0", name="position"),
        CheckConstraint("switch_percent BETWEEN 0 AND 100", name="switch_percent"),
        CheckConstraint("worker_step >= 0", name="worker_step"),
        CheckConstraint("elapsed_seconds >= 0", name="elapsed_seconds"),
        CheckConstraint("lost_seconds >= 0", name="lost_seconds"),
        finite("accuracy"),
    )

    trial_id: Mapped[int] = mapped_column(ForeignKey(TrialRow.trial_id), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    switch_percent: Mapped[float]
    alarm: Mapped[str] = mapped_column(Text)
    worker_step: Mapped[int] = mapped_column(BigInteger)
    elapsed_seconds: Mapped[float]
    lost_seconds: Mapped[float]
    accuracy: Mapped[float | None]


class EvaluationRow(Base):
    """One test of a trial's model. `training_loss` is null where it was no number."""

    __tablename__ = "syncswitch_evaluations"
    __table_args__ = (
        CheckConstraint("worker_step >= 0", name="worker_step"),
        CheckConstraint("elapsed_seconds >= 0", name="elapsed_seconds"),
        finite("accuracy"),
        # A curve lies in one piece, and the key is not stored twice.
        {"sqlite_with_rowid": False},
    )

    trial_id: Mapped[int] = mapped_column(ForeignKey(TrialRow.trial_id), primary_key=True)
    worker_step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    elapsed_seconds: Mapped[float]
    accuracy: Mapped[float]
    training_loss: Mapped[float | None]
    further: Mapped[dict[str, float] | None] = mapped_column(JSON(none_as_null=True))


class EventRow(Base):
    """Something that happened to a complete trial; see `RunEvent`."""

    __tablename__ = "syncswitch_events"
    __table_args__ = (
        CheckConstraint("position >= 0", name="position"),
        CheckConstraint("worker_step >= 0", name="worker_step"),
        CheckConstraint("elapsed_seconds >= 0", name="elapsed_seconds"),
        CheckConstraint("worker >= 0", name="worker"),
        CheckConstraint("seconds >= 0", name="seconds"),
    )

    trial_id: Mapped[int] = mapped_column(ForeignKey(TrialRow.trial_id), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    worker_step: Mapped[int] = mapped_column(BigInteger)
    elapsed_seconds: Mapped[float]
    reason: Mapped[str] = mapped_column(Text)
    worker: Mapped[int | None]
    seconds: Mapped[float | None]
