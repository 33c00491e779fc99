"""`syncswitch-search import`: puts runs that were made elsewhere into the database."""

from __future__ import annotations

from pathlib import Path

import click

from syncswitch.cli.console import echo, print_json
from syncswitch.cli.options import common_options
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing import import_runs as add_runs
from syncswitch.storage.importing import read_table


@click.command("import")
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@common_options
def import_runs(table: Path, storage_url: str, as_json: bool) -> None:
    """Import the training runs in TABLE, which were made elsewhere.

    TABLE is a CSV or Parquet file with a row for each test of each run. A row names the run
    (workload, run, first_protocol, second_protocol, switch_percent, workers, total_worker_steps),
    and says of the test worker_step, elapsed_seconds (of training) and accuracy (0 to 1), perhaps
    training_loss.

    Where known, it also has candidate_percent (the switch point that the run counts for, empty for
    none), replicate, diverged, worker_steps, training_seconds, first_phase_seconds,
    switch_overhead_seconds, started_at, ended_at, model, data_set, loss, optimizer, batch_size,
    learning_rate, momentum and metric. Other columns are left alone.

    A run is known by its workload and name, and is imported once: the command may be repeated. A
    table with an impossible value is refused as a whole.
    """
    runs = read_table(table)
    with open_database(storage_url, create=True) as database:
        report = add_runs(database, runs)
    if as_json:
        print_json(
            {
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
            }
        )
        return
    echo(
        f"runs: {report.imported_runs:,} imported ({report.imported_evaluations:,} evaluations),"
        f" {report.present_runs:,} already there"
    )
    for identity in report.workloads:
        echo(f"workload {identity.name}, {identity.workers} workers, {identity.pair}")
