"""`--mlflow` of the commands that make runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from syncswitch.searcher.cli.search.jobs import is_further_job
from syncswitch.searcher.cli.search.progress import LineReporter
from syncswitch.searcher.loop.mlflow import copied_search
from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.trainers.cli.options import mlflow_option
from syncswitch.trainers.trainer import Trainer

mlflow_search_option = mlflow_option(
    "Tracking URI of MLflow: copy the search there while it goes on, its trials with their curves,"
    " and the policy. The search waits for no server that is away; what one lacks it gets later,"
    " or by syncswitch-search export."
)


def copied_by_first_job(
    uri: str | None,
    database: Database,
    identity: WorkloadIdentity,
    study: str,
    reporter: LineReporter,
) -> AbstractContextManager[Callable[[Trainer], Trainer]]:
    """See `copied_search`; the first of several jobs does it for all."""
    mine = None if is_further_job() else uri
    return copied_search(mine, database, identity, study, reporter.tell)
