"""Optuna's tables: creating, opening and upgrading them, and checking them against ours.

Optuna creates its tables statement by statement, and SQLite commits each one on its own. A process
killed in between would leave a table without its index for good, because Optuna adds no index to a
table that exists. On SQLite the tables are therefore created here, in one transaction, with the
statements that Optuna uses.
"""

from __future__ import annotations

import functools
import itertools
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.search.observations import is_run_by_anyone
from syncswitch.storage.database.check import RESTORE, Finding, database_findings, listed
from syncswitch.storage.database.engine import Database, examined, known_error, use_iso_dates
from syncswitch.storage.database.inspection import (
    REVISION,
    connect_arguments,
    driver_url,
    holds_studies,
    parse_url,
    shown,
    sqlite_path,
)
from syncswitch.storage.errors import Command, CommandHint, DatabaseError, FatalError, one_line
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.job import Job, Protocols, ScheduledJob
from syncswitch.storage.records.trial import Evaluation, TrialState
from syncswitch.storage.trials.possible import stored_fault
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial

_OPEN_ATTEMPTS = 5
_BUSY_SECONDS = 60.0


@contextmanager
def readable(url: str) -> Iterator[None]:
    """Turns what Optuna raises for an invalid value in its tables into a DatabaseError."""
    try:
        yield
    except (ValueError, LookupError) as error:
        raise DatabaseError(
            f"Optuna's tables in {shown(url)} hold a value that cannot be read"
            f" ({one_line(error)}); restore the database from a copy",
            code="database-damaged",
        ) from error


def open_storage(url: str, *, check: bool = True) -> RDBStorage:
    """Opens Optuna's tables, and creates them if there are none.

    Raises DatabaseError if that fails, or if `check` finds the tables of another Optuna version.
    """
    storage = _opened(url)
    # Optuna's own check reads all its migrations each time.
    if check and storage.get_current_version() != _newest()[0]:
        raise DatabaseError(
            f"Optuna's tables in {shown(url)} do not fit the installed Optuna {optuna.__version__}",
            remedy=CommandHint(Command.UPGRADE_DATABASE, verb="run:"),
            code="database-outdated",
        )
    return storage


def _opened(url: str) -> RDBStorage:
    path = sqlite_path(parse_url(url))
    arguments: dict[str, Any] = (
        {"pool_pre_ping": True, "connect_args": connect_arguments(parse_url(url))}
        if path is None
        else {"connect_args": {"timeout": _BUSY_SECONDS}}
    )
    for attempt in range(_OPEN_ATTEMPTS):
        try:
            if path is not None:
                _create_missing(path)
            storage = RDBStorage(
                driver_url(url), engine_kwargs=arguments, skip_compatibility_check=True
            )
            if path is None:
                use_iso_dates(storage.engine)
                storage.scoped_session.remove()
                storage.engine.dispose()  # of those that were opened before
            return storage
        except Exception as error:
            ours = known_error(error, shown(url)) or known_error(error.__cause__, shown(url))
            if isinstance(ours, FatalError):
                raise ours from error
            # Two searchers that start at once both try to create Optuna's tables, and one loses
            # with whatever error its driver raises for that.
            if attempt + 1 == _OPEN_ATTEMPTS:
                raise DatabaseError(
                    f"Optuna cannot use the database {shown(url)}:"
                    f" {type(error).__name__}; check its permissions, free space and server"
                ) from error
            time.sleep(0.2 * (attempt + 1))
    raise AssertionError("unreachable")


def upgrade_study_tables(url: str) -> bool:
    """Brings Optuna's tables to the version of the installed Optuna; returns whether it had to."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage(url, check=False)
    is_old: bool = storage.get_current_version() != storage.get_head_version()
    if is_old:
        storage.upgrade()
    return is_old


def _create_missing(path: Path) -> None:
    """Creates the tables and indexes that do not exist: all of them, or none."""
    with _transaction(path, "DEFERRED") as connection:
        if not _missing(connection):
            return
    with _transaction(path, "IMMEDIATE") as connection:
        missing = _missing(connection)  # others may have been faster
        for statement in missing.values():
            connection.execute(statement)
        revision, statements = _newest()
        if len(missing) == len(statements):
            # Optuna would read all its migrations to find it out.
            connection.execute("INSERT INTO alembic_version VALUES (?)", [revision])


def _missing(connection: sqlite3.Connection) -> dict[str, str]:
    """Statements that create what does not exist, by the name of what they create, in order."""
    existing = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    revision, statements = _newest()
    if "alembic_version" in existing:
        version = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if version is not None and version[0] != revision:
            return {}  # only that version of Optuna knows what belongs there
    return {name: sql for name, sql in statements.items() if name not in existing}


@functools.cache
def _newest() -> tuple[str, dict[str, str]]:
    """Returns the revision of the installed Optuna's tables, and statements that create them."""
    storage = RDBStorage("sqlite://", skip_compatibility_check=True)
    with storage.engine.connect() as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        statements = {row.name: row.sql for row in connection.exec_driver_sql(query)}
    revision = storage.get_current_version()
    storage.engine.dispose()
    return revision, statements


@contextmanager
def _transaction(path: Path, kind: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, _BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute(f"BEGIN {kind}")
        yield connection
        connection.execute("COMMIT")


_ENDED = {TrialState.COMPLETE, TrialState.FAILED}
_REPAIRED = "nothing; the next run of the same search repairs it"

_REBUILT = "give the command of the search again: it makes the study anew from the recorded runs"

# Kinds of differences: what was found, whether it is a problem, and what to do about it.
_KINDS = {
    "stale": ("runs whose process is dead", False, _REPAIRED),
    "pending": ("runs whose end Optuna does not know yet", False, _REPAIRED),
    "outranked": (
        "runs that were considered stale but finished; they only count as cost",
        False,
        "nothing",
    ),
    "unrecorded": ("runs that are complete in Optuna's study alone", True, RESTORE),
    "contradiction": ("runs with other results in Optuna's study", True, RESTORE),
    "impossible": ("runs with values that no training can have measured", True, RESTORE),
    "study": ("searches with complete runs whose study is missing in Optuna", True, _REBUILT),
}


def check_database(url: str) -> list[Finding]:
    """Returns everything that is wrong with a database, or worth knowing.

    Raises DatabaseError if it cannot be reached, is missing or foreign, or is of another revision.
    """
    revision, engine = examined(url, may_create=False)
    with Database(url, engine) as database:
        if revision is None:
            fix = "search for a policy, which makes them"
            return [Finding("tables", True, "no tables of syncswitch", fix)]
        if revision not in (None, REVISION):
            what = f"tables of the former revision {revision}"
            fix = (
                "nothing; the next command that opens the database updates it; then check it again"
            )
            return [Finding("revision", False, what, fix)]
        # If the database itself is damaged, nothing else in it can be trusted.
        return list(database_findings(database)) or list(_search_findings(database))


def _search_findings(database: Database) -> Iterator[Finding]:
    names_by_kind = defaultdict(list)
    try:
        with readable(database.url):
            for kind, name in itertools.chain(_differences(database), _impossible(database)):
                names_by_kind[kind].append(name)
    except DatabaseError as error:
        yield Finding("values", True, str(error), RESTORE)
    for kind, (what, is_problem, fix) in _KINDS.items():
        if names := names_by_kind[kind]:
            yield Finding(kind, is_problem, listed(what, names), fix)


def _differences(database: Database) -> Iterator[tuple[str, str]]:
    store = TrialStore(database)
    with database.engine.connect() as connection:
        # Opening them would create them.
        storage = open_storage(database.url) if holds_studies(connection) else None
    studies = {study.study_name for study in storage.get_all_studies()} if storage else set()
    for search in store.searches():
        rows = store.numbered(search.study)
        for number, row in rows.items():
            if row.state == TrialState.RUNNING and not is_run_by_anyone(row):
                yield "stale", f"run {number} of {search.study}"
        if storage is not None and search.study in studies:
            study_id = storage.get_study_id_from_name(search.study)
            trials = storage.get_all_trials(study_id, deepcopy=False)
            for kind, number in _mismatches(rows, trials):
                yield kind, f"run {number} of {search.study}"
            told = len(trials)
        else:
            told = 0
        ended = [number for number, row in rows.items() if row.state == TrialState.COMPLETE]
        if max(ended, default=-1) >= told:
            yield "study", search.study


def _impossible(database: Database) -> Iterator[tuple[str, str]]:
    store, registry = TrialStore(database), PolicyRegistry(database)
    jobs: dict[str, tuple[Job, dict[int, tuple[Evaluation, ...]]]] = {}
    for row in store.each_trial(kinds=("search", "import", "use"), state=TrialState.COMPLETE):
        fingerprint = row.job.fingerprint
        if fingerprint not in jobs:
            known = registry.workload(fingerprint)
            assert known is not None  # a trial refers to it
            curves = store.curves(fingerprint) | store.curves(fingerprint, of_uses=True)
            jobs[fingerprint] = known.job, curves
        job, curves = jobs[fingerprint]
        identity = ScheduledJob(job, nested(Protocols, flat(row.job)))
        if fault := stored_fault(row, identity, curves.get(row.trial_id, ())):
            yield "impossible", f"run with trial_id {row.trial_id} ({fault})"


def _mismatches(
    rows: Mapping[int, StoredTrial], trials: Iterable[FrozenTrial]
) -> Iterator[tuple[str, int]]:
    """Yields kind and number of each run on which our tables and Optuna's disagree."""
    for trial in trials:
        row = rows.get(trial.number)
        state = row.state if row is not None else None
        if trial.state == OptunaState.COMPLETE:
            if row is None or state != TrialState.COMPLETE:
                yield "unrecorded", trial.number
            elif (trial.value, bool(trial.user_attrs.get("diverged"))) != (
                row.result.converged_accuracy,
                bool(row.result.diverged),
            ):
                yield "contradiction", trial.number
        elif trial.state == OptunaState.RUNNING and state in _ENDED:
            yield "pending", trial.number
        elif trial.state == OptunaState.FAIL and state == TrialState.COMPLETE:
            yield "outranked", trial.number
