"""Puts recorded runs into the database: once each, whole runs only, many per transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.imported_run import ImportedRun, read_imported_run
from syncswitch.storage.importing.manifest import Manifest, ManifestRow, Remark
from syncswitch.storage.importing.run_rows import Added, RunImporter
from syncswitch.storage.records.job import WorkloadIdentity

# Per transaction: enough that committing costs little, so few that others can write in between.
_BATCH_RUNS = 200
_BATCH_EVALUATIONS = 20_000


@dataclass(slots=True)
class ImportReport:
    """What became of a manifest.

    Attributes:
        present_runs: Added by an earlier import.
        imported_evaluations: Of those added now.
        workloads: Those of the runs that are in the database.
        faults: Rows that could not be used, by line.
    """

    imported_runs: int = 0
    present_runs: int = 0
    imported_evaluations: int = 0
    workloads: list[WorkloadIdentity] = field(default_factory=list)
    faults: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)


def import_manifest(
    database: Database,
    manifest: Manifest,
    logs: Path,
    on_run: Callable[[], None] = lambda: None,
) -> ImportReport:
    """Imports the runs of a manifest; repeating it, or going on after a kill, does no harm.

    `on_run` is called for each row once its logs are read.
    """
    importer = RunImporter(database)
    report = ImportReport(faults=list(manifest.faults), notes=list(manifest.notes))
    workloads: dict[str, WorkloadIdentity] = {}
    for batch in _batches(_readable(manifest.rows, logs, report.faults, on_run)):
        added = importer.add([run for _, run in batch])
        for (row, run), outcome in zip(batch, added, strict=True):
            if isinstance(outcome, RecordingError):
                report.faults.append(_remark(row, str(outcome)))
                continue
            workloads.setdefault(run.identity.fingerprint, run.identity)
            report.notes.extend(_remark(row, note) for note in run.notes)
            if outcome is Added.NOW:
                report.imported_runs += 1
                report.imported_evaluations += _evaluation_count(run)
            else:
                report.present_runs += 1
    for fingerprint in workloads:
        importer.set_target(fingerprint)
    report.workloads = list(workloads.values())
    report.faults.sort(key=lambda remark: remark.line)
    report.notes.sort(key=lambda remark: remark.line)
    return report


def _readable(
    rows: Sequence[ManifestRow], logs: Path, faults: list[Remark], on_run: Callable[[], None]
) -> Iterator[tuple[ManifestRow, ImportedRun]]:
    lines: dict[str, int] = {}  # by folder; the text is smaller than a Path
    for row in rows:
        try:
            folder = row.folder(logs)
            place = None if folder is None else os.fspath(folder)
            if place in lines:
                raise RecordingError(f"its folder is that of the run in line {lines[place]}")
            run = read_imported_run(row, logs)
        except RecordingError as error:
            faults.append(_remark(row, str(error)))
        else:
            if place is not None:
                lines[place] = row.line
            yield row, run
        on_run()


def _batches(
    runs: Iterator[tuple[ManifestRow, ImportedRun]],
) -> Iterator[list[tuple[ManifestRow, ImportedRun]]]:
    batch: list[tuple[ManifestRow, ImportedRun]] = []
    evaluations = 0
    for row, run in runs:
        batch.append((row, run))
        evaluations += _evaluation_count(run)
        if len(batch) >= _BATCH_RUNS or evaluations >= _BATCH_EVALUATIONS:
            yield batch
            batch, evaluations = [], 0
    if batch:
        yield batch


def _evaluation_count(run: ImportedRun) -> int:
    return len(run.measured.evaluations) if run.measured else 0


def _remark(row: ManifestRow, text: str) -> Remark:
    return Remark(row.line, row.run_dir or row.setup, text)
