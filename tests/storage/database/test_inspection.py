from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import (
    driver_url,
    holds_nothing,
    is_same_database,
    parse_url,
    shown,
)
from syncswitch.storage.errors import DatabaseError
from tests.storage.conftest import AtOnce

NOBODY = 65534


def refusal(url: str, *, create: bool = True) -> str:
    with pytest.raises(DatabaseError) as caught:
        open_database(url, create=create)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("url", ["", "nonsense", "runs.db", "://", "sqlite:/x", "a b://c"])
def test_what_is_no_url_is_refused(url: str) -> None:
    assert "allowed: sqlite:///FILE or postgresql://" in refusal(url)


def test_a_bare_path_is_shown_as_a_url() -> None:
    assert "write sqlite:///runs.db" in refusal("runs.db")


@pytest.mark.parametrize("url", ["mysql://u:p@h/d", "oracle://h", "redis://h"])
def test_other_databases_are_refused(url: str) -> None:
    assert "are not supported; allowed:" in refusal(url)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x.db?mode=ro&uri=true"]
)
def test_databases_that_processes_cannot_share_are_refused(url: str) -> None:
    assert "give a plain path" in refusal(url)


@pytest.mark.parametrize("url", ["sqlite+nodriver:///x.db", "postgresql+nodriver://h/d"])
def test_a_missing_driver_is_named(url: str) -> None:
    assert "nodriver" in refusal(url)
    assert not Path("x.db").exists()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://user:secret@host/name", "postgresql://user:***@host/name"),
        ("postgresql://user:sec@ret@host/name", "postgresql://***"),
        ("postgresql://user:sec@re/t@host/name", "postgresql://***"),
        ("postgresql://user:sec/ret@host/name", "postgresql://user:***@host/name"),
        ("postgresql://h/d?password=secret", "postgresql://h/d?password=***"),
        (
            "postgresql://h/d?a=b&sslpassword=sec%20ret&z=1",
            "postgresql://h/d?a=b&sslpassword=***&z=1",
        ),
        ("postgresql://h/d?PGPASSWORD=secret", "postgresql://h/d?PGPASSWORD=***"),
        ("postgresql://h/d?pass%77ord=secret", "postgresql://h/d?password=***"),
        ("postgresql://h/d&password=secret", "postgresql://***"),
        ("postgresql://h/d;password=sec ret", "postgresql://***"),
        ("sqlite:///a.db?password=secret", "sqlite:///a.db?password=***"),
        ("postgresql://user@host:5432/name", "postgresql://user@host:5432/name"),
        ("sqlite:////home/me/a.db", "sqlite:////home/me/a.db"),
    ],
)
def test_passwords_are_not_shown(url: str, expected: str) -> None:
    assert shown(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@host:port:port/name",
        "postgresql://user:secret/name",
        "postgresql//user:secret@host/name",
        "postgresql:user:secret@host/name",
        "user=me password=secret host=here",
        "postgresql://user:a@secret@host/name",
        "postgresql://user:a@b/secret@host/name",
        "mysql://host/name?password=secret",
        "postgresql+nodriver://host/name?password=secret",
        "sqlite:///a.db?password=secret",
    ],
)
def test_a_refused_url_does_not_show_its_password(url: str) -> None:
    assert "secret" not in refusal(url)


@pytest.mark.parametrize(
    "url", ["sqlite:///a.db?timeout=x", "sqlite:///a.db?mode=ro", "sqlite:///a\0.db"]
)
def test_options_of_a_file_are_refused(url: str, folder: Path) -> None:
    assert "allowed: sqlite:///FILE alone" in refusal(url)


def test_an_at_sign_too_many_is_refused_with_what_to_write() -> None:
    assert "write %40 for an @" in refusal("postgresql://user:sec@ret@host/name")


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://host/name", "postgresql+psycopg"),
        ("postgres://host/name", "postgresql+psycopg"),
        ("postgres+psycopg2://host/name", "postgresql+psycopg2"),
        ("postgresql+psycopg2://host/name", "postgresql+psycopg2"),
    ],
)
def test_a_url_may_be_as_hosting_providers_print_it(url: str, driver: str) -> None:
    assert parse_url(url).drivername == driver
    assert driver_url(url) == f"{driver}://host/name"


@pytest.mark.parametrize("url", ["sqlite+aiosqlite:///x.db", "postgresql+asyncpg://h/d"])
def test_a_driver_for_asynchronous_programs_is_refused(url: str) -> None:
    assert "names a driver for asynchronous programs; leave it out: " in refusal(url)


WITHOUT_PSYCOPG = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split()))  # to import them is an ImportError
from ctypes import util
util.find_library = lambda name: None
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import DatabaseError
from tests.storage.conftest import AtOnce
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


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path} is a directory" in refusal(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    message = refusal(f"sqlite:///{tmp_path}/no/such/file.db")
    assert f"mkdir -p {tmp_path}/no/such" in message
    assert list(tmp_path.iterdir()) == []


def test_a_file_below_a_file_is_refused(path: Path, sqlite_url: str) -> None:
    path.write_text("text")
    assert "cannot read the database" in refusal(f"{sqlite_url}/below.db")


@pytest.mark.usefixtures("our_tables")
def test_an_unreadable_file_is_refused(path: Path, sqlite_url: str, at_once: AtOnce) -> None:
    open_database(sqlite_url, create=True).close()
    path.chmod(0)

    def work(number: int) -> str:
        if os.geteuid() == 0:
            os.setuid(NOBODY)  # root may read everything
        return refusal(sqlite_url)

    assert "Permission denied" in at_once(work, 1)[0]


@pytest.mark.parametrize("held", ["nothing", "an empty database"])
def test_a_place_that_cannot_be_written_is_refused(path: Path, at_once: AtOnce, held: str) -> None:
    if held == "an empty database":
        path.touch()
    path.parent.chmod(0o555)

    def work(number: int) -> str:
        os.chdir(path.parent)
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        return refusal(f"sqlite:///{path.name}")

    message = at_once(work, 1)[0]
    path.parent.chmod(0o755)
    assert message.startswith("cannot ")
    assert path.exists() == (held == "an empty database")


@pytest.mark.usefixtures("our_tables")
def test_a_database_in_a_folder_that_only_can_be_read_is_refused_with_what_to_do(
    path: Path, sqlite_url: str, at_once: AtOnce
) -> None:
    path.chmod(0o444)
    path.parent.chmod(0o555)

    def work(number: int) -> str:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        return refusal(sqlite_url, create=False)

    message = at_once(work, 1)[0]
    path.parent.chmod(0o755)
    assert f"and {path.parent} cannot be written to; copy the file to a folder" in message


@pytest.mark.parametrize(
    ("content", "create"),
    [(b"x", True), (b"SQLite format 2\x00" * 9, False), (b"name,accuracy\n" * 99, True)],
)
def test_a_file_of_another_kind_is_refused_untouched(
    path: Path, sqlite_url: str, content: bytes, create: bool
) -> None:
    path.write_bytes(content)
    assert "is not a SQLite database" in refusal(sqlite_url, create=create)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.usefixtures("our_tables")
@pytest.mark.parametrize("length", [16, 50, 4096, 20_000])
def test_a_truncated_database_is_refused(path: Path, sqlite_url: str, length: int) -> None:
    open_database(sqlite_url, create=True).close()
    path.write_bytes(path.read_bytes()[:length])
    assert refusal(sqlite_url)


def test_an_empty_file_is_an_empty_database(path: Path, sqlite_url: str) -> None:
    path.touch()
    assert "no results of syncswitch yet" in refusal(sqlite_url, create=False)
    assert path.read_bytes() == b""
    open_database(sqlite_url, create=True).close()
    open_database(sqlite_url, create=False).close()


@pytest.mark.parametrize(("create", "journal_mode"), [(True, "delete"), (False, "wal")])
def test_the_tables_of_another_application_are_refused_untouched(
    path: Path, sqlite_url: str, create: bool, journal_mode: str
) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode={journal_mode}")
    for name in ("trials", "invoices", "customers", "parts", "prices"):
        connection.execute(f"CREATE TABLE {name} (id INTEGER)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    message = refusal(sqlite_url, create=create)
    assert "customers, invoices, parts, ..." in message
    assert "trials" not in message
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "tables",
    [
        {"trials": "id"},
        {"studies": "study_name", "trials": "id"},
        {"version_info": "id", "studies": "title", "trials": "id"},
        {"alembic_version": "version_num"},
    ],
)
def test_tables_that_only_sound_like_those_of_optuna_are_refused_untouched(
    path: Path, sqlite_url: str, tables: dict[str, str]
) -> None:
    connection = sqlite3.connect(path)
    for name, column in tables.items():
        connection.execute(f"CREATE TABLE {name} ({column} TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    assert f"another application ({', '.join(sorted(tables))})" in refusal(sqlite_url)
    assert path.read_bytes() == before


def test_nothing_is_held_before_our_tables_are_made(path: Path, sqlite_url: str) -> None:
    assert holds_nothing(sqlite_url)
    assert not path.exists()
    path.touch()
    assert holds_nothing(sqlite_url)
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


def test_what_is_refused_is_refused_also_when_asked_whether_it_holds_anything(
    path: Path, sqlite_url: str
) -> None:
    path.write_text("a shopping list, long enough to look like a file")
    with pytest.raises(DatabaseError, match="is not a SQLite database"):
        holds_nothing(sqlite_url)


@pytest.mark.usefixtures("our_tables")
def test_tables_that_users_add_later_do_no_harm(path: Path, sqlite_url: str) -> None:
    open_database(sqlite_url, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE my_notes (note TEXT)")
    connection.commit()
    connection.close()
    open_database(sqlite_url, create=False).close()


@pytest.mark.usefixtures("our_tables")
@pytest.mark.parametrize(
    ("statement", "revision"),
    [
        ("DELETE FROM syncswitch_alembic_version", "none"),
        ("UPDATE syncswitch_alembic_version SET version_num = 'deadbeef'", "'deadbeef'"),
    ],
)
def test_a_revision_that_nobody_made_is_refused(
    path: Path, sqlite_url: str, statement: str, revision: str
) -> None:
    open_database(sqlite_url, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    assert f"has tables of revision {revision}, and this" in refusal(sqlite_url)


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
