"""Databases as each revision of the software wrote them, brought to the current one.

The files in `golden` are what users have; see `golden/make.py`.
"""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import os
import resource
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, create_engine, event, insert, inspect, null, select, text

from syncswitch.storage.database.engine import open_database, upgrade_database
from syncswitch.storage.database.inspection import REVISION, VERSION_TABLE, driver_url
from syncswitch.storage.database.migrations import configuration
from syncswitch.storage.errors import DatabaseError, FatalError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import Base, WorkloadRow
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.workloads import registered_workload
from tests.conftest import make_database
from tests.storage.golden.make import CONDITIONS, EVENTS, PROMISE
from tests.storage.schema import schema

Run = Callable[[Callable[[int], Any], int], list[Any]]
Row = dict[str, Any]

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.sql"))
OLDER = [file for file in GOLDEN if file.stem != REVISION]
every_revision = pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
every_older_revision = pytest.mark.parametrize("file", OLDER, ids=lambda file: file.stem)


def load_sqlite(file: Path, path: Path) -> str:
    """Makes the file again; write-ahead logging is what `open_database` had set."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(file.read_text())
        connection.execute("PRAGMA journal_mode=WAL")
    return f"sqlite:///{path}"


def load_postgresql(file: Path, path: Path, url: str) -> None:
    """Makes the tables of this revision by its migrations, and copies our rows into them."""
    source = create_engine(load_sqlite(file, path))
    target = create_engine(driver_url(url))
    with target.begin() as connection:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, file.stem)
    made, kept = MetaData(), MetaData()
    made.reflect(target)
    kept.reflect(source, only=[name for name in made.tables if name != VERSION_TABLE])
    with source.connect() as reader, target.begin() as writer:
        for old in kept.sorted_tables:
            new = made.tables[old.name]
            own = [column.name for column in new.columns if column.computed is None]
            for row in reader.execute(select(old).order_by(*old.primary_key)).mappings():
                writer.execute(insert(new).values({name: _in_utc(row[name]) for name in own}))
        key = (
            "SELECT setval(pg_get_serial_sequence('syncswitch_trials', 'trial_id'), max(trial_id))"
        )
        writer.execute(text(f"{key} FROM syncswitch_trials"))
    source.dispose()
    target.dispose()


def _in_utc(value: Any) -> Any:
    if value is None:
        return null()  # in a column of JSON, too
    return value.replace(tzinfo=timezone.utc) if isinstance(value, datetime) else value


def rows_of(url: str) -> dict[str, list[Row]]:
    """All rows of all tables as their driver gives them, whatever revision they have."""
    engine = create_engine(driver_url(url))
    found: dict[str, list[Row]] = {}
    with engine.connect() as connection:
        for name in inspect(connection).get_table_names():
            rows = connection.exec_driver_sql(f"SELECT * FROM {name}").mappings()
            # By the first columns, which a migration leaves where they are.
            found[name] = sorted(map(dict, rows), key=lambda row: str(list(row.values())[:3]))
    engine.dispose()
    return found


DESCRIPTIONS = {
    "sqlite": ["SELECT name, sql FROM sqlite_master"],
    "postgresql": [
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public'",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    ],
}


def content_of(url: str) -> tuple[dict[str, list[Row]], set[tuple[Any, ...]]]:
    """Everything in a database: its rows, and what it says of its tables and views."""
    engine = create_engine(driver_url(url))
    with engine.connect() as connection:
        described = {
            tuple(row)
            for query in DESCRIPTIONS[engine.dialect.name]
            for row in connection.exec_driver_sql(query)
        }
    engine.dispose()
    return rows_of(url), described


@pytest.fixture(scope="module")
def golden_postgresql(
    administrator: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], str]:
    """Makes a golden database on the server, once, to be copied; gives its name."""

    @functools.cache
    def make(file: Path) -> str:
        name = f"golden_{file.stem}"
        source = tmp_path_factory.mktemp("golden") / "source.db"
        load_postgresql(file, source, make_database(administrator, name))
        return name

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def loaded(request: pytest.FixtureRequest, path: Path) -> Callable[[Path], str]:
    """Puts a golden database where this test has its own, of each kind; gives the URL."""
    if request.param == "sqlite":
        return lambda file: load_sqlite(file, path)
    new, golden = (request.getfixturevalue(f"{way}_postgresql") for way in ("new", "golden"))
    return lambda file: str(new(golden(file)))


Load = Callable[[Path], str]


def test_every_revision_has_a_golden_database() -> None:
    """Where the last one is missing: `python -m tests.storage.golden.make`."""
    revisions = ScriptDirectory.from_config(configuration()).walk_revisions()
    assert {revision.revision for revision in revisions} == {file.stem for file in GOLDEN}


@every_older_revision
def test_an_older_database_is_refused_untouched(file: Path, loaded: Load) -> None:
    url = loaded(file)
    before = content_of(url)
    for create in (True, False):
        with pytest.raises(DatabaseError, match=r"older.*`syncswitch-search db upgrade") as caught:
            open_database(url, create=create)
        assert "\n" not in str(caught.value)
    assert content_of(url) == before


@every_revision
def test_an_upgrade_keeps_every_value(file: Path, loaded: Load) -> None:
    url = loaded(file)
    before = rows_of(url)
    assert upgrade_database(url) == file.stem
    after = rows_of(url)
    assert before.pop(VERSION_TABLE) == [{"version_num": file.stem}]
    assert after.pop(VERSION_TABLE) == [{"version_num": REVISION}]
    assert sum(map(len, before.values())) > 80
    for row in before["syncswitch_searches"] if file.stem < "0007" else ():
        if row["strategy"] == "adaptive":  # which had only this criterion
            row["options"] = _with_mean(row["options"])
    for table, rows in before.items():
        names = rows[0].keys() if rows else ()
        assert [{name: row[name] for name in names} for row in after[table]] == rows, table


def _with_mean(options: Any) -> Any:
    """Options as a driver gives them: as text, or as they are."""
    if isinstance(options, str):
        return json.dumps({**json.loads(options), "criterion": "mean"})
    return {**options, "criterion": "mean"}


@every_revision
def test_an_upgraded_database_is_as_one_made_anew(
    file: Path, loaded: Load, folder: Path, request: pytest.FixtureRequest
) -> None:
    url = loaded(file)
    upgrade_database(url)
    is_sqlite = url.startswith("sqlite")
    other = f"sqlite:///{folder}/o.db" if is_sqlite else request.getfixturevalue("new_postgresql")()
    described = create_engine(driver_url(other))
    Base.metadata.create_all(described)
    with open_database(url, create=False) as database:
        assert schema(database.engine, Base.metadata) == schema(described, Base.metadata)
        with database.engine.connect() as connection:
            trials = connection.scalar(text("SELECT count(*) FROM syncswitch_trials"))
            assert len(connection.execute(select(TRIAL_FACTS)).all()) == trials
            if is_sqlite:
                assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    described.dispose()


@every_revision
def test_both_kinds_of_database_hold_the_same_afterwards(
    file: Path,
    path: Path,
    golden_postgresql: Callable[[Path], str],
    new_postgresql: Callable[[str], str],
) -> None:
    found = []
    for url in (load_sqlite(file, path), new_postgresql(golden_postgresql(file))):
        upgrade_database(url)
        with open_database(url, create=False) as database, database.engine.connect() as connection:
            found.append(
                {
                    table.name: sorted(connection.execute(select(table)).all(), key=str)
                    for table in (*Base.metadata.tables.values(), TRIAL_FACTS)
                }
            )
    assert found[0] == found[1]


def test_revision_0002_fills_its_columns_from_what_was_there(loaded: Load) -> None:
    url = loaded(GOLDEN[0])
    before = rows_of(url)
    upgrade_database(url)
    after = rows_of(url)
    fingerprints = {row["study"]: row["fingerprint"] for row in before["syncswitch_searches"]}
    targets = {row["study"]: row["target_accuracy"] for row in before["syncswitch_policies"]}
    reached = 0
    for old, new in zip(before["syncswitch_trials"], after["syncswitch_trials"], strict=True):
        target = targets.get(old["study"]) if old["state"] == "complete" else None
        times = [
            row["elapsed_seconds"]
            for row in before["syncswitch_evaluations"]
            if row["trial_id"] == old["trial_id"] and target and row["accuracy"] >= target
        ]
        reached += bool(times)
        added = {name: value for name, value in new.items() if name not in old}
        assert added == {
            "fingerprint": fingerprints[old["study"]],
            "source": None,
            "candidate_percent": old["switch_percent"],
            "parent_trial_id": None,
            "fork_percent": None,
            "target_accuracy": target,
            "time_to_accuracy_seconds": min(times, default=None),
            "online": "none",
            "switch_mechanism": "hot",
            "injections": None,
            "speculative": False,
            "converged_evaluations": 5 if old["state"] == "complete" else None,
        }
    assert 0 < reached < len(after["syncswitch_trials"])
    for row in after["syncswitch_phases"]:
        steps = row["end_worker_step"] - row["start_worker_step"]
        assert row["worker_steps_per_second"] == steps / row["seconds"] > 0
    assert {row["imported_at"] for row in after["syncswitch_policies"]} == {None}


@pytest.mark.parametrize("file", GOLDEN[:2], ids=lambda file: file.stem)
def test_revision_0003_says_nothing_of_what_was_there(file: Path, loaded: Load) -> None:
    url = loaded(file)
    upgrade_database(url)
    with open_database(url, create=False) as database:
        searches = TrialStore(database).searches()
        assert [search.options for search in searches] == [{}] * 3
        policies = PolicyRegistry(database).policies()
        assert {policy.confidence for policy in policies} == {None}
        assert [TrialStore(database).checkpoints(search.study) for search in searches] == [[]] * 3


def test_revision_0003_has_options_checkpoints_and_a_confidence(loaded: Load) -> None:
    url = loaded(GOLDEN[2])
    upgrade_database(url)
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        (options,) = [search.options for search in store.searches() if search.options]
        written = {"spread": 0.004, "shares": [0.5, 1], "is_warm": True, "from": None}
        assert options == {**written, "criterion": "mean"}
        (sure,) = [p for p in PolicyRegistry(database).policies() if p.confidence is not None]
        assert (sure.strategy, sure.confidence) == ("adaptive", 0.97)
        left = store.checkpoints(sure.evidence[0].study)
        assert {found.trial_number for found in left} == {
            trial.trial_number for trial in sure.evidence
        }
        assert [found.percent for found in left] == [12.5] * 3 + [50.0] * 3
        assert left[0].path == Path("/golden/100-0/12.5.npz")


def test_revision_0003_says_how_long_a_stopped_run_would_have_taken(loaded: Load) -> None:
    columns = (TRIAL_FACTS.c.switch_percent, TRIAL_FACTS.c.whole_run_seconds)
    url = loaded(GOLDEN[2])
    upgrade_database(url)
    with open_database(url, create=False) as database:
        trials = [trial for trial in TrialStore(database).trials() if trial.stopped_early]
        with database.session(read_only=True) as session:
            shown = session.execute(select(*columns).where(TRIAL_FACTS.c.stopped_early)).all()
    # All of a run takes 100 s with BSP and 40 s with ASP; each was stopped at 80 %.
    wholes = {50.0: pytest.approx(70.0), 25.0: pytest.approx(55.0)}
    assert {trial.switch_percent: trial.whole_run_seconds for trial in trials} == wholes
    assert dict(map(tuple, shown)) == wholes
    assert [trial.training_seconds for trial in trials] == pytest.approx([62.0, 47.0])


@every_revision
def test_a_workload_is_known_by_the_fingerprint_that_it_always_had(
    file: Path, loaded: Load
) -> None:
    url = loaded(file)
    upgrade_database(url)
    with open_database(url, create=False) as database:
        with database.session(read_only=True) as session:
            rows = session.scalars(select(WorkloadRow)).all()
            found = {row.fingerprint: registered_workload(row).identity for row in rows}
        assert len(found) >= 2
        for fingerprint, identity in found.items():
            assert identity.fingerprint == fingerprint


@pytest.mark.parametrize("file", GOLDEN[:3], ids=lambda file: file.stem)
def test_revision_0004_takes_what_was_there_for_real(file: Path, loaded: Load) -> None:
    url = loaded(file)
    upgrade_database(url)
    with open_database(url, create=False) as database:
        with database.session(read_only=True) as session:
            for column in (WorkloadRow.simulated_cluster, TRIAL_FACTS.c.simulated_cluster):
                assert set(session.scalars(select(column))) == {None}
        assert {trial.simulated_cluster for trial in TrialStore(database).trials()} == {None}


def test_revision_0004_tells_a_simulated_job_from_the_same_real_one(loaded: Load) -> None:
    url = loaded(GOLDEN[3])
    upgrade_database(url)
    with open_database(url, create=False) as database:
        with database.session(read_only=True) as session:
            query = select(TRIAL_FACTS).where(TRIAL_FACTS.c.simulated_cluster.is_not(None))
            shown = session.execute(query).all()
        registry = PolicyRegistry(database)
        (simulated,) = {row.fingerprint for row in shown}
        workload = registry.workload(simulated)
        assert workload is not None
        assert workload.identity.simulated_cluster == "5" * 64
        assert {row.simulated_cluster for row in shown} == {"5" * 64}
        real = replace(workload.identity, simulated_cluster=None).fingerprint
        (search,) = [info for info in TrialStore(database).searches() if info.trainer != "local"]
        assert (search.fingerprint, search.trainer) == (simulated, "simulated")
        assert {policy.fingerprint for policy in registry.lookup("generated")} == {simulated, real}


@pytest.mark.parametrize("file", GOLDEN[:4], ids=lambda file: file.stem)
def test_revision_0005_takes_what_was_there_for_undisturbed(file: Path, loaded: Load) -> None:
    url = loaded(file)
    upgrade_database(url)
    with open_database(url, create=False) as database:
        assert {trial.conditions for trial in TrialStore(database).trials()} == {RunConditions()}
    assert rows_of(url)["syncswitch_events"] == []


def test_revision_0005_has_conditions_and_events(loaded: Load) -> None:
    url = loaded(GOLDEN[4])
    upgrade_database(url)
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        trials = store.trials(workload="disturbed")
        assert {trial.conditions for trial in trials} == {CONDITIONS}
        others = {trial.conditions for trial in store.trials()} - {CONDITIONS}
        assert others == {RunConditions()}
        found = [store.events(trial.study or "", trial.trial_number or 0) for trial in trials]
        assert found == [list(EVENTS)] * 3


@pytest.mark.parametrize("file", GOLDEN[:5], ids=lambda file: file.stem)
def test_revision_0006_takes_what_was_there_for_needed(file: Path, loaded: Load) -> None:
    url = loaded(file)
    upgrade_database(url)
    with open_database(url, create=False) as database:
        trials = TrialStore(database).trials()
        assert {(trial.speculative, trial.is_cancelled) for trial in trials} == {(False, False)}
        failed = [trial for trial in trials if trial.state == "failed"]
        assert {(trial.training_seconds, trial.paid_seconds) for trial in failed} == {(None, None)}


def test_revision_0006_has_runs_in_advance_and_the_cost_of_a_cancelled_one(loaded: Load) -> None:
    url = loaded(GOLDEN[5])
    upgrade_database(url)
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        found = [trial for trial in store.trials() if trial.speculative]
        assert [trial.state for trial in found] == ["failed", "running"]
        assert [trial.is_cancelled for trial in found] == [True, False]
        assert [trial.paid_seconds for trial in found] == [pytest.approx(62.0), None]
        assert store.evaluations("under-way", 3) == []


@pytest.mark.parametrize("file", GOLDEN[:6], ids=lambda file: file.stem)
def test_revision_0007_takes_what_was_there_for_the_mean(file: Path, loaded: Load) -> None:
    url = loaded(file)
    upgrade_database(url)
    with open_database(url, create=False) as database:
        for policy in PolicyRegistry(database).policies():
            assert policy.criterion == "mean"
            promised = {name for name in PROMISE if getattr(policy, name) is not None}
            assert promised <= {"criterion", "confidence"}
            assert policy.reason is None
        searches = TrialStore(database).searches()
        criteria = {(search.strategy, search.options.get("criterion")) for search in searches}
        assert criteria <= {("paper", None), ("adaptive", "mean")}


def test_revision_0007_has_a_policy_that_promises_something(loaded: Load) -> None:
    url = loaded(GOLDEN[6])
    upgrade_database(url)
    with open_database(url, create=False) as database:
        (policy,) = [p for p in PolicyRegistry(database).policies() if p.criterion == "kept"]
    assert {name: getattr(policy, name) for name in PROMISE} == PROMISE
    assert (policy.study, policy.reason) == ("promise", "saves no time")


@pytest.mark.parametrize("file", GOLDEN[1:8], ids=lambda file: file.stem)
def test_revision_0008_says_of_how_many_tests_an_accuracy_is_the_mean(
    file: Path, loaded: Load
) -> None:
    url = loaded(file)
    upgrade_database(url)
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        found = set()
        for trial in store.trials():
            own = len(store.curves(trial.fingerprint).get(trial.trial_id, ()))
            known = min(5, own) if trial.source is None else 1
            expected = None if trial.converged_accuracy is None else known
            assert trial.converged_evaluations == expected
            found.add((trial.source is None, expected))
        assert {(True, 5), (True, None), (False, 1)} <= found


def test_revision_0008_knows_nothing_of_replayed_runs(loaded: Load) -> None:
    url = loaded(GOLDEN[1])
    engine = create_engine(driver_url(url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE syncswitch_searches SET trainer = 'replay'"))
    engine.dispose()
    upgrade_database(url)
    with open_database(url, create=False) as database:
        trials = TrialStore(database).trials()
    own = {trial.converged_evaluations for trial in trials if trial.source is None}
    assert own == {None}
    assert 1 in {trial.converged_evaluations for trial in trials if trial.source is not None}


@contextmanager
def at_statement(start: str, act: Callable[[], None]) -> Iterator[None]:
    """Acts before the first statement of this process that starts so; `COMMIT` counts as one."""

    def execute(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.lstrip().startswith(start):
            act()

    def commit(_: Any) -> None:
        if start == "COMMIT":
            act()

    event.listen(Engine, "before_cursor_execute", execute)
    event.listen(Engine, "commit", commit)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", execute)
        event.remove(Engine, "commit", commit)


def child(work: Callable[[], object]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize(
    "place",
    [
        "UPDATE syncswitch_trials SET target_accuracy",
        "CREATE VIEW",
        "DROP VIEW",
        "CREATE TABLE syncswitch_checkpoints",
        "CREATE TABLE syncswitch_events",
        "ALTER TABLE syncswitch_trials ADD COLUMN speculative",
        "UPDATE syncswitch_alembic_version SET version_num='0007'",
        "UPDATE syncswitch_trials AS t SET converged_evaluations",
        "COMMIT",
    ],
)
def test_an_upgrade_that_is_killed_leaves_the_old_database(loaded: Load, place: str) -> None:
    url = loaded(GOLDEN[0])
    before = content_of(url)

    def upgrade_and_die() -> None:
        with at_statement(place, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            upgrade_database(url)

    assert child(upgrade_and_die) == -signal.SIGKILL
    assert content_of(url) == before
    assert upgrade_database(url) == GOLDEN[0].stem
    open_database(url, create=False).close()


def test_an_upgrade_whose_last_step_fails_leaves_the_old_database(loaded: Load) -> None:
    url = loaded(GOLDEN[0])
    before = content_of(url)
    times = itertools.count()

    def fail() -> None:
        if next(times) == 0:
            raise ZeroDivisionError

    with (
        at_statement("UPDATE syncswitch_alembic_version", fail),
        pytest.raises(ZeroDivisionError),
    ):
        upgrade_database(url)
    assert content_of(url) == before
    assert upgrade_database(url) == GOLDEN[0].stem


def test_an_upgrade_without_room_says_so_and_leaves_the_old_file(
    sqlite_url: str, path: Path
) -> None:
    load_sqlite(GOLDEN[0], path)
    before = content_of(sqlite_url)

    def upgrade_without_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, -1))
        with pytest.raises(DatabaseError, match=r"cannot be used.*free space"):
            upgrade_database(sqlite_url)

    assert child(upgrade_without_room) == 0
    assert content_of(sqlite_url) == before
    assert upgrade_database(sqlite_url) == GOLDEN[0].stem


def test_of_many_processes_that_upgrade_one_does(loaded: Load, at_once: Run) -> None:
    url = loaded(GOLDEN[0])
    before = rows_of(url)["syncswitch_evaluations"]
    answers = at_once(lambda number: upgrade_database(url), 3)
    assert set(answers) <= {GOLDEN[0].stem, REVISION}
    assert answers.count(GOLDEN[0].stem) == 1
    assert rows_of(url)["syncswitch_evaluations"] == before
    open_database(url, create=False).close()


def test_a_lost_reference_stops_the_upgrade(sqlite_url: str, path: Path) -> None:
    load_sqlite(GOLDEN[0], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE syncswitch_evaluations SET trial_id = 999 WHERE trial_id = 2")
    before = content_of(sqlite_url)
    with pytest.raises(FatalError, match=r"a row of syncswitch_evaluations refers.*nothing was"):
        upgrade_database(sqlite_url)
    assert content_of(sqlite_url) == before
