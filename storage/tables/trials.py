"""The tables of trials; the prefix of their names tells them from Optuna's."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import Job, Protocols, SearchInfo
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, RunEvent
from syncswitch.storage.tables.base import (
    FINITE,
    METADATA,
    StateText,
    UtcDateTime,
    limited,
    required,
    stored,
)

WORKLOADS = Table(
    "syncswitch_workloads",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    *stored(Job, name=required("name", String(255), index=True)),
    required("reference", String(1024), index=True),
    required("metric_name", String(255)),
    required("registered_at", UtcDateTime),
    required("next_seed", BigInteger, server_default="0"),
    *limited("> 0", "total_worker_steps", "batch_size", "workers"),
    info={
        "meaning": ""
        "A workload on a cluster of one size, whatever the protocols. What is unknown "
        "about an imported job is null. `simulated_cluster` is null for a real cluster. "
        "`next_seed` is the least seed that was not handed out to a run with a policy."
    },
)

SEARCHES = Table(
    "syncswitch_searches",
    METADATA,
    *stored(
        SearchInfo,
        study=Column("study", String(512), primary_key=True),
        fingerprint=required("fingerprint", ForeignKey(WORKLOADS.c.fingerprint), index=True),
    ),
    required("registered_at", UtcDateTime),
    UniqueConstraint("study", "fingerprint"),
    *limited("> 0", "halvings", "runs"),
    *limited(">= 0", "threshold"),
    *limited(FINITE, "target_accuracy"),
    info={
        "meaning": ""
        "One search, which is one Optuna study; `dropped` says of each other pair of protocols "
        "why it lost."
    },
)

TRIALS = Table(
    "syncswitch_trials",
    METADATA,
    Column("trial_id", Integer, primary_key=True),
    required("fingerprint", ForeignKey(WORKLOADS.c.fingerprint)),
    *stored(Protocols),
    Column("study", String(512)),
    Column("trial_number", Integer),
    Column("source", String(1024)),
    Column("use_id", String(64)),
    Column("policy_version", Integer),
    Column("candidate_percent", Double),
    required("switch_percent", Double),
    required("replicate", Integer),
    Column("seed", BigInteger),
    Column("fork_from", Text),
    Column("parent_trial_id", Integer, ForeignKey("syncswitch_trials.trial_id")),
    Column("fork_percent", Double),
    required("state", StateText),
    required("worker_steps", BigInteger),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("heartbeat_at", UtcDateTime),
    Column("host", String(255)),
    Column("process_id", Integer),
    Column("process_started_at", Double),
    Column("failure", Text),
    Column("converged_accuracy", Double),
    Column("final_accuracy", Double),
    Column("converged", Boolean),
    Column("diverged", Boolean),
    Column("stopped_early", Boolean),
    Column("training_seconds", Double),
    Column("inherited_seconds", Double),
    Column("switch_overhead_seconds", Double),
    Column("target_accuracy", Double),
    Column("time_to_accuracy_seconds", Double),
    Column("software", JSON(none_as_null=True)),
    required("online", String(16), server_default="none"),
    required("switch_mechanism", String(16), server_default="hot"),
    Column("injections", Text),
    required("speculative", Boolean, server_default=false()),
    Column("converged_evaluations", Integer),
    Column("plateau_accuracy", Double),
    Column("guard", String(16)),
    Column("held_percent", Double),
    Column("step_seconds", JSON(none_as_null=True)),
    UniqueConstraint("study", "trial_number"),
    UniqueConstraint("source"),
    ForeignKeyConstraint(
        ["study", "fingerprint"],
        [SEARCHES.c.study, SEARCHES.c.fingerprint],
        name="fk_syncswitch_trials_study",
    ),
    ForeignKeyConstraint(
        ["fingerprint", "policy_version"],
        ["syncswitch_policies.fingerprint", "syncswitch_policies.version"],
        name="fk_syncswitch_trials_policy",
    ),
    Index(None, "fingerprint", "candidate_percent", "state"),
    Index(None, "parent_trial_id"),
    CheckConstraint("state IN ('running', 'complete', 'failed')", name="state"),
    CheckConstraint("(study IS NULL) = (trial_number IS NULL)", name="numbered_in_search"),
    CheckConstraint(
        "(study IS NOT NULL AND source IS NULL AND use_id IS NULL)"
        " OR (study IS NULL AND (source IS NULL) <> (use_id IS NULL))",
        name="searched_imported_or_used",
    ),
    CheckConstraint("(use_id IS NULL) = (policy_version IS NULL)", name="used_a_policy"),
    CheckConstraint("guard IN ('off', 'quiet', 'alarmed')", name="guard"),
    *limited("BETWEEN 0 AND 100", "held_percent", "switch_percent", "candidate_percent"),
    *limited("BETWEEN 0 AND 100", "fork_percent"),
    *limited(">= 0", "trial_number", "replicate", "worker_steps", "training_seconds"),
    *limited(">= 0", "inherited_seconds", "switch_overhead_seconds", "time_to_accuracy_seconds"),
    *limited(FINITE, "converged_accuracy", "final_accuracy", "plateau_accuracy"),
    CheckConstraint("(parent_trial_id IS NULL) = (fork_percent IS NULL)", name="fork"),
    CheckConstraint("parent_trial_id <> trial_id", name="no_fork_of_itself"),
    CheckConstraint(
        "time_to_accuracy_seconds IS NULL OR target_accuracy IS NOT NULL", name="time_to_a_target"
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
    info={
        "meaning": ""
        "One training run: its specification, its process and its measurements. A trial belongs "
        "to a search, or was imported and names its `source`, or used a policy: then it has a "
        "`use_id`, and counts for no switch point. The measured columns are null until the run "
        "is complete, and for an imported run of which only the divergence is known; imported "
        "runs ran under the default conditions. A failed run has times only if it was cancelled. "
        "`step_seconds` are those of a worker-step by protocol, of what a run timed."
    },
)

PHASES = Table(
    "syncswitch_phases",
    METADATA,
    Column("trial_id", Integer, ForeignKey(TRIALS.c.trial_id), primary_key=True),
    Column("position", Integer, primary_key=True),
    *stored(PhaseRecord),
    Column(
        "worker_steps_per_second",
        Double,
        # An empty phase has no throughput; shorter times would overflow PostgreSQL's floats.
        Computed(
            "CASE WHEN seconds > 1e-9 THEN (end_worker_step - start_worker_step) / seconds END",
            persisted=True,
        ),
    ),
    *limited(">= 0", "start_worker_step", "seconds", "mean_staleness", "max_staleness"),
    CheckConstraint("end_worker_step >= start_worker_step", name="end_worker_step"),
    info={
        "meaning": ""
        "The part of a trial that used one protocol. Staleness is null if it was not measured."
    },
)

FAILED_SWITCHES = Table(
    "syncswitch_failed_switches",
    METADATA,
    Column("trial_id", Integer, ForeignKey(TRIALS.c.trial_id), primary_key=True),
    Column("position", Integer, primary_key=True),
    *stored(FailedSwitch),
    *limited(">= 0", "position", "worker_step", "elapsed_seconds", "lost_seconds"),
    *limited("BETWEEN 0 AND 100", "switch_percent"),
    *limited(FINITE, "accuracy"),
    info={"meaning": "A switch that a guarded trial went back to, see `FailedSwitch`."},
)

EVALUATIONS = Table(
    "syncswitch_evaluations",
    METADATA,
    Column("trial_id", Integer, ForeignKey(TRIALS.c.trial_id), primary_key=True),
    *stored(
        Evaluation,
        worker_step=Column("worker_step", BigInteger, primary_key=True),
        training_loss=Column("training_loss", Double),
        further=Column("further", JSON(none_as_null=True)),
    ),
    *limited(">= 0", "worker_step", "elapsed_seconds"),
    *limited(FINITE, "accuracy"),
    # Keeps a curve in one piece, and stores the key only once.
    sqlite_with_rowid=False,
    info={
        "meaning": ""
        "One evaluation of a trial's model. `training_loss` is null if it was not a number."
    },
)

EVENTS = Table(
    "syncswitch_events",
    METADATA,
    Column("trial_id", Integer, ForeignKey(TRIALS.c.trial_id), primary_key=True),
    Column("position", Integer, primary_key=True),
    *stored(RunEvent),
    *limited(">= 0", "position", "worker_step", "elapsed_seconds", "worker", "seconds"),
    info={"meaning": "An incident of a complete trial, or a decision about it, see `RunEvent`."},
)

CHECKPOINTS = Table(
    "syncswitch_checkpoints",
    METADATA,
    Column("trial_id", Integer, ForeignKey(TRIALS.c.trial_id), primary_key=True),
    Column("percent", Double, primary_key=True),
    required("path", Text),
    required("host", String(255)),
    *limited("BETWEEN 0 AND 100", "percent"),
    info={"meaning": "A checkpoint that a complete trial left on the disk of a host."},
)
