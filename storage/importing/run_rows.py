"""Recorded runs as rows of the database: each goes in once."""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select
from sqlalchemy.orm import Session

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.imported_run import ImportedRun
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.trials import EvaluationRow, PhaseRow, TrialRow
from syncswitch.storage.trials.evaluations import add_evaluations, record_target
from syncswitch.storage.trials.workloads import lock_workload, upsert_workload

# Where a run that is there already has other values, it is another run.
_COMPARED = (
    "fingerprint",
    "candidate_percent",
    "switch_percent",
    "replicate",
    "diverged",
    "worker_steps",
    "final_accuracy",
    "training_seconds",
)
# Each database sums in its own order; a million roundings stay far below this.
_SUM_TOLERANCE = 1e-9


class Added(enum.Enum):
    """What became of a run."""

    NOW = "imported"
    BEFORE = "already there"


class RunImporter:
    """Adds recorded runs to a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, runs: Sequence[ImportedRun]) -> list[Added | RecordingError]:
        """Adds runs with everything that was measured, in one transaction.

        A run whose source is there stays as it is. Compared with it are the workload, what the
        manifest says of the run, its worker-steps, final accuracy and training time, and of its
        evaluations the number and the sums of the accuracies and of the elapsed seconds (to 1e-9);
        not the training losses.

        Gives for each run what became of it: an error where its source is there with other values.
        """
        by_source = {run.source: run for run in runs}

        def operation(session: Session) -> dict[str, RecordingError | None]:
            present = _present(session, by_source)
            _insert(session, [run for run in runs if run.source not in present])
            return {
                source: _difference(by_source[source], values) for source, values in present.items()
            }

        present = self._database.write(operation)
        return [
            Added.NOW if run.source not in present else present[run.source] or Added.BEFORE
            for run in runs
        ]

    def set_target(self, fingerprint: str) -> None:
        """Makes the mean accuracy of the first protocol alone the target of a workload's runs.

        Does nothing where no such run was imported, or the target stands already.
        """

        def operation(session: Session) -> None:
            # So that of two importers the later one sees the runs of both.
            lock_workload(session, fingerprint)
            target = _mean_baseline_accuracy(session, fingerprint)
            if target is not None:
                record_target(session, _is_imported(fingerprint), target)

        self._database.write(operation)


def _is_imported(fingerprint: str) -> ColumnElement[bool]:
    return (TrialRow.fingerprint == fingerprint) & TrialRow.source.is_not(None)


def _mean_baseline_accuracy(session: Session, fingerprint: str) -> float | None:
    """Of the runs with the first protocol alone; None where there is none."""
    query = select(TrialRow.converged_accuracy).where(
        _is_imported(fingerprint),
        TrialRow.candidate_percent == 100.0,
        TrialRow.diverged.is_(False),
        TrialRow.converged_accuracy.is_not(None),
    )
    accuracies = [value for value in session.scalars(query) if value is not None]
    # Sorted, so that databases that list them in another order sum to the same bits.
    return math.fsum(sorted(accuracies)) / len(accuracies) if accuracies else None


def _present(session: Session, sources: Collection[str]) -> dict[str, dict[str, Any]]:
    """The compared values of the runs that are there, by source."""
    columns = [getattr(TrialRow, name) for name in _COMPARED]
    query = (
        select(
            TrialRow.source,
            *columns,
            func.count(EvaluationRow.trial_id).label("evaluations"),
            func.coalesce(func.sum(EvaluationRow.accuracy), 0.0).label("sum_of_accuracies"),
            func.coalesce(func.sum(EvaluationRow.elapsed_seconds), 0.0).label(
                "sum_of_elapsed_seconds"
            ),
        )
        .outerjoin(EvaluationRow, EvaluationRow.trial_id == TrialRow.trial_id)
        .where(TrialRow.source.in_(sources))
        .group_by(TrialRow.trial_id)
    )
    found = {}
    for row in session.execute(query).mappings():
        values = dict(row)
        found[values.pop("source")] = values
    return found


def _difference(run: ImportedRun, values: dict[str, Any]) -> RecordingError | None:
    """What distinguishes a run from the one that is there; None where nothing does."""
    evaluations = run.measured.evaluations if run.measured else ()
    expected = {
        **_trial_values(run),
        "evaluations": len(evaluations),
        "sum_of_accuracies": math.fsum(one.accuracy for one in evaluations),
        "sum_of_elapsed_seconds": math.fsum(one.elapsed_seconds for one in evaluations),
    }
    for name, there in values.items():
        is_sum = name.startswith("sum_of_")
        is_same = is_sum and math.isclose(there, expected[name], rel_tol=_SUM_TOLERANCE)
        if not is_same and there != expected[name]:
            here = expected[name]
            shown = "" if name == "fingerprint" else f": {name} is {here}, was {there}"
            what = "its workload differs" if name == "fingerprint" else "it differs"
            return RecordingError(
                f"{what} from what was imported as {run.source}{shown}; a changed run needs another"
                f" setup or run_dir"
            )
    return None


def _insert(session: Session, runs: Sequence[ImportedRun]) -> None:
    if not runs:
        return
    for identity in {run.identity.fingerprint: run.identity for run in runs}.values():
        upsert_workload(session, identity, reference=identity.name)
    statement = insert(TrialRow).returning(TrialRow.source, TrialRow.trial_id)
    rows = session.execute(statement, [_trial_values(run) for run in runs])
    trial_ids = {row.source: row.trial_id for row in rows}
    phases: list[dict[str, Any]] = []
    for run in runs:
        if run.measured is None:
            continue
        trial_id = trial_ids[run.source]
        phases.extend(
            {"trial_id": trial_id, "position": position, **asdict(phase)}
            for position, phase in enumerate(run.measured.phases)
        )
    if phases:
        session.execute(insert(PhaseRow), phases)
    add_evaluations(
        session,
        ((trial_ids[run.source], run.measured.evaluations) for run in runs if run.measured),
    )


def _trial_values(run: ImportedRun) -> dict[str, Any]:
    measured = run.measured
    values: dict[str, Any] = {
        "source": run.source,
        "fingerprint": run.identity.fingerprint,
        "candidate_percent": run.candidate_percent,
        "switch_percent": run.switch_percent,
        "replicate": run.replicate,
        "state": TrialState.COMPLETE,
        "diverged": run.diverged,
        "worker_steps": measured.worker_steps if measured else 0,
    }
    for name in (
        "final_accuracy",
        "converged",
        "stopped_early",
        "training_seconds",
        "switch_overhead_seconds",
        "started_at",
        "ended_at",
    ):
        values[name] = getattr(measured, name) if measured else None
    values["converged_accuracy"] = values["final_accuracy"]
    values["converged_evaluations"] = 1 if measured else None
    values["inherited_seconds"] = 0.0 if measured else None
    return values
