"""What is asked every day never reads a whole table, however large the database grows.

SQLite plans by the indices alone, so an empty database shows how a full one answers.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.queries import run_rows
from syncswitch.storage.queries.policies import use_facts
from syncswitch.storage.queries.summaries import switch_point_statistics
from syncswitch.storage.tables.trials import TRIALS
from syncswitch.storage.trials.evaluations import record_target
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import uses

IMPORTED = (TRIALS.c.fingerprint == "a" * 64) & TRIALS.c.source.is_not(None)

OPERATIONS: dict[str, Callable[[Database], object]] = {
    "policy by name": lambda database: PolicyRegistry(database).lookup("digits"),
    "policy by fingerprint": lambda database: PolicyRegistry(database).lookup("0123456789ab"),
    "policy of a cluster": lambda database: PolicyRegistry(database).lookup(
        "digits", workers=4, protocols=("bsp", "asp"), alias="pinned"
    ),
    "evidence": lambda database: PolicyRegistry(database).evidence_trials("a" * 64, 1),
    "policies": lambda database: PolicyRegistry(database).policies(workload="digits"),
    "learning curve": lambda database: TrialStore(database).evaluations("digits-1", 3),
    "events": lambda database: TrialStore(database).events("digits-1", 3),
    "curves of a workload": lambda database: TrialStore(database).curves("a" * 64),
    "uses of a policy": lambda database: uses(database, "a" * 64),
    "uses": lambda database: use_facts(database, workload="digits"),
    "checkpoints": lambda database: TrialStore(database).checkpoints("digits-1"),
    "checkpoints forgotten": lambda database: TrialStore(database).forget_checkpoints("digits-1"),
    "trial": lambda database: TrialStore(database).get("digits-1", 3),
    "trials of a search": lambda database: TrialStore(database).trials(study="digits-1"),
    "trials of a workload": lambda database: TrialStore(database).trials(workload="digits"),
    "searches": lambda database: TrialStore(database).searches(workload="digits"),
    "target": lambda database: TrialStore(database).set_target("digits-1", 0.9),
    "imported target": lambda database: database.write(
        lambda connection: record_target(connection, IMPORTED, 0.9)
    ),
    "switch_points": lambda database: switch_point_statistics(database, workload="digits"),
    "switch points of a search": lambda database: switch_point_statistics(
        database, study="digits-1"
    ),
    "curves": lambda database: read(database, run_rows.evaluations({"workload": "digits"})),
    "events of a workload": lambda database: read(
        database, run_rows.events({"workload": "digits"})
    ),
    "times": lambda database: read(database, run_rows.accuracy_times({"workload": "digits"}, 0.9)),
}


def read(database: Database, query: Any) -> object:
    with database.transaction(read_only=True) as connection:
        return connection.execute(query).all()


def plan(database: Database, operation: Callable[[Database], object]) -> list[str]:
    """How SQLite carries out each statement of an operation."""
    statements: list[tuple[str, Any]] = []

    def note(_: Connection, __: object, statement: str, values: Any, *___: object) -> None:
        if statement.startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
            statements.append((statement, values))

    event.listen(Engine, "before_cursor_execute", note)
    operation(database)
    event.remove(Engine, "before_cursor_execute", note)
    assert statements
    with database.engine.connect() as connection:
        return [
            row[-1]
            for statement, values in statements
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        ]


def scanned(steps: list[str]) -> list[str]:
    """The tables that are read as a whole; the view calls them t, w and p."""
    scan = re.compile(r"SCAN (?:TABLE )?(syncswitch_\w+|[twp])\b")
    return [found[1] for step in steps if (found := scan.match(step))]


@pytest.fixture(scope="module")
def database(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Empty."""
    path = shutil.copy(sqlite_template, tmp_path_factory.mktemp("plans"))
    with open_database(f"sqlite:///{path}", create=False) as opened:
        yield opened


@pytest.mark.parametrize("name", OPERATIONS)
def test_reads_no_whole_table(database: Database, name: str) -> None:
    steps = plan(database, OPERATIONS[name])
    assert scanned(steps) == [], steps


def test_a_question_about_all_trials_does(database: Database) -> None:
    assert "t" in scanned(plan(database, lambda d: TrialStore(d).trials()))
    assert "t" in scanned(plan(database, switch_point_statistics))
