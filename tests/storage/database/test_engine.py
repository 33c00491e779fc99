from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from syncswitch.storage.database.engine import (
    CollisionError,
    Database,
    open_database,
    reason,
    translated,
)
from syncswitch.storage.database.inspection import driver_url
from syncswitch.storage.errors import (
    DatabaseAwayError,
    DatabaseError,
    FatalError,
    RetryableError,
    SyncSwitchError,
)
from tests.failing import fails
from tests.storage.conftest import AtOnce, both_databases

pytestmark = both_databases


def test_optuna_and_we_share_one_database(url: str) -> None:
    # Without the name of a driver SQLAlchemy 2.0 would take another one.
    storage = driver_url(url)
    optuna.create_study(storage=storage, study_name="first").add_trial(
        optuna.trial.create_trial(value=1.0)
    )
    with fails("nothing-recorded"):
        open_database(url, create=False)
    open_database(url, create=True).close()
    assert len(optuna.load_study(storage=storage, study_name="first").trials) == 1
    optuna.create_study(storage=storage, study_name="second")
    open_database(url, create=False).close()


@pytest.mark.usefixtures("our_tables")
def test_writers_of_one_file_wait_for_each_other(sqlite_url: str, at_once: AtOnce) -> None:
    """PostgreSQL locks rows instead: see the tests of the stores."""
    writes = 20

    def work(number: int) -> None:
        with open_database(sqlite_url, create=True) as database:
            for _ in range(writes):
                # Reads first: without the lock from the start, the write would find the
                # snapshot outdated, and SQLite would refuse it at once.
                with database.transaction() as connection:
                    count = connection.scalar(text("SELECT count FROM counter"))
                    connection.execute(text("UPDATE counter SET count = :new"), {"new": count + 1})

    with open_database(sqlite_url, create=True) as database, database.transaction() as connection:
        connection.execute(text("CREATE TABLE counter (count INTEGER)"))
        connection.execute(text("INSERT INTO counter VALUES (0)"))
    at_once(work, 4)
    with open_database(sqlite_url, create=False) as database, database.transaction() as connection:
        assert connection.scalar(text("SELECT count FROM counter")) == 4 * writes


def test_a_reader_keeps_its_snapshot_and_holds_up_no_writer(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(text("CREATE TABLE counter (count INTEGER)"))
    with database.transaction(read_only=True) as reader:
        assert reader.scalar(text("SELECT count(*) FROM counter")) == 0
        database.write(
            lambda connection: connection.execute(text("INSERT INTO counter VALUES (1)"))
        )
        assert reader.scalar(text("SELECT count(*) FROM counter")) == 0
    with database.transaction(read_only=True) as reader:
        assert reader.scalar(text("SELECT count(*) FROM counter")) == 1


def test_a_passing_fault_is_tried_again_in_a_new_transaction(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(text("CREATE TABLE counter (count INTEGER)"))
    connections: list[Connection] = []

    def operation(connection: Connection) -> str:
        connections.append(connection)
        connection.execute(text("INSERT INTO counter VALUES (1)"))
        if len(connections) < 3:
            raise RetryableError("lost")
        return "done"

    assert database.write(operation) == "done"
    with database.transaction(read_only=True) as connection:
        assert connection.scalar(text("SELECT count(*) FROM counter")) == 1


def test_a_fault_that_does_not_pass_is_raised_in_the_end(database: Database) -> None:
    def operation(connection: Connection) -> None:
        raise RetryableError("lost")

    with pytest.raises(RetryableError, match="lost"):
        database.write(operation, patience_seconds=0)


@pytest.mark.parametrize("read_only", [False, True])
def test_what_sqlite_committed_survives_a_power_failure(sqlite_url: str, read_only: bool) -> None:
    full = 2  # with the write-ahead log, less may lose the last commits
    with (
        open_database(sqlite_url, create=True) as database,
        database.transaction(read_only=read_only) as connection,
    ):
        assert connection.scalar(text("PRAGMA synchronous")) == full
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"


only_postgresql = pytest.mark.parametrize("any_url", ["postgresql"], indirect=True)


def fault_of(database: Database, statement: str, **values: object) -> SyncSwitchError:
    with pytest.raises(SyncSwitchError) as caught, database.transaction() as connection:
        connection.execute(text(statement), values)
    assert "\n" not in str(caught.value)
    assert "SQL:" not in str(caught.value)
    return caught.value


SAID_BY_A_SERVER: dict[str, type[SyncSwitchError]] = {
    "40001": DatabaseAwayError,  # serialization failure
    "40P01": DatabaseAwayError,  # deadlock
    "57P01": DatabaseAwayError,  # the administrator shut it down
    "53300": DatabaseAwayError,  # too many connections
    "23505": CollisionError,
    "23514": FatalError,  # check violation
    "22003": FatalError,  # number out of range
    "22P05": DatabaseError,  # a character that its encoding lacks
    "53100": FatalError,  # disk full
    "42501": DatabaseError,  # no permission
}


@only_postgresql
def test_the_class_of_what_a_server_says(database: Database) -> None:
    for state, kind in SAID_BY_A_SERVER.items():
        statement = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
        assert type(fault_of(database, statement)) is kind, state
    for kind, value in (("int", 2**31), ("int", 2**63), ("text", "\0")):
        fault = fault_of(database, f"SELECT CAST(:value AS {kind})", value=value)
        assert type(fault) is FatalError
        assert "refuses these values" in str(fault)


@only_postgresql
def test_a_connection_that_is_lost_is_a_passing_fault(database: Database) -> None:
    fault = fault_of(database, "SELECT pg_terminate_backend(pg_backend_pid())")
    assert type(fault) is DatabaseAwayError
    with database.transaction() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


def test_a_statement_that_cannot_work_names_the_database(database: Database) -> None:
    fault = fault_of(database, "SELECT * FROM no_such_table")
    assert type(fault) is DatabaseError
    assert "no_such_table" in str(fault)
    assert "check its permissions" in str(fault)


def test_a_row_that_is_there_is_refused_on_each_kind(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(text("CREATE TABLE once (number INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO once VALUES (1)"))

    with pytest.raises(FatalError, match="refuses these values"):
        database.write(lambda connection: connection.execute(text("INSERT INTO once VALUES (1)")))


@pytest.mark.usefixtures("our_tables")
def test_a_file_that_another_writes_to_is_busy(sqlite_url: str, path: Path) -> None:
    open_database(sqlite_url, create=True).close()
    engine = create_engine(driver_url(sqlite_url), connect_args={"timeout": 0})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DBAPIError) as caught, engine.begin() as connection:
            connection.execute(text("DELETE FROM syncswitch_trials"))
    engine.dispose()
    assert reason(caught.value) == "database is locked"
    assert type(translated(caught.value, "here")) is DatabaseAwayError
