"""Copies the runs of a search or a sweep to MLflow, once it is known that they can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import Command, CommandHint, OptionHint, Said, UserError, reason_of
from syncswitch.storage.records.job import ScheduledJob


def check_copies(tensorboard: Path | None, mlflow: str | None) -> None:
    """Raises UserError where logs or copies cannot be written, before anything is trained."""
    from syncswitch.storage.export.mlflow import check_mlflow
    from syncswitch.trainers.run.tensorboard import check_tensorboard

    if tensorboard is not None:
        check_tensorboard(tensorboard)
    if mlflow is not None:
        check_mlflow(mlflow)


def copy_to_mlflow(
    uri: str | None,
    database: Database,
    jobs: Iterable[ScheduledJob],
    tell: Callable[[Said], object],
) -> None:
    """Brings MLflow at a tracking URI, if there is one, up to date with some jobs.

    A server that is away only costs a warning, which `tell` tells people.
    """
    if uri is None:
        return
    from syncswitch.storage.export.mlflow import copy_job, shown_uri
    from syncswitch.storage.policies.registry import PolicyRegistry

    registry = PolicyRegistry(database)
    for identity in dict.fromkeys(jobs):
        workload = registry.workload(identity.fingerprint)
        if workload is None:
            continue
        try:
            copy_job(database, uri, workload)
        except Exception as error:  # what was searched is in the database
            tell(
                UserError(
                    [reason_of(error)],
                    remedy=CommandHint(
                        Command.EXPORT_TO_MLFLOW,
                        (identity.name, OptionHint("mlflow", shown_uri(uri))),
                        "copy the runs later, with:",
                    ),
                )
            )
            return
