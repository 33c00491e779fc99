"""Runs on MLflow while a search, an evaluation or a sweep makes them."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator

from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.trainers.run.mlflow import Copier, WatchedTrainer
from syncswitch.trainers.trainer import Trainer


@contextlib.contextmanager
def copied_search(
    uri: str | None,
    database: Database,
    identity: WorkloadIdentity,
    study: str,
    tell: Callable[[str], None],
) -> Iterator[Callable[[Trainer], Trainer]]:
    """Copies a search to MLflow until the body ends.

    Args:
        uri: Tracking URI of MLflow; None to copy nothing.
        database: Holds the search.
        identity: Of its job.
        study: Its name.
        tell: Tells people where something could not be copied.

    Yields:
        What each trainer has to be wrapped in, so that its runs are seen while they train.
    """
    if uri is None:
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
    copier = Copier(copy, tell, advice)
    try:
        yield lambda trainer: WatchedTrainer(trainer, under_way, copier.wake)
    finally:
        live.clear()
        copier.close()
