"""The trial store: searches, their trials, and the measurements of each trial."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Row,
    Table,
    delete,
    insert,
    select,
    update,
)
from typing_extensions import Unpack

from syncswitch.storage.database.defaults import RESTART_SECONDS
from syncswitch.storage.database.engine import ROWS_AT_ONCE, Database
from syncswitch.storage.errors import DatabaseError, FatalError, UserError
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import Protocols, RunConditions, ScheduledJob, SearchInfo
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    Evaluation,
    PhaseRecord,
    RunEvent,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.tables.base import add_rows, columns_of, record_of
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import (
    CHECKPOINTS,
    EVENTS,
    FAILED_SWITCHES,
    PHASES,
    SEARCHES,
    TRIALS,
    WORKLOADS,
)
from syncswitch.storage.trials.choice import TrialChoice, are_with, conditions
from syncswitch.storage.trials.evaluations import (
    add_evaluations,
    read_curves,
    read_evaluations,
    record_target,
)
from syncswitch.storage.trials.values import (
    Fork,
    Owner,
    StoredCheckpoint,
    StoredTrial,
    check_times,
    condition_values,
    storable_text,
)
from syncswitch.storage.trials.workloads import is_workload, upsert_workload

_PARENT = TRIALS.alias()
_COLUMNS = (
    *TRIAL_FACTS.c,
    _PARENT.c.trial_number.label("parent_trial_number"),
    TRIALS.c.heartbeat_at,
    TRIALS.c.process_id,
    TRIALS.c.process_started_at,
    TRIALS.c.step_seconds,
)
COST = ("training_seconds", "inherited_seconds", "switch_overhead_seconds")


def cost_values(record: TrialRecord) -> dict[str, Any]:
    """Returns the columns that say how far a run came, when and where, and how long it took."""
    names = (*COST, "worker_steps", "started_at", "ended_at", "host")
    return {name: getattr(record, name) for name in names} | {"software": dict(record.software)}


def result_values(record: TrialRecord) -> dict[str, Any]:
    """Returns the columns of a complete trial that hold what it measured."""
    guard = record.guard
    known = len(record.spec.inherited_evaluations) + len(record.evaluations)
    return {
        **cost_values(record),
        "state": TrialState.COMPLETE,
        "failure": None,
        "converged_accuracy": record.converged_accuracy,
        "converged_evaluations": min(record.converged_evaluations, known),
        "final_accuracy": record.final_accuracy,
        "converged": record.converged,
        "diverged": record.diverged,
        "stopped_early": record.stopped_early,
        "guard": "off" if guard is None else guard.state,
        "held_percent": record.spec.switch_percent if guard is None else guard.held_percent,
        "step_seconds": dict(record.step_seconds) or None,
    }


def add_parts(connection: Connection, trial_id: int, record: TrialRecord) -> None:
    """Adds the phases, failed switches, events and evaluations of a run to its trial."""
    failed = record.failed
    tables: dict[Table, Sequence[Any]]
    tables = {PHASES: record.phases, FAILED_SWITCHES: failed, EVENTS: record.events}
    for table, parts in tables.items():
        rows = [{"position": place, **asdict(one)} for place, one in enumerate(parts)]
        for row in rows:
            row |= {name: storable_text(row[name]) for name in ("alarm", "reason") if name in row}
        add_rows(connection, table, rows, trial_id=trial_id)
    add_evaluations(connection, [(trial_id, record.evaluations)])


def read_trials(connection: Connection, *conditions: ColumnElement[bool]) -> Iterator[StoredTrial]:
    """Yields trials in the order in which they were added, in bounded memory.

    The conditions are on the columns of `TRIAL_FACTS`.
    """
    query = (
        select(*_COLUMNS)
        .join(TRIALS, TRIALS.c.trial_id == TRIAL_FACTS.c.trial_id)
        .outerjoin(_PARENT, _PARENT.c.trial_id == TRIAL_FACTS.c.parent_trial_id)
        .where(*conditions)
        .order_by(TRIAL_FACTS.c.trial_id)
    )
    rows = connection.execute(query, execution_options={"yield_per": ROWS_AT_ONCE})
    for block in rows.partitions():
        chosen = (
            TRIAL_FACTS.c.trial_id.between(block[0].trial_id, block[-1].trial_id),
            *conditions,
        )
        phases = _parts(connection, PhaseRecord, PHASES, chosen)
        failed = _parts(connection, FailedSwitch, FAILED_SWITCHES, chosen)
        for row in block:
            parts = {
                "phases": tuple(phases.get(row.trial_id, ())),
                "failed": tuple(failed.get(row.trial_id, ())),
            }
            yield nested(StoredTrial, row._asdict() | parts)


_Part = TypeVar("_Part", PhaseRecord, FailedSwitch)


def _parts(
    connection: Connection, kind: type[_Part], table: Table, chosen: Sequence[ColumnElement[bool]]
) -> dict[int, list[_Part]]:
    """Returns the phases or failed switches of trials, in order, by `trial_id`."""
    query = (
        select(table.c.trial_id, *columns_of(kind, table))
        .join(TRIAL_FACTS, TRIAL_FACTS.c.trial_id == table.c.trial_id)
        .where(*chosen)
        .order_by(table.c.trial_id, table.c.position)
    )
    found: dict[int, list[_Part]] = defaultdict(list)
    for trial_id, *values in connection.execute(query):
        found[trial_id].append(kind(*values))
    return found


def _write_search(connection: Connection, search: SearchInfo) -> SearchInfo:
    """Adds a search, or updates its settings; returns it as the database has it then.

    The options stay those of its first writer: they may be computed from what the database held
    when the search began, and its strategy must not change while it runs. That it was dropped, and
    the threshold, which the search may have measured, stay as well. Raises DatabaseError if the
    study belongs to another workload.
    """
    try:
        # As the database gives them back; SQLite would also store a NaN.
        options = json.loads(json.dumps(dict(search.options), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise FatalError(
            f"an option of search {search.study!r} is not a JSON value: {error}"
        ) from error
    values = {**flat(search), "options": options}
    query = select(SEARCHES).where(SEARCHES.c.study == search.study)
    row = connection.execute(query).one_or_none()
    if row is None:
        connection.execute(insert(SEARCHES).values(registered_at=_now(), **values))
    elif row.fingerprint != search.fingerprint:
        raise DatabaseError(
            f"study {search.study!r} is a search for workload {row.fingerprint[:12]}, not for"
            f" {search.fingerprint[:12]}; give the new search a study name of its own",
            code="database-foreign",
        )
    else:
        stored = flat(record_of(SearchInfo, row))
        fixed = {"options", "dropped", "threshold"}
        changed = {
            name: values[name] for name in stored.keys() - fixed if stored[name] != values[name]
        }
        if changed:
            here = SEARCHES.c.study == search.study
            connection.execute(update(SEARCHES).where(here).values(changed))
    return record_of(SearchInfo, connection.execute(query).one())


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _locked(connection: Connection, study: str, trial_number: int) -> Row[Any, Any] | None:
    """Locks a trial until the transaction ends; returns its `trial_id` and state."""
    query = select(TRIALS.c.trial_id, TRIALS.c.state).where(
        TRIALS.c.study == study, TRIALS.c.trial_number == trial_number
    )
    return connection.execute(query.with_for_update()).one_or_none()


def _end_trial(
    connection: Connection, study: str, trial_number: int, values: dict[str, Any]
) -> int | None:
    """Changes a trial at its end, unless it is complete; returns its `trial_id`, else None.

    Raises FatalError if it was never begun.
    """
    row = _locked(connection, study, trial_number)
    if row is None:
        raise FatalError(f"trial {trial_number} of {study!r} was never begun")
    if row.state == TrialState.COMPLETE:
        return None
    connection.execute(update(TRIALS).where(TRIALS.c.trial_id == row.trial_id).values(values))
    trial_id: int = row.trial_id
    return trial_id


class TrialStore:
    """Stores searches and trials. Each method is one transaction, and may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, identity: ScheduledJob, reference: str, search: SearchInfo) -> SearchInfo:
        """Adds a search and its workload, or updates their names and settings.

        The options of a search that is there already stay as they are.

        Args:
            identity: The workload; its fingerprint is that of the search.
            reference: Normal form of the user's reference to the workload.
            search: The search.

        Returns:
            The search as the database has it now.

        Raises:
            DatabaseError: The study belongs to another workload.
        """
        if search.fingerprint != identity.fingerprint:
            raise FatalError(f"search {search.study!r} names another workload than {identity.name}")

        def operation(connection: Connection) -> SearchInfo:
            upsert_workload(connection, identity.job, reference)
            return _write_search(connection, search)

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
            trial_number: Number of the trial in it.
            spec: The specification of the run.
            owner: The process that runs it.
            fork: The run of this search whose checkpoint it starts from.
            speculative: Whether it begins in advance: the search may turn out not to need it.

        Raises:
            FatalError: The search is not registered or has another workload, the trial is
                complete, the run it is forked from is unknown, or its injections cannot be told
                apart.
            UserError: The path of its checkpoints is not UTF-8 text.
        """
        # Before the training is paid for.
        for path in (spec.fork_from, spec.checkpoint_directory):
            whole = "" if path is None else str(path.absolute())
            try:
                whole.encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"the checkpoint path {whole!r} is not UTF-8 text; name a folder whose path is",
                    code="file-unusable",
                ) from error

        def operation(connection: Connection) -> None:
            query = select(SEARCHES.c.fingerprint).where(SEARCHES.c.study == study)
            fingerprint = connection.scalar(query)
            if fingerprint is None or fingerprint != spec.identity.fingerprint:
                raise FatalError(f"no search {study!r} of workload {spec.identity.name} registered")
            parent = None if fork is None else _locked(connection, study, fork.trial_number)
            if fork is not None and parent is None:
                raise FatalError(f"no trial {fork.trial_number} of {study!r} to fork from")
            row = _locked(connection, study, trial_number)
            if row is not None and row.state == TrialState.COMPLETE:
                raise FatalError(f"trial {trial_number} of {study!r} is already complete")
            moment = _now()
            values: dict[str, Any] = {
                **flat(spec.identity.protocols),
                "candidate_percent": spec.switch_percent,
                "switch_percent": spec.switch_percent,
                "replicate": spec.replicate,
                "seed": spec.seed,
                "fork_from": str(spec.fork_from) if spec.fork_from else None,
                "parent_trial_id": parent and parent.trial_id,
                "fork_percent": fork and fork.percent,
                "speculative": speculative,
                **condition_values(spec.conditions),
                "state": TrialState.RUNNING,
                "worker_steps": 0,
                "started_at": moment,
                "heartbeat_at": moment,
                **asdict(owner),
                # The cost of an earlier attempt is forgotten.
                **dict.fromkeys((*COST, "software", "ended_at", "failure")),
            }
            if row is None:
                named = {"study": study, "trial_number": trial_number, "fingerprint": fingerprint}
                connection.execute(insert(TRIALS).values(**named, **values))
            else:
                here = TRIALS.c.trial_id == row.trial_id
                connection.execute(update(TRIALS).where(here).values(values))

        self._database.write(operation)

    def heartbeat(self, study: str, trial_number: int, worker_step: int) -> None:
        """Records that a running trial lives, and its progress; other trials stay as they are."""
        self._update_running(study, trial_number, heartbeat_at=_now(), worker_steps=worker_step)

    def complete(
        self,
        study: str,
        trial_number: int,
        record: TrialRecord,
        plateau_accuracy: float | None = None,
    ) -> None:
        """Records what a trial measured, evaluations, phases, checkpoints and events included.

        A complete trial stays as it is. One that was taken for failed, because its owner was
        silent, becomes complete: it did run, and its time was paid.

        Args:
            study: The search.
            trial_number: Number of the trial in it.
            record: The measurements.
            plateau_accuracy: The accuracy that a whole run would have had if stopped early.

        Raises:
            FatalError: The trial was never begun, or a value is impossible.
        """
        check_times(record)
        values = {**result_values(record), "plateau_accuracy": plateau_accuracy}

        def operation(connection: Connection) -> None:
            trial_id = _end_trial(connection, study, trial_number, values)
            if trial_id is not None:
                add_parts(connection, trial_id, record)
                checkpoints = (
                    {"percent": percent, "path": str(path.absolute())}
                    for percent, path in record.checkpoints.items()
                )
                add_rows(connection, CHECKPOINTS, checkpoints, trial_id=trial_id, host=record.host)

        self._database.write(operation)

    def fail(self, study: str, trial_number: int, reason: str) -> None:
        """Records that a trial failed for its infrastructure; a complete one stays as it is."""
        failure = storable_text(reason)
        self._update_running(
            study, trial_number, state=TrialState.FAILED, failure=failure, ended_at=_now()
        )

    def cancel(self, study: str, trial_number: int, record: TrialRecord, reason: str) -> None:
        """Records that a trial was stopped because nobody needs it, and what it cost until then.

        It becomes failed, and keeps its progress, times, host and software. The rest of the record
        is left out: part of a run is not a result, and is not averaged as one. A complete trial
        stays as it is. The cost of a trial that was taken for failed is kept too: it did run, and
        its time was paid.

        Args:
            study: The search.
            trial_number: Number of the trial in it.
            record: The measurements of the part that ran.
            reason: `CANCELLED` or `INTERRUPTED`.

        Raises:
            FatalError: The trial was never begun, or a value is impossible.
        """
        check_times(record)
        failure = storable_text(reason)
        values = {**cost_values(record), "state": TrialState.FAILED, "failure": failure}
        self._database.write(lambda connection: _end_trial(connection, study, trial_number, values))

    def get(self, study: str, trial_number: int) -> StoredTrial | None:
        """Returns one trial; None if it was never begun."""
        found = self.trials(study=study, trial_number=trial_number)
        return found[0] if found else None

    def trials(
        self, protocols: Protocols | None = None, **choice: Unpack[TrialChoice]
    ) -> list[StoredTrial]:
        """Returns trials in the order in which they were added.

        Args:
            protocols: Only runs with these, or with the first of them alone.
            **choice: Which trials, see `TrialChoice`; by default those of searches and imported
                ones. All are of the same moment.

        Raises:
            UserError: No trial can be chosen like that.
        """
        return list(self.each_trial(protocols, **choice))

    def each_trial(
        self, protocols: Protocols | None = None, **choice: Unpack[TrialChoice]
    ) -> Iterator[StoredTrial]:
        """Yields the same trials in bounded memory.

        The transaction is open until the last one is taken, or the iterator closed.
        """
        choice.setdefault("kinds", ("search", "import"))
        chosen = [] if protocols is None else [are_with(protocols)]
        with self._database.transaction(read_only=True) as connection:
            yield from read_trials(connection, *chosen, *conditions(choice))

    def times_alone(self, fingerprint: str, protocol: str, host: str | None) -> list[float]:
        """Returns the seconds of a job's undisturbed runs with one protocol alone, its first.

        Runs with policies are among them, in the order in which all were added.

        Args:
            fingerprint: The job.
            protocol: The protocol.
            host: Only runs on this machine; None for runs on any.
        """
        facts, usual = TRIAL_FACTS.c, condition_values(RunConditions())
        query = (
            select(facts.whole_run_seconds)
            .where(
                facts.fingerprint == fingerprint,
                facts.first_protocol == protocol,
                facts.switch_percent >= BASELINE_PERCENT,
                *(facts[name].is_not_distinct_from(value) for name, value in usual.items()),
                facts.whole_run_seconds.is_not(None),
            )
            .order_by(facts.trial_id)
        )
        if host is not None:
            query = query.where(facts.host == host)
        return [seconds for (seconds,) in self._database.rows(query)]

    def numbered(self, study: str) -> dict[int, StoredTrial]:
        """Returns the trials of a search by their number in it."""
        rows = self.trials(study=study)
        return {row.origin.trial_number: row for row in rows if row.origin.trial_number is not None}

    def evaluations(self, study: str, trial_number: int) -> list[Evaluation]:
        """Returns the evaluations of a complete trial, in the order of their worker-steps."""
        with self._database.transaction(read_only=True) as connection:
            return read_evaluations(
                connection, TRIALS.c.study == study, TRIALS.c.trial_number == trial_number
            )

    def events(self, study: str, trial_number: int) -> list[RunEvent]:
        """Returns the events of a complete trial in their order."""
        query = (
            select(*columns_of(RunEvent, EVENTS))
            .join(TRIALS, TRIALS.c.trial_id == EVENTS.c.trial_id)
            .where(TRIALS.c.study == study, TRIALS.c.trial_number == trial_number)
            .order_by(EVENTS.c.position)
        )
        return [RunEvent(*row) for row in self._database.rows(query)]

    def curves(
        self, fingerprint: str, *, study: str | None = None, of_uses: bool = False
    ) -> dict[int, tuple[Evaluation, ...]]:
        """Returns the evaluations of the complete trials of a workload by `trial_id`.

        Args:
            fingerprint: The workload.
            study: Only trials of this search.
            of_uses: Those of later runs with its policies instead.
        """
        with self._database.transaction(read_only=True) as connection:
            return read_curves(connection, fingerprint, study, of_uses=of_uses)

    def searches(self, *, workload: str | None = None) -> list[SearchInfo]:
        """Returns searches in the order of their registration; `workload` as in `TrialChoice`."""
        query = select(SEARCHES).join(WORKLOADS)
        if workload is not None:
            query = query.where(is_workload(workload))
        query = query.order_by(SEARCHES.c.registered_at, SEARCHES.c.study)
        return [record_of(SearchInfo, row) for row in self._database.rows(query)]

    def registered_at(self, study: str) -> datetime | None:
        """Returns when a search was registered; None if it was not."""
        query = select(SEARCHES.c.registered_at).where(SEARCHES.c.study == study)
        return next((moment for (moment,) in self._database.rows(query)), None)

    def drop(self, study: str, why: Mapping[str, str]) -> None:
        """Records why a search has no policy for other pairs, see `SearchInfo.dropped`."""
        self._execute(update(SEARCHES).where(SEARCHES.c.study == study).values(dropped=dict(why)))

    def checkpoints(self, study: str) -> list[StoredCheckpoint]:
        """Returns the checkpoints of complete trials, by replicate, percent and trial number."""
        of_trial, of_file = (TRIALS.c.trial_number, TRIALS.c.replicate), CHECKPOINTS.c
        query = (
            select(*of_trial, of_file.percent, of_file.path, of_file.host)
            .join_from(TRIALS, CHECKPOINTS)
            .where(TRIALS.c.study == study, TRIALS.c.state == TrialState.COMPLETE)
            .order_by(TRIALS.c.replicate, CHECKPOINTS.c.percent, TRIALS.c.trial_number)
        )
        return [
            StoredCheckpoint(number, replicate, percent, Path(path), host)
            for number, replicate, percent, path, host in self._database.rows(query)
        ]

    def forget_checkpoints(self, study: str) -> None:
        """Deletes the records of a search's checkpoints; the files stay."""
        of_study = select(TRIALS.c.trial_id).where(TRIALS.c.study == study)
        self._execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.trial_id.in_(of_study)))

    def set_threshold(self, study: str, threshold: float) -> None:
        """Records the threshold that a search has measured."""
        self._execute(update(SEARCHES).where(SEARCHES.c.study == study).values(threshold=threshold))

    def set_target(self, study: str, target_accuracy: float) -> None:
        """Records the target of a search, and when each complete run reached it."""
        self._database.write(
            lambda connection: record_target(connection, TRIALS.c.study == study, target_accuracy)
        )

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
        # A lost heartbeat does no harm, and a failure that was not recorded is discovered later.
        self._execute(statement, patience_seconds=0)

    def _execute(self, statement: Executable, *, patience_seconds: float = RESTART_SECONDS) -> None:
        self._database.write(
            lambda connection: connection.execute(statement), patience_seconds=patience_seconds
        )
