"""Opens the database, and runs each operation on it as one transaction.

Alembic is imported only where tables are made or changed: a lookup has to answer at once.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError, OperationalError
from sqlalchemy.orm import Session

from syncswitch.storage.defaults import DEFAULT_URL, ENVIRONMENT_VARIABLE
from syncswitch.storage.errors import DatabaseError, FatalError, RetryableError, SyncSwitchError
from syncswitch.storage.inspection import (
    Content,
    check_sqlite_file,
    content_of,
    parse_url,
    shown,
    sqlite_path,
)

__all__ = [
    "DEFAULT_URL",
    "ENVIRONMENT_VARIABLE",
    "Database",
    "open_database",
    "upgrade_database",
]


_BUSY_SECONDS = 30.0
_ATTEMPTS = 4
_WRITER = "syncswitch_writer"
_ADVISORY_LOCK = 0x53594E43  # any number that all versions of this software share

# SQLSTATEs that a new transaction cures: serialization, deadlock, a row that another just inserted.
_PASSING_STATES = frozenset({"40001", "40P01", "23505"})

_EXTRAS = {"psycopg": "'syncswitch[postgresql]'"}

_T = TypeVar("_T")


class Database:
    """An open database whose tables have the current revision. A context manager.

    Threads may share it; a process and its fork may not.

    Attributes:
        url: As given, password included.
        engine: For reading; its transactions do not lock out writers.
    """

    def __init__(self, url: str, engine: Engine) -> None:
        self.url = url
        self.engine = engine
        self._writer = engine.execution_options(**{_WRITER: True})

    @contextmanager
    def session(self, *, read_only: bool = False) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back by an exception.

        On SQLite a transaction that may write waits for the others from its start, as one that
        starts by reading could find its snapshot out of date and would have to fail.

        Raises:
            SyncSwitchError: The database refused; the class says whether to try again.
        """
        engine = self.engine if read_only else self._writer
        try:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                yield session
        except DBAPIError as error:
            raise _translated(error, shown(self.url)) from error

    def write(self, operation: Callable[[Session], _T]) -> _T:
        """Runs an operation as one transaction, and anew in a new one after a passing fault.

        Args:
            operation: Called once or more; what it did before is rolled back, except that a
                server may be lost after it committed. So repeating it must do no harm.
        """
        for attempt in range(1, _ATTEMPTS):
            try:
                with self.session() as session:
                    return operation(session)
            except RetryableError:
                time.sleep(random.uniform(0.05, 0.2) * attempt)
        with self.session() as session:
            return operation(session)

    def close(self) -> None:
        """Closes all connections; may be called twice."""
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_database(url: str, *, create: bool) -> Database:
    """Opens the database, and makes our tables in it if `create` and there are none.

    Nothing is written to a database that is refused.

    Args:
        url: SQLAlchemy URL of a SQLite file or a PostgreSQL database.
        create: Whether a missing file or missing tables are made.

    Raises:
        DatabaseError: It cannot be reached or read, or is foreign, older, newer or (without
            `create`) missing.
    """
    content, engine = _examined(url, may_create=create)
    try:
        if content is Content.OLDER:
            raise DatabaseError(
                f"{shown(url)} was made by an older syncswitch; run"
                f" `syncswitch-search db upgrade --storage {shown(url)}` (copy the database first)"
            )
        if content is Content.NOTHING:
            if not create:
                raise DatabaseError(
                    f"{shown(url)} holds no results of syncswitch yet;"
                    f" `syncswitch-search run WORKLOAD` adds them"
                )
            _migrate(engine, shown(url))
    except BaseException:
        engine.dispose()
        raise
    return Database(url, engine)


def upgrade_database(url: str) -> None:
    """Brings our tables to the current revision; does nothing where they have it.

    Raises:
        DatabaseError: It is missing, foreign or newer.
    """
    content, engine = _examined(url, may_create=False)
    try:
        if content is not Content.CURRENT:
            _migrate(engine, shown(url))
    finally:
        engine.dispose()


def _examined(url: str, *, may_create: bool) -> tuple[Content, Engine]:
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None:
        check_sqlite_file(path, may_create=may_create)
    engine = _engine(parsed, url)
    try:
        with engine.connect() as connection:
            return content_of(connection, shown(url)), engine
    except DBAPIError as error:
        engine.dispose()
        raise DatabaseError(
            f"cannot open the database {shown(url)}: {_reason(error)};"
            f" check that it is whole and can be reached, or name another with --storage URL"
        ) from error
    except BaseException:
        engine.dispose()
        raise


def _engine(parsed: URL, url: str) -> Engine:
    is_sqlite = parsed.get_backend_name() == "sqlite"
    arguments: dict[str, Any] = (
        {"connect_args": {"timeout": _BUSY_SECONDS}} if is_sqlite else {"pool_pre_ping": True}
    )
    try:
        engine = create_engine(parsed, **arguments)
    except (ImportError, NoSuchModuleError) as error:
        name = getattr(error, "name", None)
        fix = f"`pip install {_EXTRAS.get(name, name)}`" if name else "check the part before ://"
        raise DatabaseError(
            f"{shown(url)} needs a driver that is missing ({error}); {fix}"
        ) from error
    if is_sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver must not send BEGIN: `_begin_sqlite` does
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(_WRITER)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _migrate(engine: Engine, place: str) -> None:
    """Makes or upgrades the tables; of several processes that try, one does and the others wait."""
    from syncswitch.storage import migrations

    try:
        if engine.dialect.name == "sqlite":
            _use_write_ahead_log(engine)
        with _migration(engine) as connection:
            if content_of(connection, place) is not Content.CURRENT:
                migrations.upgrade(connection, place)
    except DBAPIError as error:
        raise _translated(error, place) from error


@contextmanager
def _migration(engine: Engine) -> Iterator[Connection]:
    """A transaction that no other migration shares."""
    with engine.execution_options(**{_WRITER: True}).connect() as connection:
        if engine.dialect.name == "postgresql":
            with connection.begin():
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
                yield connection
            return
        # SQLite makes a changed table anew, which would take the rows that refer to it along.
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("PRAGMA foreign_keys=OFF")
        try:
            with connection.begin():
                yield connection
                _check_references(connection)
        finally:
            driver.execute("PRAGMA foreign_keys=ON")


def _check_references(connection: Connection) -> None:
    lost = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if lost is not None:
        raise FatalError(f"a row of {lost[0]} refers to one of {lost[2]} that is not there")


def _use_write_ahead_log(engine: Engine) -> None:
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


def _translated(error: DBAPIError, place: str) -> SyncSwitchError:
    """Our error for one of the driver's: its class says what to do next."""
    reason = _reason(error)
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    is_server = not isinstance(error.orig, sqlite3.Error)
    is_lost = error.connection_invalidated or (is_server and isinstance(error, OperationalError))
    if is_lost or state in _PASSING_STATES or "is locked" in reason:
        return RetryableError(f"the database {place} is busy or was lost: {reason}")
    if isinstance(error, IntegrityError):
        return FatalError(f"the database {place} refuses these values: {reason}")
    return DatabaseError(
        f"the database {place} cannot be used: {reason}; check its permissions, free space and"
        f" server, or name another with --storage URL"
    )


def _reason(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())
