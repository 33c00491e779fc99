"""Connections as our transactions need them, on each kind of database."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import NoSuchModuleError

from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import DatabaseError, one_line

WRITER = "syncswitch_writer"
"""Execution option of an engine whose transactions may write."""

_BUSY_SECONDS = 30.0
_CACHE_KIBIBYTES = 64 * 1024  # at most: summaries of 100,000 trials read them more than once
_EXTRAS = {"psycopg": "'syncswitch[postgresql]'"}


def new_engine(parsed: URL, url: str) -> Engine:
    """An engine for a URL with its driver; connects to nothing yet.

    Raises DatabaseError where the driver is missing, or cannot be used.
    """
    is_sqlite = parsed.get_backend_name() == "sqlite"
    arguments: dict[str, Any] = (
        {"connect_args": {"timeout": _BUSY_SECONDS}} if is_sqlite else {"pool_pre_ping": True}
    )
    try:
        if parsed.get_dialect().is_async:
            raise DatabaseError(
                f"{shown(url)} names a driver for asynchronous programs;"
                f" leave it out: {parsed.get_backend_name()}://..."
            )
        engine = create_engine(parsed, **arguments)
    except NoSuchModuleError as error:
        raise DatabaseError(
            f"{shown(url)} needs a driver that is missing ({error}); check the part before ://"
        ) from error
    except ImportError as error:
        module = error.name or parsed.get_driver_name()
        raise DatabaseError(
            f"{shown(url)} needs a driver that is missing ({one_line(error)});"
            f" `pip install {_EXTRAS.get(module, module)}`"
        ) from error
    if is_sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver must not send BEGIN: `_begin_sqlite` does
    connection.execute("PRAGMA foreign_keys=ON")
    # Some builds of SQLite would lose the last commits when the power fails.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIBIBYTES}")


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(WRITER)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def use_write_ahead_log(engine: Engine) -> None:
    """Lets readers and a writer work side by side; the file remembers it.

    SQLite refuses this change at once, without waiting, while another process uses the file.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    path = engine.url.database or ""
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise DatabaseError(
                    f"cannot write to the database {path}: {error}; make the file and its"
                    f" directory writable, or name another with --storage URL"
                ) from error
        time.sleep(random.uniform(0.01, 0.1))
