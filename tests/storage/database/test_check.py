from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from syncswitch.storage.database.check import Finding, database_findings, listed
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import driver_url
from syncswitch.storage.trials.store import TrialStore
from tests.storage.conftest import both_databases

pytestmark = both_databases

Change = Callable[..., list[Finding]]
only_sqlite = pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)


def findings(database: Database) -> list[Finding]:
    found = list(database_findings(database))
    assert all(one.is_problem and one.fix and "\n" not in one.what for one in found)
    return found


@pytest.fixture
def changed(database: Database, store: TrialStore) -> Iterator[Change]:
    """Changes a database behind the back of all constraints; then looks at it."""
    with create_engine(driver_url(database.url)).connect() as connection:

        def change(*statements: str) -> list[Finding]:
            for statement in statements:
                connection.execute(text(statement))
            connection.commit()
            return findings(database)

        yield change


def test_of_a_sound_database_there_is_nothing_to_say(any_filled: Database) -> None:
    assert findings(any_filled) == []


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("DROP VIEW syncswitch_trial_facts", "syncswitch_trial_facts"),
        ("DROP INDEX uq_syncswitch_policies_study", "uq_syncswitch_policies_study"),
        ("DROP TABLE syncswitch_evaluations", "syncswitch_evaluations"),
        ("ALTER TABLE syncswitch_trials DROP COLUMN fork_from", "syncswitch_trials.fork_from"),
    ],
)
def test_what_is_missing_is_named(changed: Change, change: str, missing: str) -> None:
    (found,) = changed(change)
    assert (found.kind, found.what) == ("schema", f"missing or changed (1): {missing}")


def test_a_column_of_another_type_is_named(database: Database) -> None:
    if database.engine.dialect.name == "sqlite":
        pytest.skip("SQLite cannot change a column")
    with database.transaction() as connection:
        connection.execute(
            text("ALTER TABLE syncswitch_checkpoints ALTER COLUMN path TYPE varchar(9)")
        )
    (found,) = findings(database)
    assert found.what == "missing or changed (1): syncswitch_checkpoints.path"


def test_what_users_added_is_none_of_our_business(changed: Change, url: str) -> None:
    assert not changed(
        "CREATE TABLE my_notes (note TEXT)",
        "CREATE INDEX my_index ON syncswitch_trials (host)",
        "ALTER TABLE syncswitch_trials ADD COLUMN my_column TEXT",
        "CREATE VIEW my_view AS SELECT host FROM syncswitch_trials",
    )
    open_database(url, create=False).close()


@only_sqlite
def test_a_damaged_file_is_found(path: Path, database: Database, store: TrialStore) -> None:
    database.close()
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'ix_syncswitch_workloads_name'"
        (page,) = connection.execute(query).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\x99" * size
    path.write_bytes(content)
    (found,) = findings(database)
    assert found.kind == "integrity"


@only_sqlite
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE syncswitch_searches SET runs = 0", "CHECK constraint failed in syncswitch_sea"),
        (
            "INSERT INTO syncswitch_checkpoints VALUES (999, 50, '/50.npz', 'host-1')",
            "a row of syncswitch_checkpoints refers to a missing row of syncswitch_trials",
        ),
    ],
)
def test_rows_that_sqlite_should_have_refused_are_found(
    changed: Change, change: str, said: str
) -> None:
    (found,) = changed("PRAGMA ignore_check_constraints=ON", change)
    assert found.kind == "integrity"
    assert said in found.what


def test_examples_are_few() -> None:
    assert listed("things", ["a"]) == "things (1): a"
    assert listed("things", list("abcdefg")) == "things (7): a, b, c, d, e, ..."
