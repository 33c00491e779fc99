"""A database survives the death of the process that creates it, before any statement."""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
import resource
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer, identity
from searches import together
from sqlalchemy import Engine, create_engine, make_url, text

from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Search
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import driver_url, holds_nothing
from syncswitch.storage.errors import FatalError
from syncswitch.storage.trials.store import TrialStore
from tests.failing import fails
from tests.processes import exit_code_of
from tests.records import changed

PLAN = SearchPlan(PaperStrategy(halvings=2, runs=1))
DIED = 9
Connect = Callable[..., sqlite3.Connection]


def create(url: str) -> None:
    """Writes what a first start writes before its first run: all tables, and the search."""
    holds_nothing(url)
    with open_database(url, create=True) as database:
        Search(database, identity(), PLAN, GeneratedTrainer)


class Death:
    """Ends this process before a certain writing statement, at the latest after a commit.

    Such statements in `committed` transactions are counted.
    """

    def __init__(self, before: int, committed: Any) -> None:
        self._before, self._committed = before, committed
        self._begun = 0

    def connect(self, real: Connect, path: str, *args: Any, **kwargs: Any) -> Any:
        connection = real(path, *args, **kwargs)
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
    death = Death(before, committed)
    # Every connection: ours, Alembic's and Optuna's.
    for module in (sqlite3, sqlite3.dbapi2):
        module.connect = functools.partial(death.connect, module.connect)  # type: ignore
    create(url)


def deaths(url: str) -> int:
    """Starts again and again, each time a statement further; returns how many starts died."""
    committed = multiprocessing.get_context("fork").Value("i", 0)
    before, died, are_tables_there = 1, 0, False
    while True:
        committed.value = 0
        exit_code = exit_code_of(functools.partial(create_and_die, url, before, committed))
        if exit_code == 0:
            return died
        assert exit_code == DIED
        died += 1
        if committed.value:
            before, are_tables_there = 2, True  # before the first one it has just died
        else:
            # Our tables are one long transaction: a few deaths in it are enough.
            before += 1 if are_tables_there else 23


def state_of(url: str) -> tuple[list[str], int]:
    """The tables and indexes, and the number of studies, of a sound database."""
    assert check_database(url) == []
    tables = "SELECT name FROM sqlite_master ORDER BY 1"
    if url.startswith("postgresql"):
        tables = "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
    engine = create_engine(driver_url(url))
    with engine.connect() as connection:
        names = list(connection.scalars(text(tables)))
        studies = int(connection.scalar(text("SELECT count(*) FROM studies")) or 0)
    engine.dispose()
    return names, studies


@pytest.fixture
def undisturbed(
    any_url: str, folder: Path, request: pytest.FixtureRequest
) -> tuple[list[str], int]:
    """A database of the same kind that was created undisturbed."""
    if any_url.startswith("sqlite"):
        url = f"sqlite:///{folder}/undisturbed.db"
    else:
        url = request.getfixturevalue("new_postgresql")()
    create(url)
    return state_of(url)


# On a server Optuna's tables are one transaction, too.
@pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)
def test_a_death_before_any_statement_leaves_what_the_next_start_completes(
    any_url: str, path: Path, undisturbed: tuple[list[str], int]
) -> None:
    assert deaths(any_url) > 20
    assert state_of(any_url) == undisturbed
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX ix_studies_study_name")
        connection.commit()
    create(any_url)
    assert state_of(any_url) == undisturbed


def test_searchers_that_start_at_once_create_one_database(
    any_url: str, undisturbed: tuple[list[str], int]
) -> None:
    together(lambda: create(any_url), 4)
    assert state_of(any_url) == undisturbed


@pytest.mark.parametrize(
    "settings", ["ENCODING SQL_ASCII", "ENCODING LATIN1", "German", "SQL, DMY", "Postgres, MDY"]
)
def test_a_server_may_have_any_encoding_and_style_of_dates(
    new_postgresql: Callable[..., str], administrator: Engine, settings: str
) -> None:
    url = new_postgresql()
    name = make_url(url).database
    with administrator.connect() as connection:
        if settings.startswith("ENCODING"):
            connection.execute(text(f"DROP DATABASE {name}"))
            locale = "LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            connection.execute(text(f"CREATE DATABASE {name} {settings} {locale}"))
        else:
            connection.execute(text(f"ALTER DATABASE {name} SET datestyle = '{settings}'"))
    with open_database(url, create=True) as database:
        search = Search(database, identity(), PLAN, GeneratedTrainer)
        assert search.run().policy.version == 1
        assert TrialStore(database).searches()
    assert list(check_database(url)) == []
    if "LATIN1" in settings:
        with open_database(url, create=True) as database:
            other = changed(identity(), name="\u0436")
            with fails("database-unusable", r"cannot hold a character: .* encoding UTF8"):
                Search(database, other, PLAN, GeneratedTrainer).run()


@pytest.mark.parametrize("kilobytes", [*range(0, 201, 40), 4000])
def test_a_disk_that_is_full_is_named(path: Path, sqlite_url: str, kilobytes: int) -> None:
    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, -1))
        said = f"{re.escape(str(path))}.*free some disk space"
        refused = pytest.raises(FatalError, match=said) if kilobytes <= 200 else nullcontext()
        with refused, open_database(sqlite_url, create=True) as database:
            Search(database, identity(), PLAN, GeneratedTrainer).run()

    assert exit_code_of(fill) == 0
