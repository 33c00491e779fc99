from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import IntegrityError

from syncswitch.storage.engine import Database, open_database
from syncswitch.storage.inspection import REVISION, VERSION_TABLE
from syncswitch.storage.migrations import configuration
from syncswitch.storage.migrations.env import is_ours
from syncswitch.storage.models import TABLE_PREFIX, Base


def differences(engine: Engine) -> list[Any]:
    options = {"version_table": VERSION_TABLE, "include_name": is_ours, "compare_type": True}
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, Base.metadata))


def checks(engine: Engine) -> dict[str, set[tuple[str, str]]]:
    found = inspect(engine)
    return {
        table: {
            (str(check["name"]), str(check["sqltext"]))
            for check in found.get_check_constraints(table)
        }
        for table in Base.metadata.tables
    }


def test_the_migrations_make_what_the_models_describe(database: Database) -> None:
    assert differences(database.engine) == []


def test_the_migrations_make_the_checks_of_the_models(database: Database, tmp_path: Path) -> None:
    described = create_engine(f"sqlite:///{tmp_path}/described.db")
    Base.metadata.create_all(described)
    expected = checks(described)
    described.dispose()
    assert sum(map(len, expected.values())) > 30  # Alembic's comparison leaves them out
    assert checks(database.engine) == expected


def test_a_difference_would_be_seen(database: Database) -> None:
    with database.session() as session:
        session.execute(text("ALTER TABLE syncswitch_trials DROP COLUMN fork_from"))
    assert differences(database.engine) != []


def test_the_tables_of_optuna_are_left_alone(url: str) -> None:
    optuna.create_study(storage=url)
    with open_database(url, create=True) as database:
        assert differences(database.engine) == []


def test_the_constant_is_the_newest_revision() -> None:
    assert ScriptDirectory.from_config(configuration()).get_heads() == [REVISION]


def test_no_table_can_meet_one_of_optuna() -> None:
    names = [*Base.metadata.tables, VERSION_TABLE]
    assert all(name.startswith(TABLE_PREFIX) for name in names)


def test_every_constraint_has_a_name_that_postgresql_can_hold() -> None:
    for table in Base.metadata.tables.values():
        names = [part.name for part in table.constraints] + [part.name for part in table.indexes]
        assert all(name and len(str(name)) <= 63 for name in names)


@pytest.mark.parametrize("percent", [-0.1, 100.1, None, float("nan")])
def test_the_database_itself_refuses_an_impossible_percent(
    database: Database, percent: float | None
) -> None:
    statement = text(
        "INSERT INTO syncswitch_policies (fingerprint, version, workload, workers,"
        " total_worker_steps, first_protocol, second_protocol, switch_percent, target_accuracy,"
        " threshold, strategy, study, created_at, software) VALUES ('f', 1, 'w', 1, 1, 'a', 'b',"
        " :percent, 0.9, 0.1, 's', 's', '2026-01-01 00:00:00', '{}')"
    )
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys")
        with pytest.raises(IntegrityError, match="switch_percent"):
            connection.execute(statement, {"percent": percent})
