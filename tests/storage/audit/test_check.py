from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from syncswitch.storage.audit.check import Finding, is_readable, listed, storage_findings
from syncswitch.storage.database.engine import Database, examined, open_database
from syncswitch.storage.database.inspection import VERSION_TABLE, Content, driver_url
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, SearchInfo

OWNER = Owner("host-1", 4321, 1_700_000_000.25)
Break = Callable[..., list[Finding]]
only_sqlite = pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)


@pytest.fixture
def sound(
    database: Database,
    store: TrialStore,
    policy: TimingPolicy,
    record: TrialRecord,
    search: SearchInfo,
    identity: WorkloadIdentity,
) -> Database:
    """Three versions; runs 0 and 1 are the evidence of the first, run 2 of none; 3 runs."""
    for number, evidence in enumerate((*reversed(policy.evidence), policy.evidence[0])):
        measured = replace(
            record,
            spec=replace(record.spec, switch_percent=evidence.switch_percent, replicate=0),
            converged_accuracy=evidence.converged_accuracy,
            training_seconds=evidence.training_seconds,
        )
        store.begin("digits-1", number, measured.spec, OWNER)
        store.complete("digits-1", number, measured)
    store.begin("digits-1", 3, record.spec, OWNER)
    registry = PolicyRegistry(database)
    registry.publish(policy)
    for study in ("digits-2", "digits-3"):
        store.register(identity, "digits", replace(search, study=study))
        registry.publish(replace(policy, study=study, evidence=()))
    registry.set_alias(policy.fingerprint, "pinned", 1)
    return database


@pytest.fixture
def broken(sound: Database) -> Iterator[Break]:
    """Changes rows behind the back of all constraints; then looks at the database."""
    with create_engine(driver_url(sound.url)).connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA ignore_check_constraints=ON")
        else:
            connection.exec_driver_sql("SET session_replication_role = replica")
        connection.commit()

        def change(*statements: str) -> list[Finding]:
            for statement in statements:
                connection.execute(text(statement))
            connection.commit()
            return findings(sound)

        yield change


def findings(database: Database) -> list[Finding]:
    found = list(storage_findings(database, Content.CURRENT))
    for finding in found:
        assert "\n" not in finding.what
        assert "{" not in finding.what
        assert finding.fix
    return found


def test_of_a_sound_database_there_is_nothing_to_say(sound: Database) -> None:
    assert findings(sound) == []


RUN_0 = "SELECT trial_id FROM syncswitch_trials WHERE trial_number = 0"
RUN_2 = "SELECT trial_id FROM syncswitch_trials WHERE trial_number = 2"
EVENT = ", 'lost', 9, 1.5, 'why', 3, 2.5 FROM syncswitch_trials"


FAULTS: list[tuple[str, str, list[str]]] = [
    (
        "reference",
        "rows of syncswitch_phases that refer to a row of syncswitch_trials that is gone (1):"
        " trial_id 999 position 0",
        [
            f"DELETE FROM syncswitch_phases WHERE position = 1 AND trial_id = ({RUN_2})",
            f"UPDATE syncswitch_phases SET trial_id = 999 WHERE trial_id = ({RUN_2})",
        ],
    ),
    (
        "reference",
        "rows of syncswitch_checkpoints that refer to a row of syncswitch_trials that is gone (1):"
        " trial_id 999 percent 50",
        ["INSERT INTO syncswitch_checkpoints VALUES (999, 50, '/50.npz', 'host-1')"],
    ),
    (
        "reference",
        "syncswitch_trials that refer to a row of syncswitch_searches that is gone (4): trial_id",
        ["DELETE FROM syncswitch_searches WHERE study = 'digits-1'"],
    ),
    (
        "alias",
        "aliases that point at no version (1): pinned of",
        ["UPDATE syncswitch_policy_aliases SET version = 7 WHERE alias = 'pinned'"],
    ),
    (
        "versions",
        "workloads whose versions have gaps (1):",
        ["DELETE FROM syncswitch_policies WHERE version = 2"],
    ),
    (
        "evidence",
        "(1): run 1 of digits-1 (version 1 of",
        ["UPDATE syncswitch_trials SET converged_accuracy = 0.5 WHERE trial_number = 1"],
    ),
    (
        "evidence",
        "(2): run",
        ["UPDATE syncswitch_trials SET diverged = true WHERE trial_number < 2"],
    ),
    (
        "evidence",
        "(1): run 0",
        ["UPDATE syncswitch_policy_evidence SET switch_percent = 3 WHERE trial_number = 0"],
    ),
    (
        "evidence",
        "(1): run 0",
        [
            f"DELETE FROM syncswitch_evaluations WHERE trial_id = ({RUN_0})",
            f"DELETE FROM syncswitch_phases WHERE trial_id = ({RUN_0})",
            "DELETE FROM syncswitch_trials WHERE trial_number = 0",
        ],
    ),
    (
        "trial",
        "complete runs without an evaluation, though they did not diverge (1): trial_id",
        [f"DELETE FROM syncswitch_evaluations WHERE trial_id = ({RUN_2})"],
    ),
    (
        "trial",
        "runs that are not complete, yet have evaluations, phases, checkpoints or events (1)",
        ["UPDATE syncswitch_trials SET state = 'running' WHERE trial_number = 2"],
    ),
    (
        "trial",
        "runs that are not complete, yet have evaluations, phases, checkpoints or events (1)",
        [
            "INSERT INTO syncswitch_checkpoints SELECT trial_id, 50, '/50.npz', 'host-1'"
            " FROM syncswitch_trials WHERE trial_number = 3"
        ],
    ),
    (
        "trial",
        "runs with evaluations after their last worker-step (1): trial_id",
        ["UPDATE syncswitch_trials SET worker_steps = 999 WHERE trial_number = 2"],
    ),
    (
        "phases",
        "phases that do not begin where the one before ends (1): phase 1 of trial_id",
        [
            "UPDATE syncswitch_phases SET end_worker_step = 499"
            f" WHERE position = 0 AND trial_id = ({RUN_2})"
        ],
    ),
    (
        "phases",
        "(1): phase 1 of trial_id",
        [f"DELETE FROM syncswitch_phases WHERE position = 0 AND trial_id = ({RUN_2})"],
    ),
    (
        "events",
        "events before which others are missing (1): event 1 of trial_id",
        [f"INSERT INTO syncswitch_events SELECT trial_id, 1{EVENT} WHERE trial_number = 2"],
    ),
    (
        "events",
        "events of workers that the cluster does not have (1): event 0 of trial_id",
        [
            "INSERT INTO syncswitch_events SELECT trial_id, 0, 'lost', 9, 1.5, 'why', 4, 2.5"
            " FROM syncswitch_trials WHERE trial_number = 2"
        ],
    ),
    (
        "trial",
        "runs that are not complete, yet have evaluations, phases, checkpoints or events (1)",
        [f"INSERT INTO syncswitch_events SELECT trial_id, 0{EVENT} WHERE trial_number = 3"],
    ),
    (
        "reference",
        "syncswitch_events that refer to a row of syncswitch_trials that is gone (1): trial_id 999",
        ["INSERT INTO syncswitch_events VALUES (999, 0, 'lost', 9, 1.5, 'why', 3, 2.5)"],
    ),
    (
        "policy",
        "policies with impossible values (1): version 2 of",
        ["UPDATE syncswitch_policies SET strategy = '' WHERE version = 2"],
    ),
    (
        "policy",
        "policies with impossible values (1): version 3 of",
        ["UPDATE syncswitch_policies SET software = '3' WHERE version = 3"],
    ),
]


@only_sqlite
@pytest.mark.parametrize(("kind", "what", "statements"), FAULTS)
def test_what_does_not_fit_together_is_found(
    broken: Break, kind: str, what: str, statements: list[str]
) -> None:
    (found,) = broken(*statements)
    assert (found.kind, found.is_problem) == (kind, True)
    assert what in found.what
    assert is_readable([found])


def test_every_kind_of_database_is_asked_everything(broken: Break) -> None:
    """Each fault in the next run or version, so that none hides another."""
    found = broken(
        "DELETE FROM syncswitch_searches",
        "UPDATE syncswitch_policy_aliases SET version = 7 WHERE alias = 'pinned'",
        "DELETE FROM syncswitch_policies WHERE version = 2",
        "UPDATE syncswitch_policies SET strategy = '' WHERE version = 3",
        "UPDATE syncswitch_trials SET converged_accuracy = 0.5 WHERE trial_number = 1",
        f"UPDATE syncswitch_phases SET trial_id = 999 WHERE trial_id = ({RUN_0})",
        f"DELETE FROM syncswitch_evaluations WHERE trial_id = ({RUN_0})",
        "UPDATE syncswitch_trials SET state = 'running' WHERE trial_number = 2",
        "UPDATE syncswitch_trials SET worker_steps = 999 WHERE trial_number = 1",
        f"UPDATE syncswitch_phases SET position = 5 WHERE position = 1 AND trial_id = ({RUN_2})",
    )
    assert [finding.kind for finding in found] == [
        "reference",
        "reference",
        "alias",
        "versions",
        "evidence",
        "trial",
        "trial",
        "trial",
        "phases",
        "policy",
    ]


def test_a_diverged_run_may_have_no_evaluation(broken: Break) -> None:
    assert not broken(
        f"DELETE FROM syncswitch_evaluations WHERE trial_id = ({RUN_2})",
        "UPDATE syncswitch_trials SET diverged = true WHERE trial_number = 2",
    )


def test_an_imported_policy_may_rest_on_a_search_of_the_same_name_elsewhere(broken: Break) -> None:
    assert not broken(
        "UPDATE syncswitch_trials SET converged_accuracy = 0.5 WHERE trial_number = 1",
        "UPDATE syncswitch_policies SET imported_at = created_at WHERE version = 1",
    )


def test_of_many_faults_some_are_named(broken: Break) -> None:
    (found,) = broken(
        "INSERT INTO syncswitch_policy_aliases (fingerprint, alias, version)"
        " SELECT 'f' || trial_id || number, 'a', 1 FROM syncswitch_trials,"
        " (SELECT 10 AS number UNION SELECT 11 UNION SELECT 12) AS numbers"
    )
    assert "(12): a of f" in found.what
    assert found.what.endswith(", ...")
    assert found.what.count(" at ") == 6  # the first stands in the description


@only_sqlite
@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("DROP VIEW syncswitch_trial_facts", "syncswitch_trial_facts"),
        ("DROP INDEX uq_syncswitch_policies_study", "uq_syncswitch_policies_study"),
        ("DROP TABLE syncswitch_evaluations", "syncswitch_evaluations"),
        ("DROP TABLE syncswitch_checkpoints", "syncswitch_checkpoints"),
        ("DROP TABLE syncswitch_events", "syncswitch_events"),
        ("ALTER TABLE syncswitch_trials DROP COLUMN fork_from", "syncswitch_trials.fork_from"),
    ],
)
def test_what_is_missing_is_named(broken: Break, change: str, missing: str) -> None:
    (found,) = broken(change)
    assert (found.kind, found.what) == ("schema", f"missing (1): {missing}")
    assert not is_readable([found])


@pytest.mark.usefixtures("our_tables")
def test_a_constraint_that_was_dropped_is_missed(postgresql_url: str) -> None:
    """SQLite cannot drop one."""
    with open_database(postgresql_url, create=True) as database:
        with database.session() as session:
            name = "ck_syncswitch_trials_state"
            session.execute(text(f"ALTER TABLE syncswitch_trials DROP CONSTRAINT {name}"))
        (found,) = findings(database)
        assert found.what == f"missing (1): {name}"


def test_what_users_added_is_none_of_our_business(broken: Break) -> None:
    assert not broken(
        "CREATE TABLE my_notes (note TEXT)",
        "CREATE INDEX my_index ON syncswitch_trials (host)",
        "ALTER TABLE syncswitch_trials ADD COLUMN my_column TEXT",
        "CREATE VIEW my_view AS SELECT host FROM syncswitch_trials",
    )


@only_sqlite
def test_a_damaged_file_is_found(path: Path, sound: Database) -> None:
    sound.close()
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'ix_syncswitch_workloads_name'"
        (page,) = connection.execute(query).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\x99" * size
    path.write_bytes(content)
    found = findings(sound)
    assert found[0].kind == "integrity"
    assert not is_readable(found)


@only_sqlite
def test_a_value_that_a_constraint_forbids_is_found(path: Path, sound: Database) -> None:
    """PostgreSQL has no way around its checks; SQLite has."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        connection.execute("UPDATE syncswitch_policies SET switch_percent = 140 WHERE version = 2")
    found = findings(sound)
    assert [finding.kind for finding in found] == ["integrity", "policy"]
    assert "CHECK constraint failed in syncswitch_policies" in found[0].what
    assert "switch_percent" in found[1].what


def test_tables_of_another_revision_are_not_looked_at(sound: Database) -> None:
    with sound.session() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0000'"))
    content, engine = examined(sound.url, may_create=False)
    with Database(sound.url, engine) as database:
        (found,) = storage_findings(database, content)
    assert "revision 0000" in found.what
    assert "db upgrade" in found.fix
    assert not is_readable([found])


def test_an_empty_database_is_told_how_to_begin(url: str, path: Path) -> None:
    path.touch()
    content, engine = examined(url, may_create=False)
    with Database(url, engine) as database:
        (found,) = storage_findings(database, content)
    assert (found.kind, found.what) == ("revision", "no tables of syncswitch")


def test_examples_are_few() -> None:
    assert listed("things", ["a"], 1) == "things (1): a"
    assert listed("things", list("abcde"), 5) == "things (5): a, b, c, d, e"
    assert listed("things", list("abcdef"), 9) == "things (9): a, b, c, d, e, ..."
