"""The trial store: searches, their trials, and what each trial measured."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.orm import Session

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import FatalError, UserError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import (
    Evaluation,
    RunEvent,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.tables.checkpoints import CheckpointRow
from syncswitch.storage.tables.trials import TrialRow
from syncswitch.storage.trials.evaluations import (
    add_evaluations,
    read_curves,
    read_evaluations,
    record_target,
)
from syncswitch.storage.trials.events import add_events, read_events, storable_text
from syncswitch.storage.trials.rows import (
    begin_trial,
    begun_row,
    fill_cost,
    fill_result,
    now,
    read_trials,
)
from syncswitch.storage.trials.searches import read_registration, read_searches, write_search
from syncswitch.storage.trials.selection import is_workload
from syncswitch.storage.trials.values import (
    Fork,
    Owner,
    SearchInfo,
    StoredCheckpoint,
    StoredTrial,
    check_times,
)
from syncswitch.storage.trials.workloads import upsert_workload

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


class TrialStore:
    """Remembers searches and trials. Each method is one transaction, and may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(
        self, identity: WorkloadIdentity, reference: str, search: SearchInfo
    ) -> SearchInfo:
        """Adds a search and its workload, or brings their names and switch points up to date.

        The options of a search that is there already stay as they are.

        Args:
            identity: The workload; its fingerprint is the search's.
            reference: Normal form of what the user called the workload.
            search: The search.

        Returns:
            The search as the database has it now.

        Raises:
            DatabaseError: The study belongs to another workload.
        """
        if search.fingerprint != identity.fingerprint:
            raise FatalError(f"search {search.study!r} names another workload than {identity.name}")

        def operation(session: Session) -> SearchInfo:
            upsert_workload(session, identity, reference)
            return write_search(session, search)

        return self._database.write(operation)

    def begin(
        self,
        study: str,
        trial_number: int,
        spec: TrialSpec,
        owner: Owner,
        *,
        fork: Fork | None = None,
        speculative: bool = False,
    ) -> None:
        """Records that a trial runs; one that ran, failed or was cancelled before starts anew.

        Args:
            study: The search.
            trial_number: In it.
            spec: What is asked for.
            owner: Who runs it.
            fork: The run of this search whose checkpoint it starts from.
            speculative: It begins in advance: the search may turn out not to need it.

        Raises:
            FatalError: The search is not registered or has another workload, the trial is
                complete, the run it is forked from is unknown, or its injections cannot be told
                apart.
            UserError: The path of its checkpoints is not UTF-8 text.
        """
        check_paths(spec)

        def operation(session: Session) -> None:
            begin_trial(session, study, trial_number, spec, owner, fork, speculative)

        self._database.write(operation)

    def heartbeat(self, study: str, trial_number: int, worker_step: int) -> None:
        """Records that a running trial lives and how far it is; other trials stay as they are."""
        self._update_running(study, trial_number, heartbeat_at=now(), worker_steps=worker_step)

    def complete(
        self,
        study: str,
        trial_number: int,
        record: TrialRecord,
        plateau_accuracy: float | None = None,
    ) -> None:
        """Records what a trial measured, evaluations, phases, checkpoints and events included.

        What is complete stays as it is. A trial that was taken for failed, because its owner was
        silent, becomes complete: it did run, and its time was paid.

        Args:
            study: The search.
            trial_number: In it.
            record: What it measured.
            plateau_accuracy: What a whole run would have measured had it been stopped early.

        Raises:
            FatalError: The trial was never begun, or a value is impossible.
        """
        check_times(record)

        def operation(session: Session) -> None:
            row = begun_row(session, study, trial_number)
            if row.state != TrialState.COMPLETE:
                fill_result(session, row, record)
                row.plateau_accuracy = plateau_accuracy
                add_checkpoints(session, row.trial_id, record)
                add_events(session, row.trial_id, record)
                add_evaluations(session, [(row.trial_id, record.evaluations)])

        self._database.write(operation)

    def fail(self, study: str, trial_number: int, reason: str) -> None:
        """Records that infrastructure failed a trial; what is complete stays as it is."""
        failure = storable_text(reason)
        self._update_running(
            study, trial_number, state=TrialState.FAILED, failure=failure, ended_at=now()
        )

    def cancel(self, study: str, trial_number: int, record: TrialRecord, reason: str) -> None:
        """Records that a trial was stopped because nobody needs it, and what it cost until then.

        It becomes failed, and keeps of the record how far it came, its times, its host and its
        software. The rest is left out: part of a run is no result, and is not averaged as one.
        What is complete stays as it is. Of a trial that was taken for failed the cost is kept too:
        it did run, and its time was paid.

        Args:
            study: The search.
            trial_number: In it.
            record: Of the part that ran.
            reason: `CANCELLED`; by this `StoredTrial.is_cancelled` knows it.

        Raises:
            FatalError: The trial was never begun, or a value is impossible.
        """
        check_times(record)
        failure = storable_text(reason)

        def operation(session: Session) -> None:
            row = begun_row(session, study, trial_number)
            if row.state != TrialState.COMPLETE:
                fill_cost(row, record)
                row.state, row.failure = TrialState.FAILED, failure

        self._database.write(operation)

    def get(self, study: str, trial_number: int) -> StoredTrial | None:
        """One trial; None where it was never begun."""
        found = self._read(TrialRow.study == study, TrialRow.trial_number == trial_number)
        return found[0] if found else None

    def trials(
        self,
        *,
        study: str | None = None,
        fingerprint: str | None = None,
        workload: str | None = None,
    ) -> list[StoredTrial]:
        """Trials of searches and imported ones, in the order in which they began.

        Args:
            study: Only of this search.
            fingerprint: Only of the workload with this fingerprint.
            workload: Only of workloads with this name, normal reference, or start of the
                fingerprint (8 digits or more).
        """
        wanted: list[ColumnElement[bool]] = [TrialRow.use_id.is_(None)]
        if study is not None:
            wanted.append(TrialRow.study == study)
        if fingerprint is not None:
            wanted.append(TrialRow.fingerprint == fingerprint)
        if workload is not None:
            wanted.append(is_workload(workload))
        return self._read(*wanted)

    def numbered(self, study: str) -> dict[int, StoredTrial]:
        """The trials of a search by their number in it."""
        rows = self.trials(study=study)
        return {row.trial_number: row for row in rows if row.trial_number is not None}

    def evaluations(self, study: str, trial_number: int) -> list[Evaluation]:
        """Evaluations of a complete trial, in the order of their worker-steps."""
        with self._database.session(read_only=True) as session:
            return read_evaluations(
                session, TrialRow.study == study, TrialRow.trial_number == trial_number
            )

    def events(self, study: str, trial_number: int) -> list[RunEvent]:
        """What happened to a complete trial, in order."""
        with self._database.session(read_only=True) as session:
            return read_events(session, study, trial_number)

    def curves(
        self, fingerprint: str, *, study: str | None = None
    ) -> dict[int, tuple[Evaluation, ...]]:
        """Evaluations of the complete trials of a workload by `trial_id`, in order; one query.

        Args:
            fingerprint: Of the workload.
            study: Only of this search.
        """
        with self._database.session(read_only=True) as session:
            return read_curves(session, fingerprint, study)

    def searches(self, *, workload: str | None = None) -> list[SearchInfo]:
        """Searches in the order in which they were registered; `workload` as in `trials`."""
        with self._database.session(read_only=True) as session:
            return read_searches(session, workload)

    def registered_at(self, study: str) -> datetime | None:
        """When a search was registered; None where it was not."""
        with self._database.session(read_only=True) as session:
            return read_registration(session, study)

    def checkpoints(self, study: str) -> list[StoredCheckpoint]:
        """What the complete trials of a search left, by replicate, percent and trial number."""
        with self._database.session(read_only=True) as session:
            return read_checkpoints(session, study)

    def forget_checkpoints(self, study: str) -> None:
        """Deletes what is known of the checkpoints of a search; the files stay."""
        self._database.write(lambda session: delete_checkpoints(session, study))

    def set_target(self, study: str, target_accuracy: float) -> None:
        """Records the accuracy that a search wants, and when each complete run reached it."""

        def operation(session: Session) -> None:
            record_target(session, TrialRow.study == study, target_accuracy)

        self._database.write(operation)

    def _update_running(self, study: str, trial_number: int, **values: object) -> None:
        statement = (
            update(TrialRow)
            .where(
                TrialRow.study == study,
                TrialRow.trial_number == trial_number,
                TrialRow.state == TrialState.RUNNING,
            )
            .values(**values)
        )

        def operation(session: Session) -> None:
            session.execute(statement)

        # A heartbeat that is lost does no harm, and a failure that nobody wrote is found out later.
        self._database.write(operation, patience_seconds=0)

    def _read(self, *conditions: ColumnElement[bool]) -> list[StoredTrial]:
        with self._database.session(read_only=True) as session:
            return read_trials(session, *conditions)
