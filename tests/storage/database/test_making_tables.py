from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import Engine, create_engine, event, insert, inspect, text
from sqlalchemy.exc import IntegrityError

from syncswitch.storage.database import engine as engine_module
from syncswitch.storage.database.engine import Database, examined, open_database
from syncswitch.storage.database.inspection import (
    FORMER_REVISION,
    REVISION,
    VERSION_TABLE,
    driver_url,
)
from syncswitch.storage.errors import FatalError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.flat import flat
from syncswitch.storage.tables.base import METADATA, TABLE_PREFIX
from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.trials.store import TrialStore
from tests.processes import exit_code_of
from tests.storage.conftest import IDENTITY, POLICY, SEARCH, AtOnce, both_databases

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
        with pytest.raises(FatalError, match=r"cannot be written.*free some disk space"):
            open_database(sqlite_url, create=True)

    assert exit_code_of(make_without_room) == 0
    assert our_tables_in(sqlite_url) == set()
    open_database(sqlite_url, create=True).close()


def make_former(url: str, *statements: str) -> None:
    """Makes the tables of a database those of the revision before."""
    engine = create_engine(driver_url(url))
    with engine.begin() as connection:
        for statement in (
            "ALTER TABLE syncswitch_searches RENAME COLUMN halvings TO settings",
            "ALTER TABLE syncswitch_policies RENAME COLUMN min_kept_share TO keep",
            *statements,
            f"UPDATE {VERSION_TABLE} SET version_num = '{FORMER_REVISION}'",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_of_those_who_open_the_revision_before_at_once_one_updates_it(
    url: str, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_database(url, create=True):
        pass
    make_former(url)
    looked = multiprocessing.get_context("fork").Barrier(3)

    def open_and_count(_: int) -> int:
        # All have seen the former revision before anyone changes it.
        def examined_by_all(*args: Any, **options: Any) -> Any:
            found = examined(*args, **options)
            looked.wait(30)
            return found

        monkeypatch.setattr(engine_module, "examined", examined_by_all)
        with open_database(url, create=False) as database:
            return len(TrialStore(database).searches())

    assert at_once(open_and_count, 3) == [0, 0, 0]


def test_tables_of_the_revision_before_are_brought_up_to_date(any_url: str) -> None:
    """In these some options of a search had other names."""
    search = replace(
        SEARCH, strategy="sweep", options={"min_kept_share": 0.9, "expected_runs": 7, "budget": 4}
    )
    with open_database(any_url, create=True) as database:
        TrialStore(database).register(IDENTITY, "job", search)
        PolicyRegistry(database).publish(replace(POLICY, min_kept_share=0.9))
    make_former(
        any_url,
        "UPDATE syncswitch_searches SET strategy = 'comparison'",
        """UPDATE syncswitch_searches SET options = '{"keep": 0.9, "uses": 7, "budget": 4}'""",
    )
    engine = create_engine(driver_url(any_url))
    for _ in range(2):
        with open_database(any_url, create=False) as database:
            assert TrialStore(database).searches() == [search]
            assert [one.min_kept_share for one in PolicyRegistry(database).policies()] == [0.9]
        with engine.connect() as connection:
            revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))
            assert revision.scalar() == REVISION
    engine.dispose()


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
