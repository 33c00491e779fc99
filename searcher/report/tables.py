"""What the numbers of a report rest on: the job, its policy, searches and runs; pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from syncswitch.searcher.learning.words import uses_text
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.search.policy_words import (
    expected_time_text,
    guard_text,
    kept_text,
    times_text,
)
from syncswitch.searcher.speed_up import speed_up_of
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    conditions_text,
    counted,
    percent_text,
    run_conditions_text,
    seconds_text,
    value_text,
)
from syncswitch.storage.records.trial import CONVERGENCE_EVALUATIONS

_MOST_ROWS = 1000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as people read them.

    Attributes:
        columns: Their names; none where the first cell of each row is its name.
        left_out: Rows before the first one that is shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


def tables_of(data: ReportData) -> list[Table]:
    """All that have a row, in the order of the page."""
    make = (
        policy_table,
        evidence_table,
        version_table,
        search_table,
        further_table,
        run_table,
        identity_table,
    )
    return [table for one in make if (table := one(data)).rows]


def _facts(title: str, facts: Iterable[tuple[str, object]]) -> Table:
    """A row for each fact that is known."""
    rows = tuple((name, str(value)) for name, value in facts if value is not None)
    return Table(title, (), rows)


def _table(title: str, items: Sequence[_T], columns: Mapping[str, Callable[[_T], str]]) -> Table:
    """A row for each item, at most the last 1,000; `columns` says how its cells read."""
    shown = items[-_MOST_ROWS:]
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in shown)
    return Table(title, tuple(columns), rows, len(items) - len(rows))


def policy_table(data: ReportData) -> Table:
    """The policy, fact by fact."""
    entry = data.policy
    if entry is None:
        return _facts("Policy", [])
    found, metric = entry.policy, entry.policy.decided_by
    return _facts(
        "Policy",
        [
            ("version", f"{found.version} (aliases: {', '.join(entry.aliases) or NONE})"),
            ("switch at", percent_text(found.switch_percent)),
            (f"target {metric.name}", metric.text(found.target_accuracy)),
            ("threshold", metric.with_unit(f"{found.threshold:g}")),
            ("found by", f"{found.strategy}, {counted(len(found.evidence), 'run')}"),
            ("search", found.study),
            ("found for", guard_text(found)),
            ("kept", kept_text(found) or NONE),
            ("expected", expected_time_text(found)),
            ("sure", NONE if found.confidence is None else f"{100 * found.confidence:.3g} %"),
            ("created", found.created_at),
            ("imported", entry.imported_at),
        ],
    )


def identity_table(data: ReportData) -> Table:
    """What the job is."""
    job = data.identity
    return _facts(
        "Job",
        [
            ("workload", job.name),
            ("loaded from", data.reference),
            ("fingerprint", job.fingerprint),
            ("cluster", job.cluster.partition(",")[0]),
            ("protocols", job.pair),
            ("length", f"{job.total_worker_steps:,} worker-steps"),
            ("data set", job.data_set),
            ("model", job.model),
            ("loss", job.loss),
            ("optimizer", job.optimizer),
            ("batch size of a worker", job.batch_size),
            ("learning rate of a worker", job.learning_rate),
            ("decays", _decays(job.learning_rate_boundaries)),
            ("compared by", job.decided_by.axis_title),
            ("that is", None if job.metric == job.decided_by.name else job.metric),
            ("evaluated every", _steps(job.evaluation_interval_worker_steps)),
            ("conditions", run_conditions_text(data.conditions) or NONE),
            ("software", ", ".join(f"{n} {v}" for n, v in sorted(data.software.items())) or None),
            ("database", data.place),
            ("read at", _moment(data.read_at)),
        ],
    )


def version_table(data: ReportData) -> Table:
    """All versions of the policy, newest first."""
    metric = data.identity.decided_by
    return _table(
        "Versions of the policy",
        data.versions,
        {
            "version": lambda entry: str(entry.policy.version),
            "aliases": lambda entry: ", ".join(entry.aliases) or NONE,
            "switch at": lambda entry: percent_text(entry.policy.switch_percent),
            metric.name: lambda entry: accuracy_text(entry.policy.mean_accuracy, metric),
            "times as fast (90 %)": lambda entry: times_text(speed_up_of(entry.policy)),
            "used": lambda entry: uses_text(data.use_summaries[entry.policy.version]),
            "found by": lambda entry: (
                entry.policy.strategy + (" (imported)" if entry.imported_at else "")
            ),
            "created": lambda entry: entry.policy.created_at[:19],
        },
    )


def evidence_table(data: ReportData) -> Table:
    """The runs that the policy rests on, with whether they are in this database."""
    metric = data.identity.decided_by
    runs = data.answer.evidence if data.answer else ()
    return _table(
        "Runs that the policy rests on",
        list(zip(runs, data.evidence, strict=True)),
        {
            "trial": lambda row: str(row[0].trial_number),
            "switch at": lambda row: percent_text(row[0].switch_percent),
            "replicate": lambda row: str(row[0].replicate),
            metric.name: lambda row: (
                "diverged" if row[0].diverged else metric.text(row[0].converged_accuracy)
            ),
            "seconds": lambda row: seconds_text(row[0].training_seconds),
            "in this database": lambda row: (
                NONE if row[1].trial_id is None else "yes" if row[1].agrees else "other results"
            ),
        },
    )


def use_table(data: ReportData) -> Table:
    """The later runs with the policy, of all its versions."""
    metric = data.identity.decided_by
    return _table(
        "Later runs with the policy",
        data.uses,
        {
            "ended": lambda use: _moment(use.ended_at),
            "version": lambda use: str(use.policy_version),
            "switch at": lambda use: percent_text(use.switch_percent),
            "seed": lambda use: str(use.seed),
            metric.name: lambda use: "diverged" if use.diverged else metric.text(use.accuracy),
            "kept": lambda use: "yes" if use.kept else "no",
            "seconds": lambda use: seconds_text(use.training_seconds),
            "times as fast": lambda use: value_text(use.speed_up, ".2f"),
            "guard": lambda use: use.guard_alarm or use.guard,
            "in vain s": lambda use: seconds_text(use.guard_lost_seconds),
            "held": lambda use: percent_text(use.held_percent),
            "under": lambda use: (
                conditions_text(use.online, use.switch_mechanism, use.injections) or NONE
            ),
        },
    )


def search_table(data: ReportData) -> Table:
    """All searches and evaluations of the job."""
    shown = data.search and data.search.study
    return _table(
        "Searches and evaluations",
        data.searches,
        {
            "search": lambda one: one.study + (" (shown)" if one.study == shown else ""),
            "strategy": lambda one: one.strategy,
            "trainer": lambda one: one.trainer,
            "complete": lambda one: str(one.completed_runs),
            "failed": lambda one: str(one.failed_runs),
            "cancelled": lambda one: str(one.cancelled_runs),
            "running": lambda one: str(one.running_runs),
            "training s": lambda one: seconds_text(one.paid_seconds),
            "wall time s": lambda one: seconds_text(one.wall_seconds),
            "version": lambda one: value_text(one.policy_version, "d"),
        },
    )


def run_table(data: ReportData) -> Table:
    """All runs of the job."""
    metric = data.identity.decided_by
    return _table(
        "All runs of this job",
        data.runs,
        {
            "run": lambda run: run.name,
            "switch at": lambda run: percent_text(run.trial.switch_percent),
            "replicate": lambda run: str(run.trial.replicate),
            "seed": lambda run: value_text(run.trial.seed, "d"),
            "end": lambda run: run.outcome + (" (speculative)" if run.trial.speculative else ""),
            metric.name: lambda run: accuracy_text(
                run.trial.converged_accuracy if run.is_sound else None, metric
            ),
            "seconds": lambda run: seconds_text(run.trial.training_seconds),
            "paid s": lambda run: seconds_text(run.trial.paid_seconds),
            "began": lambda run: _moment(run.trial.started_at),
            "on": lambda run: run.trial.host or NONE,
            "under": lambda run: run_conditions_text(run.trial.conditions) or NONE,
            "failure": lambda run: run.trial.failure or NONE,
            "search": lambda run: run.trial.study or NONE,
        },
    )


def further_table(data: ReportData) -> Table:
    """Each further metric at each switch point: the mean of its sound runs' last five tests."""
    found: dict[float, list[dict[str, float]]] = {}
    for run in data.compared:
        tests = run.whole.evaluations[-CONVERGENCE_EVALUATIONS:] if run.whole is not None else ()
        known = [dict(one.further) for one in tests]
        if run.is_sound and any(known):
            means = {name: _mean(known, name) for one in known for name in one}
            found.setdefault(run.trial.candidate_percent or 0.0, []).append(means)
    names = dict.fromkeys(name for runs in found.values() for run in runs for name in run)
    return _table(
        "Further metrics, which decide nothing",
        sorted(found, reverse=True),
        {
            "switch at": percent_text,
            "runs": lambda percent: str(len(found[percent])),
            **{name: _cell_of(name, found) for name in names},
        },
    )


def _cell_of(name: str, found: Mapping[float, list[dict[str, float]]]) -> Callable[[float], str]:
    def cell(percent: float) -> str:
        runs = [run for run in found[percent] if name in run]
        return value_text(_mean(runs, name) if runs else None, ".4g")

    return cell


def _mean(known: Iterable[Mapping[str, float]], name: str) -> float:
    return statistics.fmean(one[name] for one in known if name in one)


def _decays(boundaries: tuple[tuple[int, float], ...] | None) -> str | None:
    if boundaries is None:
        return None
    return "; ".join(f"{factor:g} times from {step:,} on" for step, factor in boundaries) or "none"


def _steps(worker_steps: int | None) -> str | None:
    return None if worker_steps is None else f"{worker_steps:,} worker-steps"


def _moment(moment: datetime | None) -> str:
    return NONE if moment is None else moment.isoformat(timespec="seconds")
