"""`syncswitch-search import`: puts recorded runs into the database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing.manifest import read_manifest
from syncswitch.storage.importing.run_import import ImportReport, import_manifest
from syncswitch.trainers.cli.console import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    echo,
    print_error,
    print_json,
    progress_bars,
    rich_console,
)
from syncswitch.trainers.cli.options import common_options


@click.command("import")
@click.argument("manifest", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--logs",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder below which the runs' folders are.  [default: the folder of MANIFEST, or `logs`"
    " in it]",
)
@common_options
def import_runs(manifest: Path, logs: Path | None, storage_url: str, as_json: bool) -> int:
    """Imports the recorded training runs that MANIFEST lists.

    MANIFEST is a CSV file with one run per row and the columns setup (name of the workload),
    run_dir (folder with acc.csv and perhaps loss.csv, as TensorBoard exports them), first_protocol,
    second_protocol, switch_percent, replicate, workers and total_worker_steps; also, where known,
    stands_for_percent (the switch point that the run counts for, empty for none), diverged (yes or
    no), model, data_set, loss, optimizer, batch_size, learning_rate, momentum and metric.

    A run is known by its setup and run_dir, and is imported once: the command may be repeated, and
    continues where it was killed. Rows that cannot be used are listed with the reason. The exit
    status is 0 unless no row at all could be used; then it is 1.
    """
    listed = read_manifest(manifest)
    try:
        with (
            open_database(storage_url, create=True) as database,
            _progress(len(listed.rows)) as advance,
        ):
            report = import_manifest(database, listed, logs or _logs_beside(manifest), advance)
    except KeyboardInterrupt:
        print_error("interrupted; what is imported is kept, and the same command continues")
        return EXIT_INTERRUPTED
    if as_json:
        print_json(_report_as_json(report))
    else:
        _print_report(report)
    return EXIT_OK if report.imported_runs + report.present_runs else EXIT_FAILED


def _logs_beside(manifest: Path) -> Path:
    folder = manifest.parent / "logs"
    return folder if folder.is_dir() else manifest.parent


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[], None]]:
    """A bar where somebody watches."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with progress_bars(rich_console(stderr=True)) as bars:
        bar = bars.add_task("runs", total=runs)
        yield lambda: bars.advance(bar)


def _report_as_json(report: ImportReport) -> dict[str, Any]:
    return {
        "imported_runs": report.imported_runs,
        "already_there_runs": report.present_runs,
        "imported_evaluations": report.imported_evaluations,
        "workloads": [
            {
                "workload": identity.name,
                "fingerprint": identity.fingerprint,
                "workers": identity.workers,
                "first_protocol": identity.first_protocol,
                "second_protocol": identity.second_protocol,
            }
            for identity in report.workloads
        ],
        "not_used": [asdict(remark) for remark in report.faults],
        "notes": [asdict(remark) for remark in report.notes],
    }


def _print_report(report: ImportReport) -> None:
    echo(
        f"runs: {report.imported_runs:,} imported ({report.imported_evaluations:,} evaluations),"
        f" {report.present_runs:,} already there, {len(report.faults):,} not used"
    )
    for identity in report.workloads:
        echo(f"workload {identity.name}, {identity.workers} workers, {identity.pair}")
    for title, remarks in (("not used", report.faults), ("notes", report.notes)):
        if remarks:
            echo(f"\n{title}:")
        for remark in remarks:
            run = f", {remark.run}" if remark.run else ""
            echo(f"  line {remark.line}{run}: {remark.text}")
