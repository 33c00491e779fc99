"""The trial store: searches, their trials, and what each trial measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Executable, Row, delete, insert, select, update

from syncswitch.storage.database.engine import RESTART_SECONDS, Database
from syncswitch.storage.errors import DatabaseError, FatalError, UserError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import (
    Evaluation,
    RunEvent,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.tables.base import add_rows, record_of
from syncswitch.storage.tables.trials import CHECKPOINTS, SEARCHES, TRIALS, WORKLOADS
from syncswitch.storage.trials.evaluations import (
    read_curves,
    read_evaluations,
    record_target,
)
from syncswitch.storage.trials.rows import (
    COST,
    add_parts,
    condition_values,
    cost_values,
    read_events,
    read_trials,
    result_values,
    storable_text,
)
from syncswitch.storage.trials.values import (
    Fork,
    Owner,
    SearchInfo,
    StoredCheckpoint,
    StoredTrial,
    check_times,
)
from syncswitch.storage.trials.workloads import is_workload, upsert_workload


def write_search(connection: Connection, search: SearchInfo) -> SearchInfo:
    """Adds a search, or brings its settings up to date; gives it as the database has it then.

    Its options stay its first writer's: they may be computed from what the database held when the
    search began, and its strategy must not change while it runs. That it was dropped stays, too,
    and the threshold, which the search may have measured.

    Raises:
        DatabaseError: The study belongs to another workload.
        FatalError: An option is no JSON.
    """
    values = {**asdict(search), "options": _as_json(search)}
    query = select(SEARCHES).where(SEARCHES.c.study == search.study)
    row = connection.execute(query).one_or_none()
    if row is None:
        values["registered_at"] = datetime.now(timezone.utc)
        connection.execute(insert(SEARCHES).values(values))
        return record_of(SearchInfo, connection.execute(query).one())
    if row.fingerprint != search.fingerprint:
        raise DatabaseError(
            f"study {search.study!r} is a search for workload {row.fingerprint[:12]}, not for"
            f" {search.fingerprint[:12]}; give the new search a study name of its own"
        )
    stored = asdict(record_of(SearchInfo, row))
    fixed = {"options", "dropped", "threshold"}
    changed = {name: values[name] for name in stored.keys() - fixed if stored[name] != values[name]}
    if changed:
        connection.execute(update(SEARCHES).where(SEARCHES.c.study == search.study).values(changed))
    return record_of(SearchInfo, connection.execute(query).one())


def _as_json(search: SearchInfo) -> dict[str, Any]:
    """The options as they come back from the database; SQLite would take a NaN, too."""
    try:
        options: dict[str, Any] = json.loads(json.dumps(dict(search.options), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise FatalError(
            f"an option of search {search.study!r} is no JSON value: {error}"
        ) from error
    return options


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


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _locked(connection: Connection, study: str, trial_number: int) -> Row[Any, Any] | None:
    """`trial_id` and state of a trial that nobody else may change until this transaction ends."""
    query = select(TRIALS.c.trial_id, TRIALS.c.state).where(
        TRIALS.c.study == study, TRIALS.c.trial_number == trial_number
    )
    return connection.execute(query.with_for_update()).one_or_none()


def _open_trial(connection: Connection, study: str, trial_number: int) -> int | None:
    """The `trial_id` of a trial, which is locked; None where it is complete.

    Raises FatalError where it was never begun.
    """
    row = _locked(connection, study, trial_number)
    if row is None:
        raise FatalError(f"trial {trial_number} of {study!r} was never begun")
    return None if row.state == TrialState.COMPLETE else row.trial_id


def _update_trial(connection: Connection, trial_id: int, **values: Any) -> None:
    """Changes some columns of a trial."""
    connection.execute(update(TRIALS).where(TRIALS.c.trial_id == trial_id).values(values))


def _parent_id(connection: Connection, study: str, fork: Fork | None) -> int | None:
    """The `trial_id` of the run that a fork left; None for no fork.

    Raises FatalError where there is no such run.
    """
    if fork is None:
        return None
    query = select(TRIALS.c.trial_id).where(
        TRIALS.c.study == study, TRIALS.c.trial_number == fork.trial_number
    )
    parent: int | None = connection.scalar(query)
    if parent is None:
        raise FatalError(f"no trial {fork.trial_number} of {study!r} to fork from")
    return parent


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
            query = select(SEARCHES.c.fingerprint).where(SEARCHES.c.study == study)
            fingerprint = connection.scalar(query)
            if fingerprint is None or fingerprint != spec.identity.fingerprint:
                raise FatalError(f"no search {study!r} of workload {spec.identity.name} registered")
            parent_trial_id = _parent_id(connection, study, fork)
            row = _locked(connection, study, trial_number)
            if row is not None and row.state == TrialState.COMPLETE:
                raise FatalError(f"trial {trial_number} of {study!r} is already complete")
            moment = _now()
            values: dict[str, Any] = {
                "candidate_percent": spec.switch_percent,
                "switch_percent": spec.switch_percent,
                "replicate": spec.replicate,
                "seed": spec.seed,
                "fork_from": str(spec.fork_from) if spec.fork_from else None,
                "parent_trial_id": parent_trial_id,
                "fork_percent": fork.percent if fork else None,
                "speculative": speculative,
                **condition_values(spec.conditions),
                "state": TrialState.RUNNING,
                "worker_steps": 0,
                "started_at": moment,
                "heartbeat_at": moment,
                **asdict(owner),
                # What an earlier attempt cost is forgotten.
                **dict.fromkeys((*COST, "software", "ended_at", "failure")),
            }
            if row is None:
                named = {"study": study, "trial_number": trial_number, "fingerprint": fingerprint}
                connection.execute(insert(TRIALS).values(**named, **values))
            else:
                _update_trial(connection, row.trial_id, **values)

        self._database.write(operation)

    def heartbeat(self, study: str, trial_number: int, worker_step: int) -> None:
        """Records that a running trial lives and how far it is; other trials stay as they are."""
        self._update_running(study, trial_number, heartbeat_at=_now(), worker_steps=worker_step)

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
            trial_id = _open_trial(connection, study, trial_number)
            if trial_id is not None:
                values = {**result_values(record), "plateau_accuracy": plateau_accuracy}
                _update_trial(connection, trial_id, **values)
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
            study, trial_number, state=TrialState.FAILED, failure=failure, ended_at=_now()
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
            trial_id = _open_trial(connection, study, trial_number)
            if trial_id is not None:
                values = {**cost_values(record), "state": TrialState.FAILED, "failure": failure}
                _update_trial(connection, trial_id, **values)

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
        """The events of a complete trial, in order."""
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
        query = select(SEARCHES).join(WORKLOADS)
        if workload is not None:
            query = query.where(is_workload(workload))
        query = query.order_by(SEARCHES.c.registered_at, SEARCHES.c.study)
        with self._database.transaction(read_only=True) as connection:
            return [record_of(SearchInfo, row) for row in connection.execute(query)]

    def registered_at(self, study: str) -> datetime | None:
        """When a search was registered; None where it was not."""
        query = select(SEARCHES.c.registered_at).where(SEARCHES.c.study == study)
        with self._database.transaction(read_only=True) as connection:
            return connection.scalar(query)

    def drop(self, study: str, why: str) -> None:
        """Records why a search ends without a policy; see `SearchInfo.dropped`."""
        self._execute(update(SEARCHES).where(SEARCHES.c.study == study).values(dropped=why))

    def checkpoints(self, study: str) -> list[StoredCheckpoint]:
        """The checkpoints that complete trials left, by replicate, percent and trial number."""
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
        with self._database.transaction(read_only=True) as connection:
            return [
                StoredCheckpoint(number, replicate, percent, Path(path), host)
                for number, replicate, percent, path, host in connection.execute(query)
            ]

    def forget_checkpoints(self, study: str) -> None:
        """Deletes what is known of the checkpoints of a search; the files stay."""
        of_study = select(TRIALS.c.trial_id).where(TRIALS.c.study == study)
        self._execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.trial_id.in_(of_study)))

    def set_threshold(self, study: str, threshold: float) -> None:
        """Records the threshold that a search has measured."""
        self._execute(update(SEARCHES).where(SEARCHES.c.study == study).values(threshold=threshold))

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
        # A heartbeat that is lost does no harm, and a failure that nobody wrote is found out later.
        self._execute(statement, patience_seconds=0)

    def _execute(self, statement: Executable, *, patience_seconds: float = RESTART_SECONDS) -> None:
        def operation(connection: Connection) -> None:
            connection.execute(statement)

        self._database.write(operation, patience_seconds=patience_seconds)

    def _read(self, *conditions: ColumnElement[bool]) -> list[StoredTrial]:
        with self._database.transaction(read_only=True) as connection:
            return read_trials(connection, *conditions)
