from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from syncswitch.searcher.search.optuna_storage import open_storage
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import (
    driver_url,
    holds_nothing,
    is_same_database,
    shown,
)
from syncswitch.storage.errors import DatabaseError, ErrorCode
from tests.failing import fails
from tests.storage.conftest import AtOnce
from tests.wording import Said

NOBODY = 65534


def refusal(url: str, code: ErrorCode = "database-unusable", *, create: bool = True) -> str:
    with pytest.raises(DatabaseError) as caught:
        open_database(url, create=create)
    assert caught.value.code == code, caught.value
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_url_where_nothing_can_be_stored_is_refused(said: Said) -> None:
    for url in (
        *("", "nonsense", "://", "sqlite:/x", "a b://c"),
        "runs.db",
        "mysql://u:p@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x.db?mode=ro&uri=true",
        "sqlite:///a.db?timeout=x",
        "sqlite:///a\0.db",
        "sqlite+nodriver:///x.db",
        "postgresql+nodriver://h/d",
        "sqlite+aiosqlite:///x.db",
        "postgresql+asyncpg://h/d",
        "postgresql://user:secr@et@host/name",
        # No password is shown.
        "postgresql://user:secret@host:port:port/name",
        "user=me password=secret host=here",
        "postgresql://user:a@b/secret@host/name",
        "mysql://host/name?password=secret",
        "postgresql+nodriver://host/name?password=secret",
        "sqlite:///a.db?password=secret",
        "sqlite:///a.db?isolation_level=",
        "sqlite:///a.db?detect_types=1",
        "postgresql://h/d?row_factory=dict_row",
        "postgresql+psycopg://u:secret@h/d?cursor_factory=x",
        "postgresql+psycopg2://h/d?connection_factory=x",
        "postgresql://h/d?autocommit=true&prepare_threshold=0",
        "postgresql://h/d?prepare_threshold=-1",
        "postgresql://h/d?prepare_threshold=many",
        "postgresql://h/d?prepare_threshold=1&prepare_threshold=2",
    ):
        is_driver = "nodriver" in url
        text = refusal(url, "package-missing" if is_driver else "database-url-invalid")
        said(text.replace(r"\x00", "%00"))  # as SQLAlchemy writes it since 2.1
    assert not Path("x.db").exists()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://user:secret@host/name", "postgresql://user:***@host/name"),
        ("postgresql://user:sec@ret@host/name", "postgresql://***"),
        ("postgresql://user:sec/ret@host/name", "postgresql://user:***@host/name"),
        ("postgresql://h/d?sslpassword=s%20t&z=1", "postgresql://h/d?sslpassword=***&z=1"),
        ("postgresql://h/d?PGPASSWORD=secret", "postgresql://h/d?PGPASSWORD=***"),
        ("postgresql://h/d?pass%77ord=secret", "postgresql://h/d?password=***"),
        ("postgresql://h/d&password=secret", "postgresql://***"),
        ("sqlite:///a.db?password=secret", "sqlite:///a.db?password=***"),
        ("sqlite:////home/me/a.db", "sqlite:////home/me/a.db"),
    ],
)
def test_passwords_are_not_shown(url: str, expected: str) -> None:
    assert shown(url) == expected


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://host/name", "postgresql+psycopg"),
        ("postgres://host/name", "postgresql+psycopg"),
        ("postgres+psycopg2://host/name", "postgresql+psycopg2"),
    ],
)
def test_a_url_may_be_as_hosting_providers_print_it(url: str, driver: str) -> None:
    # Texts are texts, whatever the server's encoding.
    assert driver_url(url) == f"{driver}://host/name?client_encoding=utf8"


WITHOUT_PSYCOPG = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split()))  # to import them is an ImportError
from ctypes import util
util.find_library = lambda name: None
from syncswitch.searcher.search.optuna_storage import open_storage
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import DatabaseError
try:
    open_database("postgresql://me:secret@host/name", create=False)
except DatabaseError as error:
    print(error)
"""


@pytest.mark.parametrize("missing", ["psycopg", "psycopg_binary psycopg_c"])
def test_without_its_driver_a_server_is_refused_with_the_extra(missing: str) -> None:
    command = [sys.executable, "-c", WITHOUT_PSYCOPG, missing]
    (line,) = subprocess.check_output(command, text=True).splitlines()
    assert line.startswith("postgresql://me:***@host/name needs a driver that is missing")
    assert line.endswith("`pip install 'syncswitch[postgresql]'`")


def test_a_place_without_a_database_file_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path} is a directory" in refusal(f"sqlite:///{tmp_path}", "database-foreign")
    assert f"mkdir -p {tmp_path}/no/such" in refusal(f"sqlite:///{tmp_path}/no/such/file.db")
    missing = refusal(f"sqlite:///{tmp_path}/a.db", "database-not-found", create=False)
    assert f"no database at {tmp_path}/a.db" in missing
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text").touch()
    assert "cannot read the database" in refusal(f"sqlite:///{tmp_path}/text/below.db")


def refused_to_others(at_once: AtOnce, url: str, *, create: bool = True) -> str:
    """The refusal for a user who is not root, as root may read and write everything."""

    def work(number: int) -> str:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        return refusal(url, create=create)

    (message,) = at_once(work, 1)
    return str(message)


@pytest.mark.usefixtures("our_tables")
def test_a_file_or_folder_without_permission_is_refused(
    path: Path, sqlite_url: str, at_once: AtOnce
) -> None:
    path.chmod(0)
    assert "Permission denied" in refused_to_others(at_once, sqlite_url)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    said = f"and {path.parent} cannot be written to; copy the file to a folder"
    assert said in refused_to_others(at_once, sqlite_url, create=False)
    path.parent.chmod(0o755)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_place_that_cannot_be_written_is_refused(
    path: Path, sqlite_url: str, at_once: AtOnce, is_there: bool
) -> None:
    if is_there:
        path.touch()
    path.parent.chmod(0o555)
    message = refused_to_others(at_once, sqlite_url)
    path.parent.chmod(0o755)
    assert message.startswith("cannot ")
    assert path.exists() == is_there


@pytest.mark.parametrize("content", [b"x", b"SQLite format 2\x00" * 9, b"name,accuracy\n" * 99])
@pytest.mark.parametrize("create", [True, False])
def test_a_file_of_another_kind_is_refused_untouched(
    path: Path, sqlite_url: str, content: bytes, create: bool
) -> None:
    path.write_bytes(content)
    assert "is not a SQLite database" in refusal(sqlite_url, "database-foreign", create=create)
    with fails("database-foreign"):
        holds_nothing(sqlite_url)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


LOOK = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM sqlite_master')"


@pytest.mark.usefixtures("our_tables")
def test_a_check_leaves_the_locks_of_this_process_alone(path: Path, sqlite_url: str) -> None:
    journal = path.with_name(f"{path.name}-wal")
    with open_database(sqlite_url, create=False) as database, database.engine.connect() as held:
        held.exec_driver_sql("SELECT count(*) FROM syncswitch_trials")
        held.rollback()
        assert journal.exists()
        assert not holds_nothing(sqlite_url)
        open_database(sqlite_url, create=False).close()
        # The last to leave deletes the journal; this process is still there.
        subprocess.run([sys.executable, "-c", LOOK, path], check=True)
        assert journal.exists()


@pytest.mark.usefixtures("our_tables")
@pytest.mark.parametrize("length", [16, 50, 4096, 20_000])
def test_a_truncated_database_is_refused(path: Path, sqlite_url: str, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    assert refusal(sqlite_url)


OTHERS = dict.fromkeys(("trials", "invoices", "customers", "parts", "prices"), "id")


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (OTHERS, "customers, invoices, parts, ..."),
        # They only sound like those of Optuna.
        ({"trials": "id"}, "trials"),
        ({"studies": "study_name", "trials": "id"}, "studies, trials"),
        ({"version_info": "id", "studies": "title", "trials": "id"}, "studies, trials, version_in"),
        ({"alembic_version": "version_num"}, "alembic_version"),
    ],
)
def test_the_tables_of_another_application_are_refused_untouched(
    path: Path, sqlite_url: str, tables: dict[str, str], said: str, create: bool, journal_mode: str
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode={journal_mode}")
        for name, column in tables.items():
            connection.execute(f"CREATE TABLE {name} ({column} TEXT)")
        connection.commit()
    before = path.read_bytes()
    assert f"another application ({said}" in refusal(sqlite_url, "database-foreign", create=create)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_nothing_is_held_before_our_tables_are_made(path: Path, sqlite_url: str) -> None:
    assert holds_nothing(sqlite_url)
    assert not path.exists()
    path.touch()  # an empty file is an empty database
    assert holds_nothing(sqlite_url)
    assert "no results of syncswitch yet" in refusal(sqlite_url, "nothing-recorded", create=False)
    assert path.read_bytes() == b""
    open_database(sqlite_url, create=True).close()
    assert not holds_nothing(sqlite_url)
    assert not holds_nothing("postgresql+nodriver://host/name")


@pytest.mark.parametrize("look", range(1, 4))
def test_tables_that_appear_between_two_looks_are_no_strangers(any_url: str, look: int) -> None:
    looks = itertools.count(1)

    def create(*_: object) -> None:
        if next(looks) == look:
            open_database(any_url, create=True).close()

    event.listen(Engine, "before_cursor_execute", create)
    try:
        holds_nothing(any_url)  # both answers are right
    finally:
        event.remove(Engine, "before_cursor_execute", create)


@pytest.mark.usefixtures("our_tables")
@pytest.mark.parametrize(
    ("statement", "revision"),
    [
        ("DELETE FROM syncswitch_alembic_version", "none"),
        ("UPDATE syncswitch_alembic_version SET version_num = '0000'", "'0000'"),
    ],
)
def test_another_revision_is_refused_untouched(
    path: Path, sqlite_url: str, statement: str, revision: str
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    before = path.read_bytes()
    said = f"has tables of revision {revision}, and this syncswitch reads and writes '0007'; use"
    assert said in refusal(sqlite_url, "database-outdated")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.usefixtures("our_tables")
def test_tables_of_a_newer_version_are_refused_untouched(path: Path, sqlite_url: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE syncswitch_alembic_version SET version_num = '0107'")
        connection.commit()
    before = path.read_bytes()
    assert (
        "was made by a newer syncswitch: its tables are of revision '0107', and this one reads and"
        " writes '0007'; update syncswitch, or name"
    ) in refusal(sqlite_url, "newer-version")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("sqlite:///a.db", "sqlite:///./a.db", True),
        ("sqlite:///a.db", "sqlite+pysqlite:///folder/../a.db", True),
        ("sqlite:///a.db", "sqlite:///link.db", True),
        ("sqlite:///a.db", "sqlite:///b.db", False),
        ("postgresql://h/d", "postgres://user:secret@h:5432/d", True),
        ("postgresql://localhost/d", "postgresql+psycopg:///d", True),
        ("postgresql:///d?host=/run", "postgresql://u@/d?host=/run", True),
        ("postgresql://d@h", "postgresql://h/d", True),
        ("postgresql://h/d", "postgresql://h/e", False),
        ("postgresql://h/d", "postgresql://i/d", False),
        ("postgresql://h/d", "postgresql://h:5433/d", False),
        ("postgresql:///d?host=/run", "postgresql:///d?host=/tmp", False),
        ("sqlite:///d", "postgresql:///d", False),
    ],
)
def test_two_urls_may_lead_to_the_same_database(
    one: str, other: str, expected: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("folder").mkdir()
    Path("link.db").symlink_to("a.db")
    assert is_same_database(one, other) == is_same_database(other, one) == expected


@pytest.mark.parametrize("threshold", ["0", "7", "none"])
def test_prepared_statements_are_chosen_in_the_url_of_a_server(
    postgresql_url: str, threshold: str
) -> None:
    url = f"{postgresql_url}{'&' if '?' in postgresql_url else '?'}prepare_threshold={threshold}"
    assert holds_nothing(url)
    with open_database(url, create=True) as database, database.transaction() as connection:
        driver: Any = connection.connection.driver_connection
        assert driver.prepare_threshold == (None if threshold == "none" else int(threshold))
    storage = open_storage(url)
    assert storage.get_all_studies() == []
    storage.engine.dispose()
