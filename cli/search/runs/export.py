"""`syncswitch-search export`: searches, later runs and policies for other tools."""

from __future__ import annotations

import click

from syncswitch.cli.console import echo, print_json
from syncswitch.cli.options import common_options, mlflow_option
from syncswitch.cli.search.rows import nothing_found, optional_workload, selector_of
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import RegisteredWorkload
from syncswitch.storage.trials.store import TrialStore


@click.command()
@optional_workload
@mlflow_option(required=True)
@common_options
def export(reference: str | None, mlflow_uri: str, storage_url: str, as_json: bool) -> None:
    """Copy searches, later runs and policies of WORKLOAD, or of all, to MLflow.

    Each workload is an experiment. A search is a run, under which its trials are; runs of
    syncswitch-run stand beside it. The policies of a job are the versions of a registered model,
    each with its policy file, under the same aliases.

    What is there already stays as it is, so the command may be repeated: it adds what is new.
    """
    from syncswitch.storage.export.mlflow.job import copy_job
    from syncswitch.storage.export.mlflow.server import MlflowServer, shown_uri

    server = MlflowServer(mlflow_uri)
    with open_database(storage_url, create=False) as database:
        workloads = _workloads(TrialStore(database), PolicyRegistry(database), reference)
        counts = [
            (workload.identity, copy_job(database, server, workload)) for workload in workloads
        ]
    if as_json:
        print_json(
            [
                {"workload": one.name, "fingerprint": one.fingerprint, "runs": runs}
                for one, runs in counts
            ]
        )
        return
    for identity, runs in counts:
        echo(f"{identity.name} ({identity.cluster}): {runs} runs at {shown_uri(mlflow_uri)}")


def _workloads(
    store: TrialStore, registry: PolicyRegistry, reference: str | None
) -> list[RegisteredWorkload]:
    """What is to be copied. Raises UserError where there is none of this name."""
    if reference is not None:
        found = registry.workloads(str(selector_of(reference)))
        if not found:
            raise UserError(nothing_found(reference))
        return found
    searched = [search.fingerprint for search in store.searches()]
    known = dict.fromkeys([*searched, *(one.fingerprint for one in registry.policies())])
    return [one for one in map(registry.workload, known) if one is not None]
