"""The trial store: searches, their trials, and what each trial measured."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, delete, select, update

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
from syncswitch.storage.tables.base import add_rows
from syncswitch.storage.tables.trials import CHECKPOINTS, SEARCHES, TRIALS
from syncswitch.storage.trials.evaluations import (
    read_curves,
    read_evaluations,
    record_target,
)
from syncswitch.storage.trials.events import read_events, storable_text
from syncswitch.storage.trials.rows import (
    add_parts,
    begin_trial,
    cost_values,
    now,
    open_trial,
    read_trials,
    result_values,
    update_trial,
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


def read_checkpoints(connection: Connection, study: str) -> list[StoredCheckpoint]:
    """Checkpoints of the complete trials of a search by replicate, percent and trial."""
    query = (
        select(
            TRIALS.c.trial_number,
            TRIALS.c.replicate,
            CHECKPOINTS.c.percent,
            CHECKPOINTS.c.path,
            CHECKPOINTS.c.host,
        )
        .join_from(TRIALS, CHECKPOINTS)
        .where(TRIALS.c.study == study, TRIALS.c.state == TrialState.COMPLETE)
        .order_by(TRIALS.c.replicate, CHECKPOINTS.c.percent, TRIALS.c.trial_number)
    )
    return [
        StoredCheckpoint(number, replicate, percent, Path(path), host)
        for number, replicate, percent, path, host in connection.execute(query)
    ]


def delete_checkpoints(connection: Connection, study: str) -> None:
    """Deletes the rows of a search."""
    of_study = select(TRIALS.c.trial_id).where(TRIALS.c.study == study)
    connection.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.trial_id.in_(of_study)))


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

        def operation(connection: Connection) -> SearchInfo:
            upsert_workload(connection, identity, reference)
            return write_search(connection, search)

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

        def operation(connection: Connection) -> None:
            begin_trial(connection, study, trial_number, spec, owner, fork, speculative)

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

        def operation(connection: Connection) -> None:
            trial_id = open_trial(connection, study, trial_number)
            if trial_id is not None:
                values = {**result_values(record), "plateau_accuracy": plateau_accuracy}
                update_trial(connection, trial_id, **values)
                add_parts(connection, trial_id, record)
                checkpoints = (
                    {"percent": percent, "path": str(path.absolute())}
                    for percent, path in record.checkpoints.items()
                )
                add_rows(connection, CHECKPOINTS, checkpoints, trial_id=trial_id, host=record.host)

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

        def operation(connection: Connection) -> None:
            trial_id = open_trial(connection, study, trial_number)
            if trial_id is not None:
                values = {**cost_values(record), "state": TrialState.FAILED, "failure": failure}
                update_trial(connection, trial_id, **values)

        self._database.write(operation)

    def get(self, study: str, trial_number: int) -> StoredTrial | None:
        """One trial; None where it was never begun."""
        found = self._read(TRIALS.c.study == study, TRIALS.c.trial_number == trial_number)
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
        wanted: list[ColumnElement[bool]] = [TRIALS.c.use_id.is_(None)]
        if study is not None:
            wanted.append(TRIALS.c.study == study)
        if fingerprint is not None:
            wanted.append(TRIALS.c.fingerprint == fingerprint)
        if workload is not None:
            wanted.append(is_workload(workload))
        return self._read(*wanted)

    def numbered(self, study: str) -> dict[int, StoredTrial]:
        """The trials of a search by their number in it."""
        rows = self.trials(study=study)
        return {row.trial_number: row for row in rows if row.trial_number is not None}

    def evaluations(self, study: str, trial_number: int) -> list[Evaluation]:
        """Evaluations of a complete trial, in the order of their worker-steps."""
        with self._database.transaction(read_only=True) as connection:
            return read_evaluations(
                connection, TRIALS.c.study == study, TRIALS.c.trial_number == trial_number
            )

    def events(self, study: str, trial_number: int) -> list[RunEvent]:
        """What happened to a complete trial, in order."""
        with self._database.transaction(read_only=True) as connection:
            return read_events(connection, study, trial_number)

    def curves(
        self, fingerprint: str, *, study: str | None = None
    ) -> dict[int, tuple[Evaluation, ...]]:
        """Evaluations of the complete trials of a workload by `trial_id`, in order; one query.

        Args:
            fingerprint: Of the workload.
            study: Only of this search.
        """
        with self._database.transaction(read_only=True) as connection:
            return read_curves(connection, fingerprint, study)

    def searches(self, *, workload: str | None = None) -> list[SearchInfo]:
        """Searches in the order in which they were registered; `workload` as in `trials`."""
        with self._database.transaction(read_only=True) as connection:
            return read_searches(connection, workload)

    def registered_at(self, study: str) -> datetime | None:
        """When a search was registered; None where it was not."""
        with self._database.transaction(read_only=True) as connection:
            return read_registration(connection, study)

    def checkpoints(self, study: str) -> list[StoredCheckpoint]:
        """What the complete trials of a search left, by replicate, percent and trial number."""
        with self._database.transaction(read_only=True) as connection:
            return read_checkpoints(connection, study)

    def forget_checkpoints(self, study: str) -> None:
        """Deletes what is known of the checkpoints of a search; the files stay."""
        self._database.write(lambda connection: delete_checkpoints(connection, study))

    def set_threshold(self, study: str, threshold: float) -> None:
        """Records the threshold that a search has measured."""
        statement = update(SEARCHES).where(SEARCHES.c.study == study).values(threshold=threshold)
        self._database.write(lambda connection: connection.execute(statement))

    def set_target(self, study: str, target_accuracy: float) -> None:
        """Records the accuracy that a search wants, and when each complete run reached it."""

        def operation(connection: Connection) -> None:
            record_target(connection, TRIALS.c.study == study, target_accuracy)

        self._database.write(operation)

    def _update_running(self, study: str, trial_number: int, **values: object) -> None:
        statement = (
            update(TRIALS)
            .where(
                TRIALS.c.study == study,
                TRIALS.c.trial_number == trial_number,
                TRIALS.c.state == TrialState.RUNNING,
            )
            .values(**values)
        )

        def operation(connection: Connection) -> None:
            connection.execute(statement)

        # A heartbeat that is lost does no harm, and a failure that nobody wrote is found out later.
        self._database.write(operation, patience_seconds=0)

    def _read(self, *conditions: ColumnElement[bool]) -> list[StoredTrial]:
        with self._database.transaction(read_only=True) as connection:
            return read_trials(connection, *conditions)
