"""Where the numbers of a report come from: the job, its policy, searches and runs; pure."""

from __future__ import annotations

from datetime import datetime

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.table import (
    NONE,
    Table,
    accuracy_text,
    conditions_words,
    percent_text,
    seconds_text,
    table_of,
    value_text,
)
from syncswitch.searcher.text.sentences import counted, kept_words
from syncswitch.storage.records.policy import TimingPolicy


def policy_table(data: ReportData) -> Table:
    """The policy, fact by fact."""
    entry = data.policy
    if entry is None:
        return table_of("Policy", (), [])
    found = entry.policy
    rows = [
        ("version", f"{found.version} (aliases: {', '.join(entry.aliases) or NONE})"),
        ("switch at", percent_text(found.switch_percent)),
        (
            "target accuracy",
            f"{found.target_accuracy:.4f}, of which {found.threshold:g} may be lost",
        ),
        ("found by", f"{found.strategy}, {counted(len(found.evidence), 'run')}"),
        ("search", found.study),
        ("criterion", found.criterion),
        ("kept", _kept(found)),
        ("sure", NONE if found.confidence is None else f"{100 * found.confidence:.3g} %"),
        ("created", found.created_at),
        *([("imported", entry.imported_at)] if entry.imported_at else []),
    ]
    return table_of("Policy", (), rows)


def _kept(found: TimingPolicy) -> str:
    if found.kept_share is None:
        return NONE
    return kept_words(found.kept_share, found.baseline_kept_share, found.first_protocol)


def identity_table(data: ReportData) -> Table:
    """What the job is."""
    job = data.identity
    facts: list[tuple[str, object]] = [
        ("workload", job.name),
        ("loaded from", data.reference),
        ("fingerprint", job.fingerprint),
        ("cluster", job.cluster.partition(",")[0]),
        ("protocols", f"{job.first_protocol},{job.second_protocol}"),
        ("length", f"{job.total_worker_steps:,} worker-steps"),
        ("data set", job.data_set),
        ("model", job.model),
        ("loss", job.loss),
        ("optimizer", job.optimizer),
        ("batch size of a worker", job.batch_size),
        ("learning rate of a worker", job.learning_rate),
        ("decays", _decays(job.learning_rate_boundaries)),
        ("accuracy is", job.metric),
        ("tested every", _steps(job.evaluation_interval_worker_steps)),
        ("conditions", conditions_words(data.conditions)),
        ("software", ", ".join(f"{n} {v}" for n, v in sorted(data.software.items())) or None),
        ("database", data.place),
        ("read at", _moment(data.read_at)),
    ]
    rows = [(name, str(value)) for name, value in facts if value is not None]
    return table_of("Job", (), rows)


def version_table(data: ReportData) -> Table:
    """All versions of the policy, newest first."""
    columns = (
        "version",
        "aliases",
        "switch at",
        "accuracy",
        "times as fast",
        "found by",
        "created",
    )
    return table_of(
        "Versions of the policy",
        columns,
        [
            (
                str(entry.policy.version),
                ", ".join(entry.aliases) or NONE,
                percent_text(entry.policy.switch_percent),
                accuracy_text(entry.policy.mean_accuracy),
                value_text(entry.policy.speed_up, ".2f"),
                entry.policy.strategy + (" (imported)" if entry.imported_at else ""),
                entry.policy.created_at[:19],
            )
            for entry in data.versions
        ],
    )


def evidence_table(data: ReportData) -> Table:
    """The runs that the policy rests on, with whether they are in this database."""
    columns = ("trial", "switch at", "replicate", "accuracy", "seconds", "in this database")
    evidence = data.answer.evidence if data.answer else ()
    return table_of(
        "Runs that the policy rests on",
        columns,
        [
            (
                str(run.trial_number),
                percent_text(run.switch_percent),
                str(run.replicate),
                "diverged" if run.diverged else f"{run.converged_accuracy:.4f}",
                seconds_text(run.training_seconds),
                NONE if trial.trial_id is None else "yes" if trial.agrees else "other results",
            )
            for run, trial in zip(evidence, data.evidence, strict=True)
        ],
    )


def search_table(data: ReportData) -> Table:
    """All searches and evaluations of the job."""
    columns = ("search", "strategy", "trainer", "complete", "failed", "cancelled", "running")
    return table_of(
        "Searches and evaluations",
        (*columns, "trained s", "wall time s", "version"),
        [
            (
                one.study + (" (shown)" if data.search and one.study == data.search.study else ""),
                one.strategy,
                one.trainer,
                str(one.completed_runs),
                str(one.failed_runs),
                str(one.cancelled_runs),
                str(one.running_runs),
                seconds_text(one.paid_seconds),
                seconds_text(one.wall_seconds),
                NONE if one.policy_version is None else str(one.policy_version),
            )
            for one in data.searches
        ],
    )


def run_table(data: ReportData) -> Table:
    """All runs of the job."""
    columns = ("run", "switch at", "replicate", "seed", "end", "accuracy", "seconds", "paid s")
    return table_of(
        "All runs of this job",
        (*columns, "began", "on", "under", "failure", "search"),
        [
            (
                run.name,
                percent_text(run.trial.switch_percent),
                str(run.trial.replicate),
                NONE if run.trial.seed is None else str(run.trial.seed),
                run.outcome + (" (in advance)" if run.trial.speculative else ""),
                accuracy_text(run.trial.converged_accuracy if run.is_sound else None),
                seconds_text(run.trial.training_seconds),
                seconds_text(run.trial.paid_seconds),
                _moment(run.trial.started_at),
                run.trial.host or NONE,
                conditions_words(run.trial.conditions),
                run.trial.failure or NONE,
                run.trial.study or NONE,
            )
            for run in data.runs
        ],
    )


def _decays(boundaries: tuple[tuple[int, float], ...] | None) -> str | None:
    if boundaries is None:
        return None
    return "; ".join(f"{factor:g} times from {step:,} on" for step, factor in boundaries) or "none"


def _steps(worker_steps: int | None) -> str | None:
    return None if worker_steps is None else f"{worker_steps:,} worker-steps"


def _moment(moment: datetime | None) -> str:
    return NONE if moment is None else moment.isoformat(timespec="seconds")
