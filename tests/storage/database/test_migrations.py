from __future__ import annotations

from datetime import datetime
from typing import Any

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, insert, inspect, text
from sqlalchemy.exc import IntegrityError

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import REVISION, VERSION_TABLE, driver_url
from syncswitch.storage.database.migrations import configuration
from syncswitch.storage.database.migrations.env import is_ours
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import TABLE_PREFIX, Base, PolicyRow
from syncswitch.storage.trials.store import TrialStore
from tests.storage.schema import schema


def differences(engine: Engine) -> list[Any]:
    options = {"version_table": VERSION_TABLE, "include_name": is_ours, "compare_type": True}
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, Base.metadata))


def test_alembic_finds_no_difference_between_migrations_and_models(database: Database) -> None:
    assert differences(database.engine) == []


def test_the_migrations_make_what_the_models_describe(database: Database, other_url: str) -> None:
    described = create_engine(driver_url(other_url))
    Base.metadata.create_all(described)
    expected, found = schema(described, Base.metadata), schema(database.engine, Base.metadata)
    described.dispose()
    # All that Alembic's comparison leaves out is there to be compared.
    assert sum(len(table["checks"]) for table in expected.values()) > 30
    assert sum("imported_at" in str(table["indices"]) for table in expected.values()) == 1
    assert found == expected


def test_the_view_has_the_columns_that_are_described(database: Database) -> None:
    columns = inspect(database.engine).get_columns(TRIAL_FACTS.name)
    assert [column["name"] for column in columns] == TRIAL_FACTS.columns.keys()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE syncswitch_trials DROP COLUMN fork_from",
        "DROP INDEX uq_syncswitch_policies_study",
        "DROP TABLE syncswitch_evaluations",
    ],
)
def test_a_difference_would_be_seen(database: Database, change: str) -> None:
    with database.session() as session:
        session.execute(text(change))
    assert differences(database.engine) != []


def test_the_tables_of_optuna_are_left_alone(url: str) -> None:
    optuna.create_study(storage=driver_url(url))
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


@pytest.mark.parametrize(
    ("name", "value", "possible"),
    [
        ("switch_percent", -0.1, 0.0),
        ("switch_percent", 100.1, 100.0),
        ("switch_percent", None, 50.0),
        ("switch_percent", float("nan"), 50.0),
        ("confidence", -0.1, 0.0),
        ("confidence", 1.1, 1.0),
        ("confidence", 97.0, None),
        ("criterion", "best", "kept"),
        ("criterion", None, "mean"),
        ("keep", 95.0, 0.95),
        ("kept_share", 1.1, 1.0),
        ("baseline_kept_share", -0.1, None),
        ("speed_up_low", -0.1, 0.9),
        ("speed_up_high", -0.1, None),
    ],
)
def test_the_database_itself_refuses_an_impossible_policy(
    database: Database,
    store: TrialStore,
    policy: TimingPolicy,
    name: str,
    value: float | str | None,
    possible: float | str | None,
) -> None:
    names = set(PolicyRow.__table__.columns.keys()) - {"imported_at"}
    values = {column: getattr(policy, column) for column in names}
    values["created_at"] = datetime.fromisoformat(policy.created_at)

    def add(changed: float | str | None) -> None:
        with database.engine.begin() as connection:
            connection.execute(insert(PolicyRow).values({**values, name: changed}))

    with pytest.raises(IntegrityError, match=name):
        add(value)
    add(possible)
