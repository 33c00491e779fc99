"""Optuna's tables against ours, and the command that reports differences."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from click.testing import CliRunner, Result
from generated_trainer import GeneratedTrainer, identity
from searches import SINGLE, search
from sqlalchemy import create_engine, inspect, text

from syncswitch.cli.search.main import main
from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.storage.database.check import Finding
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import VERSION_TABLE, driver_url
from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, SearchInfo

Change = Callable[..., None]


def studied(url: str, trainer: GeneratedTrainer | None = None) -> str:
    """Searches, and returns the name of the study."""
    return search(url, trainer, SINGLE).policy.study


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file with a finished search whose first run failed, and the name of the study."""
    path = tmp_path_factory.mktemp("searched") / "search.db"
    return path, studied(f"sqlite:///{path}", GeneratedTrainer(failures=1))


@pytest.fixture
def study(searched: tuple[Path, str], sqlite_url: str, path: Path) -> str:
    """The name of that search's study, in a database of the test's own."""
    # A copy of the file alone would lack what is still in its write-ahead log.
    with closing(sqlite3.connect(searched[0])) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
    return searched[1]


@pytest.fixture
def change(sqlite_url: str) -> Iterator[Change]:
    """Changes rows with SQL, behind the back of the software."""
    engine = create_engine(sqlite_url)

    def execute(*statements: str) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    yield execute
    engine.dispose()


def only(findings: list[Finding], kind: str) -> Finding:
    (found,) = [finding for finding in findings if finding.kind == kind]
    return found


def test_of_a_finished_search_there_is_nothing_to_say(sqlite_url: str, study: str) -> None:
    assert check_database(sqlite_url) == []


def test_a_server_is_asked_the_same(postgresql_url: str) -> None:
    study = studied(postgresql_url)
    assert check_database(postgresql_url) == []
    engine = create_engine(driver_url(postgresql_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE trials SET state = 'RUNNING' WHERE number = 0"))
        connection.execute(text(f"UPDATE trial_values SET value = 0.125 WHERE {OF_RUN_2}"))
    engine.dispose()
    untold, contradiction = check_database(postgresql_url)
    assert untold.what.endswith(f"(1): run 0 of {study}")
    assert contradiction.what.endswith(f"(1): run 2 of {study}")


OF_RUN_2 = "trial_id = (SELECT trial_id FROM trials WHERE number = 2)"


@pytest.mark.parametrize(
    ("kind", "is_problem", "statement"),
    [
        ("untold", False, "UPDATE trials SET state = 'RUNNING' WHERE number = 2"),
        ("outranked", False, "UPDATE trials SET state = 'FAIL' WHERE number = 2"),
        ("contradiction", True, f"UPDATE trial_values SET value = 0.125 WHERE {OF_RUN_2}"),
        (
            "contradiction",
            True,
            f"UPDATE trial_user_attributes SET value_json = 'true' WHERE key = 'diverged'"
            f" AND {OF_RUN_2}",
        ),
        (
            "unrecorded",
            True,
            "UPDATE syncswitch_trials SET state = 'failed', failure = 'x' WHERE trial_number = 2",
        ),
    ],
)
def test_what_the_two_accounts_differ_in_is_found(
    sqlite_url: str, study: str, change: Change, kind: str, is_problem: bool, statement: str
) -> None:
    change(statement)
    found = only(check_database(sqlite_url), kind)
    assert found.is_problem == is_problem
    assert found.what.endswith(f"(1): run 2 of {study}")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "UPDATE syncswitch_searches SET registered_at = 0",
            "that cannot be read (TypeError",
        ),
        (
            "UPDATE syncswitch_trials SET started_at = 'x'",
            "that cannot be read (ValueError",
        ),
        (
            "UPDATE syncswitch_searches SET options = '{'",
            "that cannot be read (JSONDecodeError",
        ),
        ("UPDATE syncswitch_trials SET host = CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
        ("UPDATE trial_user_attributes SET value_json = '{'", "Optuna's tables in sqlite"),
        ("UPDATE trials SET state = 'LOST'", "Optuna's tables in sqlite"),
    ],
)
def test_damaged_values_are_a_finding_and_one_line(
    sqlite_url: str, study: str, change: Change, statement: str, said: str
) -> None:
    change("PRAGMA ignore_check_constraints = ON", statement)
    found = only(check_database(sqlite_url), "values")
    assert found.is_problem
    assert said in found.what
    assert "\n" not in found.what
    assert db("check", "--storage", sqlite_url).exit_code == 1
    with pytest.raises(DatabaseError) as caught:
        studied(sqlite_url)
    assert "\n" not in str(caught.value)


def test_a_study_that_somebody_deleted_is_missed(sqlite_url: str, study: str) -> None:
    optuna.delete_study(study_name=study, storage=sqlite_url)
    found = only(check_database(sqlite_url), "study")
    assert found.is_problem
    assert found.what.endswith(f"(1): {study}")


def test_studies_of_others_are_none_of_our_business(sqlite_url: str, study: str) -> None:
    other = optuna.create_study(study_name="other", storage=sqlite_url)
    other.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    assert check_database(sqlite_url) == []


def test_a_run_whose_process_is_dead_is_stale(sqlite_url: str, study: str) -> None:
    spec = TrialSpec(identity(), 50.0, 1)
    with open_database(sqlite_url, create=False) as database:
        store = TrialStore(database)
        store.begin(study, 70, spec, Owner.current())
        assert check_database(sqlite_url) == []
        mine = Owner.current()
        store.begin(study, 71, spec, Owner(mine.host, mine.process_id, 1.0))
    (found,) = check_database(sqlite_url)
    assert (found.kind, found.is_problem) == ("stale", False)
    assert found.what.endswith(f"(1): run 71 of {study}")


def test_without_a_search_optunas_tables_are_not_made(sqlite_url: str, change: Change) -> None:
    workload = identity()
    info = SearchInfo("s", workload.fingerprint, "paper", 2, 1, 0.01, None, "local", 1)
    with open_database(sqlite_url, create=True) as database:
        TrialStore(database).register(workload, "generated", info)
        assert check_database(sqlite_url) == []
        assert "studies" not in inspect(database.engine).get_table_names()


def db(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["db", *arguments], prog_name="syncswitch-search")


@pytest.mark.parametrize(
    ("statement", "status", "lines"),
    [
        (None, 0, [" is intact"]),
        (
            "UPDATE trials SET state = 'RUNNING' WHERE number = 2",
            0,
            [
                "note: untold: runs that Optuna does not know the end of yet (1): run 2",
                "the next `syncswitch-search run` of the same search repairs it",
                " is intact",
            ],
        ),
        (
            f"UPDATE trial_values SET value = 0.125 WHERE {OF_RUN_2}",
            1,
            ["problem: contradiction: ", "restore the database from a copy", ": 1 problem(s)"],
        ),
    ],
)
def test_only_a_problem_is_a_failure(
    sqlite_url: str,
    study: str,
    change: Change,
    statement: str | None,
    status: int,
    lines: list[str],
) -> None:
    if statement is not None:
        change(statement)
    result = db("check", "--storage", sqlite_url)
    assert (result.exit_code, result.stderr) == (status, "")
    for line, expected in zip(result.stdout.splitlines(), lines, strict=True):
        assert expected in line
    as_json = json.loads(db("check", "--storage", sqlite_url, "--json").stdout)
    assert as_json["is_healthy"] == (status == 0)
    assert [one["is_problem"] for one in as_json["findings"]] == [status == 1] * (len(lines) // 2)


def test_a_database_without_our_tables_is_a_problem_that_a_search_solves(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    optuna.create_study(storage=url)
    result = db("check", "--storage", url)
    assert result.exit_code == 1
    assert "no tables of syncswitch" in result.stdout
    assert "holds no results of syncswitch yet" in db("upgrade", "--storage", url).stderr
    open_database(url, create=True).close()
    assert db("check", "--storage", url).exit_code == 0
    assert db("upgrade", "--storage", url).stdout == f"{url} is up to date: nothing to do\n"


@pytest.mark.parametrize("command", ["check", "upgrade"])
@pytest.mark.parametrize("content", ["nothing", "newer"])
def test_what_cannot_be_looked_at_is_one_line(
    sqlite_url: str, path: Path, command: str, content: str
) -> None:
    if content == "newer":
        with (
            open_database(sqlite_url, create=True) as database,
            database.transaction() as connection,
        ):
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    result = db(command, "--storage", sqlite_url)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert ("no database at" if content == "nothing" else "tables of revision '9999'") in line
