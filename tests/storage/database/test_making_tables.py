from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import Engine, create_engine, event, insert, inspect
from sqlalchemy.exc import IntegrityError

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import VERSION_TABLE, driver_url
from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.tables.base import METADATA, TABLE_PREFIX
from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from tests.conftest import make_database
from tests.storage.conftest import both_databases

pytestmark = both_databases


def test_the_view_has_the_columns_that_are_described(database: Database) -> None:
    columns = inspect(database.engine).get_columns(TRIAL_FACTS.name)
    assert [column["name"] for column in columns] == TRIAL_FACTS.columns.keys()


def test_no_table_can_meet_one_of_optuna() -> None:
    names = [*METADATA.tables, VERSION_TABLE]
    assert all(name.startswith(TABLE_PREFIX) for name in names)


def test_every_constraint_has_a_name_that_postgresql_can_hold() -> None:
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
    ("keep", 95.0, 0.95),
    ("kept_share", 1.1, 1.0),
    ("delivered_share", 1.1, None),
    ("baseline_kept_share", -0.1, None),
    ("expected_time", -0.1, 1.1),
    ("speed_up_low", -0.1, 0.9),
    ("speed_up_high", -0.1, None),
]


@pytest.mark.usefixtures("store")
def test_the_database_itself_refuses_an_impossible_policy(
    database: Database, policy: TimingPolicy
) -> None:
    names = set(POLICIES.columns.keys()) - {"imported_at"}
    values = {column: getattr(policy, column) for column in names}
    values["created_at"] = datetime.fromisoformat(policy.created_at)

    def add(version: int, **changed: float | str | None) -> None:
        own = {"version": version, "study": f"digits-{version}"}
        with database.engine.begin() as connection:
            connection.execute(insert(POLICIES).values({**values, **own, **changed}))

    for version, (name, value, possible) in enumerate(IMPOSSIBLE, start=1):
        with pytest.raises(IntegrityError) as caught:
            add(version, **{name: value})
        assert name in str(caught.value.orig)  # the rest quotes the statement, with all names
        add(version, **{name: possible})


@contextmanager
def at_statement(start: str, act: Callable[[], None]) -> Iterator[None]:
    """Acts before each statement of this process that starts so; `COMMIT` counts as one."""

    def execute(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.lstrip().startswith(start):
            act()

    def commit(_: Any) -> None:
        if start == "COMMIT":
            act()

    event.listen(Engine, "before_cursor_execute", execute)
    event.listen(Engine, "commit", commit)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", execute)
        event.remove(Engine, "commit", commit)


def child(work: Callable[[], object]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


def make_study(url: str) -> None:
    storage = optuna.storages.RDBStorage(driver_url(url))
    optuna.create_study(storage=storage, study_name="theirs")
    storage.remove_session()
    storage.engine.dispose()  # a server copies only what nobody uses


@pytest.fixture(scope="session")
def optuna_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with a study of Optuna, to be copied."""
    path = tmp_path_factory.mktemp("optuna") / "optuna.db"
    make_study(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def optuna_template(administrator: Engine) -> str:
    """Name of a database with a study of Optuna, to be copied."""
    make_study(make_database(administrator, "with_a_study"))
    return "with_a_study"


@pytest.fixture
def optunas(url: str, path: Path, request: pytest.FixtureRequest) -> str:
    """A database with a study of Optuna and none of our tables."""
    if url.startswith("sqlite"):
        shutil.copyfile(request.getfixturevalue("optuna_file"), path)
        return url
    template = request.getfixturevalue("optuna_template")
    copied: str = request.getfixturevalue("new_postgresql")(template)
    return copied


def our_tables_in(url: str) -> set[str]:
    engine = create_engine(driver_url(url))
    found = inspect(engine)
    names = {*found.get_table_names(), *found.get_view_names()}
    engine.dispose()
    return {name for name in names if name.startswith(TABLE_PREFIX)}


def make_tables(url: str) -> None:
    open_database(url, create=True).close()


# The second one after all statements: whatever was kept of one would be there.
@pytest.mark.parametrize("place", ["CREATE INDEX", "COMMIT"])
def test_who_is_killed_meanwhile_leaves_the_database_as_it_was(optunas: str, place: str) -> None:
    def make_and_die() -> None:
        with at_statement(place, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            make_tables(optunas)

    assert child(make_and_die) == -signal.SIGKILL
    assert our_tables_in(optunas) == set()
    make_tables(optunas)
    open_database(optunas, create=False).close()


def test_who_has_no_room_says_so_and_leaves_the_file_as_it_was(sqlite_url: str, path: Path) -> None:
    optuna.create_study(storage=sqlite_url)

    def make_without_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 4, -1))
        with pytest.raises(DatabaseError, match=r"cannot be used.*free space"):
            make_tables(sqlite_url)

    assert child(make_without_room) == 0
    assert our_tables_in(sqlite_url) == set()
    make_tables(sqlite_url)
