"""A database survives the death of the process that creates it, before any statement."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer, identity
from sqlalchemy import Engine, create_engine, event, text

from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Search
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import driver_url, holds_nothing

PLAN = SearchPlan(PaperStrategy(settings=2, runs=1))
DIED = 9
Connect = Callable[..., sqlite3.Connection]
_context = multiprocessing.get_context("fork")


def create(url: str) -> None:
    """Writes what a first start writes before its first run: all tables, and the search."""
    holds_nothing(url)
    with open_database(url, create=True) as database:
        Search(database, identity(), PLAN, GeneratedTrainer)


class Death:
    """Ends this process before a certain writing statement, at the latest after a commit.

    Attributes:
        committed: Number of such statements in committed transactions.
    """

    def __init__(self, before: int, committed: Any) -> None:
        self._before, self._committed = before, committed
        self._begun = 0

    def arm(self, url: str) -> None:
        if url.startswith("sqlite"):
            # Every connection: ours, Alembic's and Optuna's.
            for module in (sqlite3, sqlite3.dbapi2):
                module.connect = functools.partial(self._connect, module.connect)  # type: ignore
        else:
            event.listen(Engine, "before_cursor_execute", lambda *given: self.on(given[2]))
            event.listen(Engine, "commit", lambda _: self.on("COMMIT"))
            event.listen(Engine, "rollback", lambda _: self.on("ROLLBACK"))

    def _connect(self, connect: Connect, path: str, *args: Any, **kwargs: Any) -> Any:
        connection = connect(path, *args, **kwargs)
        if path != ":memory:":
            connection.set_trace_callback(self.on)
        return connection

    def on(self, statement: str) -> None:
        is_commit = statement == "COMMIT"
        if statement.split()[0].upper() in {"SELECT", "PRAGMA", "BEGIN", "--"}:
            return
        if statement == "ROLLBACK":
            self._begun = self._committed.value
            return
        if is_commit and self._begun == self._committed.value:
            return  # of a transaction that only read
        self._begun += 1
        is_first_after_commit = 0 < self._committed.value < self._begun
        if self._begun == self._before or is_first_after_commit:
            os._exit(DIED)
        if is_commit:
            self._committed.value = self._begun


def create_and_die(url: str, before: int, committed: Any) -> None:
    Death(before, committed).arm(url)
    create(url)


def deaths(url: str) -> int:
    """Starts again and again, each time a statement further; returns how many starts died."""
    committed = _context.Value("i", 0)
    before, died, are_tables_there = 1, 0, False
    while True:
        committed.value = 0
        process = _context.Process(target=create_and_die, args=(url, before, committed))
        process.start()
        process.join()
        if process.exitcode == 0:
            return died
        assert process.exitcode == DIED
        died += 1
        if committed.value:
            before, are_tables_there = 2, True  # before the first one it has just died
        else:
            # Our tables are one long transaction: a few deaths in it are enough.
            before += 1 if are_tables_there else 23


def schema(url: str) -> list[str]:
    query = "SELECT indexname FROM pg_indexes WHERE schemaname = 'public'"
    if url.startswith("sqlite"):
        query = "SELECT name FROM sqlite_master"
    engine = create_engine(driver_url(url))
    with engine.connect() as connection:
        found = list(connection.scalars(text(f"{query} ORDER BY 1")))
    engine.dispose()
    return found


def studies(url: str) -> int:
    engine = create_engine(driver_url(url))
    with engine.connect() as connection:
        count = connection.scalar(text("SELECT count(*) FROM studies"))
    engine.dispose()
    return int(count or 0)


@pytest.fixture
def undisturbed(any_url: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """A database of the same kind that was created undisturbed."""
    if any_url.startswith("sqlite"):
        url = f"sqlite:///{folder}/undisturbed.db"
    else:
        url = request.getfixturevalue("new_postgresql")()
    create(url)
    return url


# On a server Optuna's tables are one transaction, too.
@pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)
def test_a_death_before_any_statement_leaves_what_the_next_start_completes(
    any_url: str, undisturbed: str
) -> None:
    assert deaths(any_url) > 20
    assert schema(any_url) == schema(undisturbed)
    create(any_url)
    assert studies(any_url) == 1
    assert check_database(any_url) == []


def test_searchers_that_start_at_once_complete_what_others_left(
    any_url: str, undisturbed: str
) -> None:
    for round_ in range(2):
        committed = _context.Value("i", 0)
        doomed = [
            _context.Process(target=create_and_die, args=(any_url, before, committed))
            for before in range(2 + round_, 30, 13)
        ]
        for process in doomed:
            process.start()
        for process in doomed:
            process.join()
        # Those for whom the others left too little to do live.
        assert {process.exitcode for process in doomed} <= {0, DIED}
    living = [_context.Process(target=create, args=(any_url,)) for _ in range(3)]
    for process in living:
        process.start()
    for process in living:
        process.join()
    assert [process.exitcode for process in living] == [0] * 3
    assert schema(any_url) == schema(undisturbed)
    assert studies(any_url) == 1
    assert check_database(any_url) == []


def test_a_start_adds_the_index_that_a_kill_left_out(sqlite_url: str, path: Path) -> None:
    create(sqlite_url)
    before = schema(sqlite_url)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX ix_studies_study_name")
        connection.commit()
    create(sqlite_url)
    assert schema(sqlite_url) == before
    assert check_database(sqlite_url) == []
