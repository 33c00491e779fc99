"""Examines the database of a URL before anything is written there."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, inspect, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE
from syncswitch.storage.errors import SEARCH_FIRST, DatabaseError, OptionHint
from syncswitch.storage.tables.base import TABLE_PREFIX

REVISION = "0007"
"""The revision of the tables that this version of the software reads and writes."""

ANOTHER = OptionHint("storage", "URL", "name another with")
"""What helps with most databases that cannot be used."""

FORMER_REVISIONS = ("0004", "0005", "0006")
"""Those before, which `open_database` brings up to date."""

VERSION_TABLE = f"{TABLE_PREFIX}alembic_version"
"""Holds the revision as Alembic does, which can take over when a release changes tables."""

_OPTUNA_TABLES = frozenset(
    {
        "alembic_version",
        "studies",
        "study_directions",
        "study_system_attributes",
        "study_user_attributes",
        "trial_heartbeats",
        "trial_intermediate_values",
        "trial_params",
        "trial_system_attributes",
        "trial_user_attributes",
        "trial_values",
        "trials",
        "version_info",
    }
)
_OPTUNA_ALWAYS = frozenset({"version_info", "studies", "trials"})
_LIBPQ_DRIVERS = frozenset({"psycopg", "psycopg2"})
# Arguments of the drivers that no text can be.
_OBJECTS = frozenset(
    {"async", "async_", "autocommit", "connection_factory", "context", "cursor_factory"}
    | {"row_factory"}
)
# How often a statement runs before psycopg has the server prepare it.
_PREPARE, _THRESHOLD = "prepare_threshold", r"[0-9]{1,9}|[Nn]one"
_LEAST_BYTES = 512  # of a SQLite database that is not empty
_SQLITE_HEADER = b"SQLite format 3\x00"
_PLAIN_PATH = r"[\w./~+-]+"
_SECRET = r"(?i)([?&][^=&]*(?:pass|pwd|secret|token)[^=&]*=)[^&]*"
_ALLOWED = "allowed: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


def parse_url(url: str) -> URL:
    """Parses a database URL; raises DatabaseError if no search can be stored there."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        if re.fullmatch(_PLAIN_PATH, url):
            hint = f"; for a file write sqlite:///{url}"
            raise DatabaseError(
                f"{url!r} is not a database URL; {_ALLOWED}{hint}", code="database-url-invalid"
            ) from error
        # Without the error as its cause, which may quote the password.
        raise DatabaseError(
            f"{shown(url)} cannot be read as a URL; {_ALLOWED}", code="database-url-invalid"
        ) from None
    if parsed.get_backend_name() == "postgres":  # as hosting providers print it
        parsed = parsed.set(drivername=parsed.drivername.replace("postgres", "postgresql", 1))
    kind = parsed.get_backend_name()
    if kind not in {"sqlite", "postgresql"}:
        raise DatabaseError(
            f"{shown(url)}: databases of kind {kind!r} are not supported; {_ALLOWED}",
            code="database-url-invalid",
        )
    if kind == "sqlite":
        name = parsed.database or ":memory:"
        if name == ":memory:" or name.startswith("file:"):
            typed = "sqlite://" if parsed.database is None else f"sqlite:///{name}"
            raise DatabaseError(
                f"{typed}: a search needs a database file that its processes can share;"
                f" give a plain path, for example sqlite:///syncswitch.db",
                code="database-url-invalid",
            )
        # Also without a =: SQLAlchemy would drop what follows, and write another file.
        if "?" in url or "\0" in name:
            raise DatabaseError(
                f"{shown(url)!r} has options, or a character that no file name can have;"
                f" allowed: sqlite:///FILE alone, without ?",
                code="database-url-invalid",
            )
    elif _is_doubtful(parsed):
        raise DatabaseError(
            f"{shown(url)} has an @ or a = in its host or database; {_ALLOWED}; write %40 for an @"
            " of the password, and a ? before options",
            code="database-url-invalid",
        )
    # Without the name of a driver, the version of SQLAlchemy would decide on one.
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_driver_name() in _LIBPQ_DRIVERS:
        _check_options(parsed, url)
        # Whatever the server's encoding: that of SQL_ASCII would make bytes of texts.
        parsed = parsed.update_query_dict({"client_encoding": "utf8"})
    return parsed


def _check_options(parsed: URL, url: str) -> None:
    """Raises DatabaseError for options that mean Python objects, or no such number."""
    if objects := sorted(_OBJECTS & {*parsed.query}):
        raise DatabaseError(
            f"{shown(url)} has the option {objects[0]}, which is for Python programs",
            allowed="options of libpq, and prepare_threshold",
            remedy="leave it out",
            code="database-url-invalid",
        )
    given = parsed.query.get(_PREPARE, "0")
    if not isinstance(given, str) or not re.fullmatch(_THRESHOLD, given):
        raise DatabaseError(
            f"{shown(url)} has the option {_PREPARE} with the value {given!r}",
            allowed="a whole number from 0 on, or none for no prepared statements",
            code="database-url-invalid",
        )


def connect_arguments(parsed: URL) -> dict[str, Any]:
    """Returns what a driver has to get besides the texts of the URL, for `create_engine`."""
    given = parsed.query.get(_PREPARE)
    if not isinstance(given, str) or not re.fullmatch(_THRESHOLD, given):
        return {}
    return {_PREPARE: int(given) if given.isdecimal() else None}


def driver_url(url: str) -> str:
    """Returns the URL for SQLAlchemy and Optuna: with the driver's name and the password."""
    return parse_url(url).render_as_string(hide_password=False)


def shown(url: str) -> str:
    """Returns the URL without its secrets; a placeholder if they cannot be told from the rest."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return "the database URL (not shown, as it may hold a password)"
    if sqlite_path(parsed) is None and _is_doubtful(parsed):
        return f"{parsed.drivername}://***"
    return re.sub(_SECRET, r"\1***", parsed.render_as_string(hide_password=True))


def _is_doubtful(url: URL) -> bool:
    """Returns whether SQLAlchemy may have taken a part of the password for host or database."""
    return bool({"@", "="} & {*(url.host or ""), *(url.database or "")})


def sqlite_path(url: URL) -> Path | None:
    """Returns the file of a SQLite URL; None for a server."""
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def is_same_database(one: str, other: str) -> bool:
    """Returns whether two URLs lead to the same file, or to the same database of a server.

    Raises DatabaseError if no search can be stored at one of them.
    """
    return _place(parse_url(one)) == _place(parse_url(other))


def _place(url: URL) -> tuple[object, ...]:
    path = sqlite_path(url)
    if path is not None:
        return (path.resolve(),)
    # Missing parts are PostgreSQL's defaults; the user and the driver do not matter.
    host = url.host or url.query.get("host") or "localhost"
    return (host, url.port or 5432, url.database or url.username)


def check_sqlite_file(path: Path, *, may_create: bool) -> None:
    """Checks that a path leads to a SQLite database; opens it only for reading.

    SQLite itself opens it: to close a file otherwise cancels all locks of this process on it, so
    that another process takes its journal for left over, and deletes it.

    Raises DatabaseError if it is a directory, unreadable, not a SQLite file, or missing; with
    `may_create` a missing file only needs a directory.
    """
    if _is_open_to_sqlite(path):
        return
    try:
        with path.open("rb") as file:
            header = file.read(len(_SQLITE_HEADER))
    except FileNotFoundError as error:
        if not may_create:
            raise DatabaseError(
                f"no database at {path}",
                remedy=(SEARCH_FIRST, ANOTHER, f"set {ENVIRONMENT_VARIABLE}"),
                code="database-not-found",
            ) from error
        if not path.parent.is_dir():
            raise DatabaseError(
                f"cannot create the database {path}: there is no directory {path.parent};"
                f" create it with `mkdir -p {path.parent}`"
            ) from error
        return
    except IsADirectoryError as error:
        raise DatabaseError(
            f"{path} is a directory, not a database; name a file, for example {path}/syncswitch.db",
            code="database-foreign",
        ) from error
    except OSError as error:
        raise DatabaseError(
            f"cannot read the database {path}: {error.strerror or error}",
            remedy=("make it readable", ANOTHER),
        ) from error
    # For SQLite, an empty file is an empty database.
    if header and header != _SQLITE_HEADER:
        raise DatabaseError(
            f"{path} is not a SQLite database (it starts with {header[:16]!r})",
            remedy=ANOTHER,
            code="database-foreign",
        )


def _is_open_to_sqlite(path: Path) -> bool:
    """Whether SQLite can read it, or would if it were not busy."""
    try:
        if 0 < path.stat().st_size < _LEAST_BYTES:  # for SQLite an empty database
            return False
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.OperationalError as error:
        return path.is_file() and "unable to open" not in str(error)
    except (OSError, sqlite3.DatabaseError):
        return False
    return True


def holds_nothing(url: str) -> bool:
    """Returns whether a database is missing, or has none of our tables yet; only reads.

    It is False if the database does not answer: opening it says why. Raises DatabaseError if no
    database can be made there, or it belongs to another application.
    """
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None:
        check_sqlite_file(path, may_create=True)
        if not path.exists():
            return True
    try:
        # Unlike a pool, this leaves no connection open.
        arguments = connect_arguments(parsed)
        engine = create_engine(parsed, poolclass=NullPool, connect_args=arguments)
        with engine.connect() as connection:
            return our_revision(connection, shown(url)) is None
    except (DBAPIError, ImportError, NoSuchModuleError, TypeError, ValueError):
        return False


def our_revision(connection: Connection, place: str) -> str | None:
    """Returns the revision of our tables; without them there are none, or only those of Optuna.

    `place` names the database in messages. Raises DatabaseError if it belongs to another
    application, or its tables are of another revision.
    """
    # One query, as between two of them another process may make the tables.
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        if tables and not _is_optunas(connection, tables):
            foreign = sorted(tables - _OPTUNA_TABLES) or sorted(tables)
            some = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
            raise DatabaseError(
                f"{place} holds tables of another application ({some})",
                allowed="an empty database, or one of syncswitch or Optuna",
                remedy=ANOTHER,
                code="database-foreign",
            )
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    if len(found) != 1 or found[0] not in (REVISION, *FORMER_REVISIONS):
        revision = ", ".join(map(repr, found)) or "none"
        if len(found) == 1 and str(found[0]).isdigit() and int(found[0]) > int(REVISION):
            raise DatabaseError(
                f"{place} was made by a newer syncswitch: its tables are of revision {revision},"
                f" and this one reads and writes {REVISION!r}",
                remedy=("update syncswitch", ANOTHER),
                code="newer-version",
            )
        raise DatabaseError(
            f"{place} has tables of revision {revision}, and this syncswitch reads and writes"
            f" {REVISION!r}",
            remedy=("use the version that made them", ANOTHER),
            code="database-outdated",
        )
    return str(found[0])


def holds_studies(connection: Connection) -> bool:
    """Returns whether Optuna's tables are there."""
    return set(inspect(connection).get_table_names()) >= _OPTUNA_ALWAYS


def _is_optunas(connection: Connection, tables: set[str]) -> bool:
    """Returns whether all these tables are Optuna's; other applications may have `trials`, too."""
    if not _OPTUNA_ALWAYS <= tables <= _OPTUNA_TABLES:
        return False
    return "study_name" in {column["name"] for column in inspect(connection).get_columns("studies")}
