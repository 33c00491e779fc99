"""Optuna's tables against ours, and the command that reports differences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner, Result
from command_line import copy_database
from generated_trainer import GeneratedTrainer, identity
from searches import SINGLE, search
from sqlalchemy import create_engine, inspect, text

from syncswitch.cli.search.main import main
from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.searcher.search.recorded import record_of
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import FORMER_REVISIONS, VERSION_TABLE, driver_url
from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import SearchInfo
from syncswitch.storage.records.policy import whole_use
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
from syncswitch.storage.uses.store import record_use
from tests.failing import fails


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file with a finished search whose first run failed, and the name of the study."""
    path = tmp_path_factory.mktemp("searched") / "search.db"
    trainer = GeneratedTrainer(failures=1)
    return path, search(f"sqlite:///{path}", trainer, SINGLE).policy.study


@pytest.fixture
def study(searched: tuple[Path, str], path: Path) -> str:
    """The name of that search's study, in a database of the test's own."""
    copy_database(searched[0], path)
    return searched[1]


def change(url: str, *statements: str) -> None:
    """Changes rows with SQL, behind the back of the software."""
    engine = create_engine(driver_url(url))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def db(command: str, url: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["db", command, "--storage", url, *options])


PENDING = "UPDATE trials SET state = 'RUNNING' WHERE number = 2"
OF_RUN_2 = "trial_id = (SELECT trial_id FROM trials WHERE number = 2)"
OTHER_VALUE = f"UPDATE trial_values SET value = 0.125 WHERE {OF_RUN_2}"
REPAIRED = "nothing; the next run of the same search repairs it"
RESTORE = "restore the database from a copy"


@pytest.mark.parametrize(
    ("kind", "statement", "to_do"),
    [
        ("pending", PENDING, REPAIRED),
        ("outranked", "UPDATE trials SET state = 'FAIL' WHERE number = 2", "nothing"),
        ("contradiction", OTHER_VALUE, RESTORE),
        (
            "contradiction",
            "UPDATE trial_user_attributes SET value_json = 'true' WHERE key = 'diverged'"
            f" AND {OF_RUN_2}",
            RESTORE,
        ),
        (
            "unrecorded",
            "UPDATE syncswitch_trials SET state = 'failed', failure = 'x' WHERE trial_number = 2",
            RESTORE,
        ),
    ],
)
def test_what_the_two_accounts_differ_in_is_found_and_only_a_problem_is_a_failure(
    sqlite_url: str, study: str, kind: str, statement: str, to_do: str
) -> None:
    change(sqlite_url, statement)
    (found,) = check_database(sqlite_url)
    is_problem = to_do == RESTORE
    assert (found.kind, found.is_problem, found.fix.startswith(to_do)) == (kind, is_problem, True)
    assert found.what.endswith(f"(1): run 2 of {study}")
    said = db("check", sqlite_url)
    assert (said.exit_code, said.stderr) == (int(is_problem), "")
    first, second, last = said.stdout.splitlines()
    assert first == f"{'problem' if is_problem else 'note'}: {kind}: {found.what}"
    assert second == f"  to do: {found.fix}"
    assert last == f"{sqlite_url}" + (": 1 problem(s)" if is_problem else " is intact")
    content = json.loads(db("check", sqlite_url, "--json").stdout)
    assert content["is_healthy"] == (not is_problem)
    assert [one["is_problem"] for one in content["findings"]] == [is_problem]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ("training_seconds = 1e300", "training_seconds is 1e+300; allowed: from 1e-09 to 1e+10"),
        ("converged_accuracy = 1.5", "accuracy is 1.5, which is not "),
        ("worker_steps = 9007199254740993", "worker_steps is 9007199254740993; allowed: from 0"),
        ("ended_at = '1900-01-01 00:00:00'", "it ended at 1900-01-01 00:00:00+00:00, before its"),
    ],
)
def test_values_that_no_training_can_have_measured_are_a_problem(
    sqlite_url: str, study: str, values: str, fault: str
) -> None:
    with open_database(sqlite_url, create=False) as database:
        (policy,) = PolicyRegistry(database).policies()
        (row,) = TrialStore(database).trials(study=study, trial_number=2)
        of_search = TrialSpec(identity(), row.switch_percent, 7)
        made = replace(record_of(TrialStore(database), row, of_search), inherited_seconds=0.0)
        use = whole_use(policy, "a", made)
        assert use is not None
        record_use(database, use)
    assert check_database(sqlite_url) == []
    for which in ("use_id = 'a'", "trial_number = 1"):
        ignored = "PRAGMA ignore_check_constraints = ON"
        change(sqlite_url, ignored, f"UPDATE syncswitch_trials SET {values} WHERE {which}")
    (found,) = [one for one in check_database(sqlite_url) if one.kind == "impossible"]
    assert (found.is_problem, found.fix) == (True, RESTORE)
    assert found.what.startswith("runs with values that no training can have measured (2): run ")
    assert found.what.count(fault) == 2
    assert db("check", sqlite_url).exit_code == 1


def test_a_server_is_asked_the_same(postgresql_url: str) -> None:
    study = search(postgresql_url, None, SINGLE).policy.study
    assert check_database(postgresql_url) == []
    change(postgresql_url, PENDING.replace("2", "0"), OTHER_VALUE)
    found = [(one.kind, one.what.partition("(1): ")[2]) for one in check_database(postgresql_url)]
    assert found == [("pending", f"run 0 of {study}"), ("contradiction", f"run 2 of {study}")]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE syncswitch_searches SET registered_at = 0", "that cannot be read (TypeError"),
        ("UPDATE syncswitch_trials SET started_at = 'x'", "that cannot be read (ValueError"),
        ("UPDATE syncswitch_searches SET options = '{'", "that cannot be read (JSONDecodeError"),
        ("UPDATE syncswitch_trials SET host = CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
        ("UPDATE trial_user_attributes SET value_json = '{'", "Optuna's tables in sqlite"),
        ("UPDATE trials SET state = 'LOST'", "Optuna's tables in sqlite"),
    ],
)
@pytest.mark.usefixtures("study")
def test_damaged_values_are_a_finding_and_one_line(
    sqlite_url: str, statement: str, said: str
) -> None:
    change(sqlite_url, "PRAGMA ignore_check_constraints = ON", statement)
    (found,) = [one for one in check_database(sqlite_url) if one.kind == "values"]
    assert found.is_problem
    assert said in found.what
    with pytest.raises(DatabaseError) as caught:
        search(sqlite_url, None, SINGLE)
    for text_of_it in (found.what, str(caught.value)):
        assert "\n" not in text_of_it


@pytest.mark.usefixtures("study")
def test_a_database_of_the_revision_before_is_not_damaged(sqlite_url: str) -> None:
    former = FORMER_REVISIONS[-1]
    change(sqlite_url, f"UPDATE {VERSION_TABLE} SET version_num = '{former}'")
    said = db("check", sqlite_url)
    assert (said.exit_code, said.stdout.splitlines()) == (
        0,
        [
            f"note: revision: tables of the former revision {former}",
            "  to do: nothing; the next command that opens the database updates it; then check it"
            " again",
            f"{sqlite_url} is intact",
        ],
    )


def test_a_study_that_somebody_deleted_is_missed_and_others_are_none_of_our_business(
    sqlite_url: str, study: str
) -> None:
    other = optuna.create_study(study_name="other", storage=sqlite_url)
    other.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    assert check_database(sqlite_url) == []
    optuna.delete_study(study_name=study, storage=sqlite_url)
    (found,) = check_database(sqlite_url)
    assert (found.kind, found.is_problem) == ("study", True)
    assert found.what.endswith(f"(1): {study}")


def test_a_run_whose_process_is_dead_is_stale(sqlite_url: str, study: str) -> None:
    spec, mine = TrialSpec(identity(), 50.0, 1), Owner.current()
    with open_database(sqlite_url, create=False) as database:
        store = TrialStore(database)
        store.begin(study, 70, spec, mine)
        assert check_database(sqlite_url) == []
        store.begin(study, 71, spec, Owner(mine.host, mine.process_id, 1.0))
    (found,) = check_database(sqlite_url)
    assert (found.kind, found.is_problem) == ("stale", False)
    assert found.what.endswith(f"(1): run 71 of {study}")


def test_without_a_search_optunas_tables_are_not_made(sqlite_url: str) -> None:
    workload = identity()
    info = SearchInfo(
        "s", workload.fingerprint, workload.protocols, "paper", 2, 1, 0.01, None, "local", 1
    )
    with open_database(sqlite_url, create=True) as database:
        TrialStore(database).register(workload, "generated", info)
        assert check_database(sqlite_url) == []
        assert "studies" not in inspect(database.engine).get_table_names()


def test_a_database_without_our_tables_is_a_problem_that_a_search_solves(sqlite_url: str) -> None:
    optuna.create_study(storage=sqlite_url)
    result = db("check", sqlite_url)
    assert result.exit_code == 1
    assert "no tables of syncswitch" in result.stdout
    assert "holds no results of syncswitch yet" in db("upgrade", sqlite_url).stderr
    open_database(sqlite_url, create=True).close()
    assert db("check", sqlite_url).stdout == f"{sqlite_url} is intact\n"
    assert db("upgrade", sqlite_url).stdout == f"{sqlite_url} is up to date: nothing to do\n"


@pytest.mark.parametrize("command", ["check", "upgrade"])
def test_what_cannot_be_looked_at_is_one_line(sqlite_url: str, command: str) -> None:
    def refused() -> Any:
        result = db(command, sqlite_url)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        return result.stderr

    assert "no database at" in refused()
    open_database(sqlite_url, create=True).close()
    change(sqlite_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    assert "tables are of revision '9999'" in refused()


def deleted(url: str, study: str) -> None:
    optuna.delete_study(study_name=study, storage=driver_url(url))


def test_a_deleted_study_is_made_anew_from_the_recorded_runs(sqlite_url: str, study: str) -> None:
    before = search(sqlite_url, None, SINGLE)
    deleted(sqlite_url, study)
    trainer = GeneratedTrainer()
    again = search(sqlite_url, trainer, SINGLE)
    assert (again.policy, again.switch_points) == (before.policy, before.switch_points)
    assert trainer.runs == []
    assert check_database(sqlite_url) == []


@pytest.mark.parametrize("other", [False, True])
def test_a_search_whose_study_is_deleted_halfway_goes_on(sqlite_url: str, other: bool) -> None:
    class Stopped(GeneratedTrainer):
        def train(self, *given: Any) -> Any:
            if len(self.runs) == 1:
                raise KeyboardInterrupt
            return super().train(*given)

    with pytest.raises(KeyboardInterrupt):
        search(sqlite_url, Stopped(), SINGLE)
    (study,) = optuna.get_all_study_names(sqlite_url)
    deleted(sqlite_url, study)
    if other:  # whoever asks for a trial first
        optuna.create_study(study_name=study, storage=sqlite_url, direction="maximize").ask()
    trainer = GeneratedTrainer()
    found = search(sqlite_url, trainer, SINGLE)
    assert (len(trainer.runs), found.cost.completed_runs) == (2, 3)


def test_a_study_that_is_deleted_while_a_run_is_made_is_one_line(sqlite_url: str) -> None:
    class Deleting(GeneratedTrainer):
        def train(self, *given: Any) -> Any:
            for study in optuna.get_all_study_names(sqlite_url):
                deleted(sqlite_url, study)
            return super().train(*given)

    with fails("database-unusable", r"was deleted in Optuna while .* the same command"):
        search(sqlite_url, Deleting(), SINGLE)
    trainer = GeneratedTrainer()
    search(sqlite_url, trainer, SINGLE)
    assert len(trainer.runs) == 2  # the first was recorded
