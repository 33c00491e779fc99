from __future__ import annotations

import os
import resource
import signal
from datetime import datetime
from pathlib import Path

import optuna
import pytest
from sqlalchemy import Engine, create_engine, event, insert, inspect
from sqlalchemy.exc import IntegrityError

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import VERSION_TABLE, driver_url
from syncswitch.storage.records.flat import flat
from syncswitch.storage.tables.base import METADATA, TABLE_PREFIX
from syncswitch.storage.tables.policies import POLICIES
from tests.failing import fails
from tests.processes import exit_code_of
from tests.storage.conftest import POLICY, both_databases

pytestmark = both_databases


def test_every_table_and_constraint_has_a_name_that_optuna_and_postgresql_let_it_have() -> None:
    assert all(name.startswith(TABLE_PREFIX) for name in [*METADATA.tables, VERSION_TABLE])
    for table in METADATA.tables.values():
        names = [part.name for part in table.constraints] + [part.name for part in table.indexes]
        assert all(name and len(str(name)) <= 63 for name in names)


# Column, a value that it refuses, one that it takes.
IMPOSSIBLE: list[tuple[str, float | str | None, float | str | None]] = [
    ("switch_percent", -0.1, 0.0),
    ("switch_percent", 100.1, 100.0),
    ("switch_percent", None, 50.0),
    ("switch_percent", float("nan"), 50.0),
    ("confidence", -0.1, 0.0),
    ("confidence", 1.1, 1.0),
    ("confidence", 97.0, None),
    ("guarded", None, 1.0),
    ("min_kept_share", 95.0, 0.95),
    ("kept_share", 1.1, 1.0),
    ("delivered_share", 1.1, None),
    ("baseline_kept_share", -0.1, None),
    ("expected_time", -0.1, 1.1),
    ("speed_up_low", -0.1, 0.9),
    ("speed_up_high", -0.1, None),
]


@pytest.mark.usefixtures("store")
def test_the_database_itself_refuses_an_impossible_policy(database: Database) -> None:
    names = set(POLICIES.columns.keys()) - {"imported_at"}
    values = {column: flat(POLICY)[column] for column in names}
    values["created_at"] = datetime.fromisoformat(POLICY.created_at)

    def add(version: int, **changed: float | str | None) -> None:
        own = {"version": version, "study": f"digits-{version}"}
        with database.engine.begin() as connection:
            connection.execute(insert(POLICIES).values({**values, **own, **changed}))

    for version, (name, value, possible) in enumerate(IMPOSSIBLE, start=1):
        with pytest.raises(IntegrityError) as caught:
            add(version, **{name: value})
        assert name in str(caught.value.orig)  # the rest quotes the statement, with all names
        add(version, **{name: possible})


def our_tables_in(url: str) -> set[str]:
    engine = create_engine(driver_url(url))
    found = inspect(engine)
    names = {*found.get_table_names(), *found.get_view_names()}
    engine.dispose()
    return {name for name in names if name.startswith(TABLE_PREFIX)}


def test_who_is_killed_before_the_commit_leaves_the_database_as_it_was(url: str) -> None:
    optuna.create_study(storage=driver_url(url))

    def make_and_die() -> None:
        event.listen(Engine, "commit", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        open_database(url, create=True)

    assert exit_code_of(make_and_die) == -signal.SIGKILL
    assert our_tables_in(url) == set()
    open_database(url, create=True).close()
    open_database(url, create=False).close()


def test_who_has_no_room_says_so_and_leaves_the_file_as_it_was(sqlite_url: str, path: Path) -> None:
    optuna.create_study(storage=sqlite_url)

    def make_without_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 4, -1))
        with fails("disk-full"):
            open_database(sqlite_url, create=True)

    assert exit_code_of(make_without_room) == 0
    assert our_tables_in(sqlite_url) == set()
    open_database(sqlite_url, create=True).close()


def test_the_revision_is_asked_for_once(any_url: str) -> None:
    open_database(any_url, create=True).close()
    asked = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        open_database(any_url, create=False).close()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert sum("version_num" in one for one in asked) == 1
