"""Checkpoints that complete trials left, as rows, and back; the files are the trainers'."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialRecord, TrialSpec, TrialState
from syncswitch.storage.tables.checkpoints import CheckpointRow
from syncswitch.storage.tables.trials import TrialRow
from syncswitch.storage.trials.values import StoredCheckpoint

_TRIALS, _CHECKPOINTS = TrialRow.__table__.c, CheckpointRow.__table__.c


def check_paths(spec: TrialSpec) -> None:
    """Refuses, before the training is paid, paths that are not UTF-8 text. Raises UserError."""
    for path in (spec.fork_from, spec.checkpoint_directory):
        whole = "" if path is None else str(path.absolute())
        try:
            whole.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"the checkpoint path {whole!r} is not UTF-8 text; name a folder whose path is"
            ) from error


def add_checkpoints(session: Session, trial_id: int, record: TrialRecord) -> None:
    """Adds the checkpoints of a run to its trial, which the database has."""
    session.add_all(
        CheckpointRow(
            trial_id=trial_id, percent=percent, path=str(path.absolute()), host=record.host
        )
        for percent, path in record.checkpoints.items()
    )


def read_checkpoints(session: Session, study: str) -> list[StoredCheckpoint]:
    """Checkpoints of the complete trials of a search by replicate, percent and trial."""
    query = (
        select(
            _TRIALS.trial_number,
            _TRIALS.replicate,
            _CHECKPOINTS.percent,
            _CHECKPOINTS.path,
            _CHECKPOINTS.host,
        )
        .join_from(TrialRow, CheckpointRow)
        .where(_TRIALS.study == study, _TRIALS.state == TrialState.COMPLETE)
        .order_by(_TRIALS.replicate, _CHECKPOINTS.percent, _TRIALS.trial_number)
    )
    return [
        StoredCheckpoint(number, replicate, percent, Path(path), host)
        for number, replicate, percent, path, host in session.execute(query)
    ]


def delete_checkpoints(session: Session, study: str) -> None:
    """Deletes the rows of a search."""
    of_study = select(TrialRow.trial_id).where(TrialRow.study == study)
    session.execute(
        delete(CheckpointRow)
        .where(CheckpointRow.trial_id.in_(of_study))
        .execution_options(synchronize_session=False)
    )
