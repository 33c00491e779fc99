from __future__ import annotations

import optuna
import pytest
from sqlalchemy import Connection, text

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import DatabaseError, RetryableError
from tests.storage.conftest import AtOnce, both_databases

pytestmark = both_databases


def test_optuna_and_we_share_one_database(url: str) -> None:
    optuna.create_study(storage=url, study_name="first").add_trial(
        optuna.trial.create_trial(value=1.0)
    )
    with pytest.raises(DatabaseError, match="no results of syncswitch yet"):
        open_database(url, create=False)
    open_database(url, create=True).close()
    assert len(optuna.load_study(storage=url, study_name="first").trials) == 1
    optuna.create_study(storage=url, study_name="second")
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
