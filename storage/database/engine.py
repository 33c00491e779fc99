"""Opens databases, and runs each operation on them as one transaction."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row, Select, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
)

from syncswitch.storage.database.defaults import RESTART_SECONDS
from syncswitch.storage.database.inspection import (
    ANOTHER,
    REVISION,
    VERSION_TABLE,
    check_sqlite_file,
    connect_arguments,
    our_revision,
    parse_url,
    shown,
    sqlite_path,
)
from syncswitch.storage.errors import (
    SEARCH_FIRST,
    Command,
    CommandHint,
    DatabaseAwayError,
    DatabaseError,
    FatalError,
    RetryableError,
    SyncSwitchError,
    one_line,
)

_WRITER = "syncswitch_writer"  # option of an engine whose transactions may write

ROWS_AT_ONCE = 10_000
"""Number of rows in a block, which takes a few megabytes."""

_ATTEMPTS = 4
_BUSY_SECONDS = 30.0
_ADVISORY_LOCK = 0x53594E43  # any number, but the same in all versions of this software
_CACHE_KIBIBYTES = 64 * 1024  # an upper limit: summaries of 100,000 trials read them more than once
# SQLSTATEs of transactions that met (another try helps), a duplicate row, and a full disk.
_MEETING = frozenset({"40001", "40P01"})
_UNIQUE = "23505"
_DISK_FULL = "53100"
_UNTRANSLATABLE = "22P05"  # by the encoding of the database
_NO_ROOM = re.compile("disk is full|disk I/O error")  # of SQLite

_T = TypeVar("_T")


class CollisionError(RetryableError):
    """A row with this key exists: another writer added it just now, or long ago."""


def translated(error: DBAPIError, place: str) -> SyncSwitchError:
    """Returns our error for one of a driver; `place` names the database in messages."""
    why = reason(error)
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    is_server = not isinstance(error.orig, sqlite3.Error)
    is_lost = error.connection_invalidated or (is_server and isinstance(error, OperationalError))
    if state == _UNIQUE:
        return CollisionError(f"the database {place} refuses these values: {why}")
    if (is_lost and state != _DISK_FULL) or state in _MEETING or "is locked" in why:
        return DatabaseAwayError(f"the database {place} is busy or was lost: {why}")
    if state == _DISK_FULL or (not is_server and _NO_ROOM.search(why)):
        return FatalError(
            f"the database {place} cannot be written: {why}",
            remedy=("free some disk space there", ANOTHER),
            code="disk-full",
        )
    if state == _UNTRANSLATABLE:
        return DatabaseError(
            f"the database {place} cannot hold a character: {why}; choose another name, or a"
            " database with the encoding UTF8"
        )
    if isinstance(error, (IntegrityError, DataError)):
        return FatalError(f"the database {place} refuses these values: {why}")
    return DatabaseError(
        f"the database {place} cannot be used: {why}",
        remedy=("check its permissions, free space and server", ANOTHER),
    )


def known_error(error: BaseException | None, place: str) -> SyncSwitchError | None:
    """Returns our error for one that a driver raised below another library; None for any other."""
    if isinstance(error, sqlite3.OperationalError):
        error = OperationalError(None, None, error)
    return translated(error, place) if isinstance(error, DBAPIError) else None


def reason(error: DBAPIError) -> str:
    """Returns the message of the driver in one line."""
    return " ".join(str(error.orig).split())


def _new_engine(parsed: URL, url: str) -> Engine:
    """Makes an engine for a URL; connects to nothing yet.

    Raises DatabaseError if the driver is missing, or cannot be used.
    """
    is_sqlite = parsed.get_backend_name() == "sqlite"
    arguments: dict[str, Any] = (
        {"connect_args": {"timeout": _BUSY_SECONDS}}
        if is_sqlite
        else {"pool_pre_ping": True, "connect_args": connect_arguments(parsed)}
    )
    try:
        if parsed.get_dialect().is_async:
            raise DatabaseError(
                f"{shown(url)} names a driver for asynchronous programs;"
                f" leave it out: {parsed.get_backend_name()}://...",
                code="database-url-invalid",
            )
        engine = create_engine(parsed, **arguments)
    except NoSuchModuleError as error:
        raise DatabaseError(
            f"{shown(url)} needs a driver that is missing ({error}); check the part before ://",
            code="package-missing",
        ) from error
    except ImportError as error:
        module = error.name or parsed.get_driver_name()
        package = "'syncswitch[postgresql]'" if module == "psycopg" else module
        raise DatabaseError(
            f"{shown(url)} needs a driver that is missing ({one_line(error)});"
            f" `pip install {package}`",
            code="package-missing",
        ) from error
    if is_sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        use_iso_dates(engine)
    return engine


def use_iso_dates(engine: Engine) -> None:
    """Has a server send times as its driver reads them, whatever its own style of dates."""

    def prepare(connection: Any, _: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET datestyle TO ISO")
        connection.commit()

    event.listen(engine, "connect", prepare)


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` sends BEGIN instead of the driver
    connection.execute("PRAGMA foreign_keys=ON")
    # Otherwise some builds of SQLite would lose the last commits when the power fails.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIBIBYTES}")


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(_WRITER)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _use_write_ahead_log(engine: Engine) -> None:
    """Switches a file, for good, to a mode in which readers and a writer work side by side.

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
            if isinstance(known := known_error(error, str(path)), FatalError):
                raise known from error
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise DatabaseError(
                    f"cannot write to the database {path}: {error}",
                    remedy=("make the file and its directory writable", ANOTHER),
                ) from error
        time.sleep(random.uniform(0.01, 0.1))


class Database:
    """An open database whose tables have the current revision. A context manager.

    Threads may share it; a process and its fork may not.

    Attributes:
        url: The URL as given, password included.
        engine: An engine for reading; its transactions do not lock out writers.
    """

    def __init__(self, url: str, engine: Engine) -> None:
        self.url = url
        # All statements of a transaction see the same rows, as they always do on SQLite.
        is_server = engine.dialect.name == "postgresql"
        snapshot = {"isolation_level": "REPEATABLE READ"} if is_server else {}
        self.engine = engine.execution_options(**snapshot)
        self._writer = engine.execution_options(**{_WRITER: True})

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Connection]:
        """Runs one transaction: commits it at the end, and rolls it back after an exception.

        On SQLite a transaction that may write waits for other writers at its start: one that
        started by reading could find its snapshot out of date, and would have to fail.

        Raises:
            SyncSwitchError: The database refused; the class says whether to try again.
        """
        engine = self.engine if read_only else self._writer
        try:
            with engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise translated(error, shown(self.url)) from error
        except (ValueError, TypeError) as error:  # from the conversion of columns to Python values
            raise DatabaseError(
                f"{shown(self.url)} holds a value that cannot be read ({one_line(error)})",
                remedy=CommandHint(Command.CHECK_DATABASE),
                code="database-damaged",
            ) from error

    def rows(self, query: Select[Any]) -> Sequence[Any]:
        """Returns all rows of a query. Raises SyncSwitchError as `transaction` does."""
        with self.transaction(read_only=True) as connection:
            return connection.execute(query).all()

    def row_blocks(
        self, query: Select[Any], rows_at_once: int = ROWS_AT_ONCE
    ) -> Iterator[Sequence[Row[Any]]]:
        """Yields the rows of a query in blocks, in bounded memory; all are of the same moment.

        The transaction is open until the last block is taken, or the iterator closed. The last
        block may be smaller; without rows there is none.
        """
        with self.transaction(read_only=True) as connection:
            # A server also sends only so many rows at a time.
            options = {"yield_per": rows_at_once}
            yield from connection.execute(query, execution_options=options).partitions()

    def write(
        self, operation: Callable[[Connection], _T], *, patience_seconds: float = RESTART_SECONDS
    ) -> _T:
        """Runs an operation as one transaction, and again in a new one after a passing fault.

        Args:
            operation: The operation, which may be called several times. Its earlier changes are
                rolled back, but a server may also be lost after it committed: so repeating it must
                do no harm.
            patience_seconds: How long to wait for a database that is busy or lost.

        Raises:
            SyncSwitchError: The database refused; the class says whether to try again.
        """
        deadline = time.monotonic() + patience_seconds
        attempt = 0
        while True:
            attempt += 1
            try:
                with self.transaction() as connection:
                    return operation(connection)
            except CollisionError as error:
                if attempt >= _ATTEMPTS:  # the other writer has long finished
                    raise FatalError(str(error)) from error
            except RetryableError:
                if attempt >= _ATTEMPTS and time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.05, 0.2) * min(attempt, _ATTEMPTS))

    def close(self) -> None:
        """Closes all connections; may be called twice."""
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_database(url: str, *, create: bool) -> Database:
    """Opens the database, and makes our tables in it if `create` and there are none.

    Nothing is written to a database that is refused.

    Args:
        url: SQLAlchemy URL of a SQLite file or a PostgreSQL database.
        create: Whether to make a missing file or missing tables.

    Raises:
        DatabaseError: It cannot be reached or read, belongs to another application, is of another
            revision, or (without `create`) is missing.
    """
    revision, engine = examined(url, may_create=create)
    try:
        if revision is None:
            if not create:
                raise DatabaseError(
                    f"{shown(url)} holds no results of syncswitch yet",
                    remedy=SEARCH_FIRST,
                    code="nothing-recorded",
                )
            _make_tables(engine, shown(url))
        elif revision != REVISION:
            _upgrade(engine, shown(url))
    except BaseException:
        engine.dispose()
        raise
    return Database(url, engine)


def _upgrade(engine: Engine, place: str) -> None:
    """Brings tables of a former revision up to date.

    If several processes try at once, one does it and the others wait.
    """
    from syncswitch.storage.database.migrations import upgrade

    try:
        with engine.execution_options(**{_WRITER: True}).begin() as connection:
            _wait_for_others(connection)
            if our_revision(connection, place) != REVISION:
                upgrade(connection)
    except DBAPIError as error:
        raise translated(error, place) from error


def _wait_for_others(connection: Connection) -> None:
    """Keeps others from changing the tables until the transaction ends; SQLite's own lock does."""
    if connection.dialect.name != "sqlite":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))


def opened(database: Database | str) -> AbstractContextManager[Database]:
    """Opens an existing database for functions that take it open or as its URL.

    A database that was open stays open at the end. Raises DatabaseError as `open_database`.
    """
    if isinstance(database, str):
        return open_database(database, create=False)
    return nullcontext(database)


def examined(url: str, *, may_create: bool) -> tuple[str | None, Engine]:
    """Returns the revision of our tables, and an engine that the caller disposes of.

    The revision is None where a database does not hold them.

    With `may_create` a SQLite file may be missing. Raises DatabaseError if the database cannot be
    reached or read, belongs to another application, or is of another revision.
    """
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None:
        check_sqlite_file(path, may_create=may_create)
    engine = _new_engine(parsed, url)
    try:
        with engine.connect() as connection:
            return our_revision(connection, shown(url)), engine
    except DBAPIError as error:
        engine.dispose()
        if path is not None and not os.access(path.parent, os.W_OK):
            raise DatabaseError(
                f"cannot open the database {path}: SQLite has to write beside it even to read it,"
                f" and {path.parent} cannot be written to; copy the file to a folder of your own"
            ) from error
        raise DatabaseError(
            f"cannot open the database {shown(url)}: {reason(error)}",
            remedy=("check that it is whole and can be reached", ANOTHER),
        ) from error
    except (TypeError, ValueError) as error:  # of a driver, from an option that it cannot read
        engine.dispose()
        raise DatabaseError(
            f"the driver cannot open the database {shown(url)}: {one_line(error)}",
            remedy=("check the options after the ?", ANOTHER),
            code="database-url-invalid",
        ) from error
    except BaseException:
        engine.dispose()
        raise


def _make_tables(engine: Engine, place: str) -> None:
    """Makes all tables and the view, or nothing.

    If several processes try at once, one makes them and the others wait.
    """
    import syncswitch.storage.tables.indexes  # noqa: F401 (completes METADATA)
    from syncswitch.storage.tables.base import METADATA
    from syncswitch.storage.tables.trial_facts import create_view

    try:
        if engine.dialect.name == "sqlite":
            _use_write_ahead_log(engine)
        with engine.execution_options(**{_WRITER: True}).begin() as connection:
            _wait_for_others(connection)
            if our_revision(connection, place) is not None:
                return
            METADATA.create_all(connection)
            connection.exec_driver_sql(create_view())
            connection.exec_driver_sql(
                f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL,"
                f" CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
            )
            connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES ('{REVISION}')")
    except DBAPIError as error:
        raise translated(error, place) from error
