"""`syncswitch-search export` and `import`: runs to MLflow, and from other tools."""

from __future__ import annotations

from pathlib import Path

import click

from syncswitch.cli.console import echo, print_json
from syncswitch.cli.options import common_options, mlflow_option
from syncswitch.cli.search.rows import nothing_found, optional_workload, selector_of
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.importing import import_runs as add_runs
from syncswitch.storage.importing import read_table
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import RegisteredWorkload
from syncswitch.storage.trials.store import TrialStore


@click.command()
@optional_workload
@mlflow_option(required=True)
@common_options
def export(reference: str | None, mlflow: str, storage_url: str, as_json: bool) -> None:
    """Copy searches, later runs and policies of WORKLOAD, or of all, to MLflow.

    Each workload becomes an experiment, and each search a run with its trials nested under it; the
    runs of syncswitch-run stand beside it. The policies of a job become the versions of a
    registered model, with their policy files and aliases.

    The command may be repeated: it adds what is new and leaves the rest as it is.
    """
    from syncswitch.storage.export.mlflow import check_mlflow, copy_job, shown_uri

    check_mlflow(mlflow)
    with open_database(storage_url, create=False) as database:
        workloads = _workloads(TrialStore(database), PolicyRegistry(database), reference)
        counts = [(one.job, copy_job(database, mlflow, one)) for one in workloads]
    if as_json:
        print_json(
            [
                {"workload": job.name, "fingerprint": job.fingerprint, "runs": runs}
                for job, runs in counts
            ]
        )
        return
    for job, runs in counts:
        echo(f"{job.name} ({job.size}): {runs} runs at {shown_uri(mlflow)}")


def _workloads(
    store: TrialStore, registry: PolicyRegistry, reference: str | None
) -> list[RegisteredWorkload]:
    if reference is not None:
        workloads = registry.workloads(str(selector_of(reference)))
        if not workloads:
            raise UserError(nothing_found(reference), code="nothing-recorded")
        return workloads
    searched = [search.fingerprint for search in store.searches()]
    fingerprints = dict.fromkeys([*searched, *(one.job.fingerprint for one in registry.policies())])
    return [one for one in map(registry.workload, fingerprints) if one is not None]


@click.command("import")
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@common_options
def import_runs(table: Path, storage_url: str, as_json: bool) -> None:
    """Import training runs made elsewhere from TABLE.

    TABLE is a CSV or Parquet file with a row for each evaluation of each run. A row describes the
    run (workload, run, first_protocol, second_protocol, switch_percent, workers,
    total_worker_steps) and the evaluation (worker_step, elapsed_seconds of training, accuracy from
    0 to 1, and optionally training_loss).

    Optional columns are candidate_percent (the switch point that the run counts for, empty for
    none), replicate, diverged, worker_steps, training_seconds, first_phase_seconds,
    switch_overhead_seconds, started_at, ended_at, model, data_set, loss, optimizer, batch_size,
    learning_rate, momentum and metric. Other columns are ignored.

    A run is identified by its workload and name, and is imported once: the command may be repeated.
    A table with an impossible value is refused as a whole.
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
                    {**flat(identity.job.key), **flat(identity.protocols)}
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
