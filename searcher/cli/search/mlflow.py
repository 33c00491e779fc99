"""`--mlflow` of `run` and `evaluate`: the search on MLflow while it goes on."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator

from syncswitch.searcher.cli.search.jobs import is_further_job
from syncswitch.searcher.cli.search.progress import LineReporter
from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.trainers.cli.options import mlflow_option
from syncswitch.trainers.run.mlflow import Copier, WatchedTrainer
from syncswitch.trainers.trainer import Trainer

mlflow_search_option = mlflow_option(
    "Tracking URI of MLflow: copy the search there while it goes on, its trials with their curves,"
    " and the policy. The search waits for no server that is away; what one lacks it gets later,"
    " or by syncswitch-search export."
)


@contextlib.contextmanager
def copied_search(
    uri: str | None,
    database: Database,
    identity: WorkloadIdentity,
    study: str,
    reporter: LineReporter,
) -> Iterator[Callable[[Trainer], Trainer]]:
    """Copies a search to MLflow until the body ends; the first of several jobs does it for all.

    Yields:
        What each trainer has to be wrapped in, so that its runs are seen while they train.
    """
    if uri is None or is_further_job():
        yield lambda trainer: trainer
        return
    from syncswitch.storage.export.mlflow.job import copy_job
    from syncswitch.storage.export.mlflow.runs import RunUnderWay
    from syncswitch.storage.export.mlflow.server import MlflowServer, shown_uri
    from syncswitch.storage.policies.registry import PolicyRegistry

    server, registry = MlflowServer(uri), PolicyRegistry(database)
    under_way = RunUnderWay()
    live = {study: under_way}

    def copy() -> None:
        workload = registry.workload(identity.fingerprint)
        if workload is not None:
            copy_job(database, server, workload, studies=[study], under_way=live)

    again = ["syncswitch-search", "export", identity.name, "--mlflow", shown_uri(uri)]
    advice = (
        "the search does not wait for it; what is missing is copied later, or by:"
        f" {shlex.join(again)}"
    )
    copier = Copier(copy, reporter.tell, advice)
    try:
        yield lambda trainer: WatchedTrainer(trainer, under_way, copier.wake)
    finally:
        live.clear()
        copier.close()
