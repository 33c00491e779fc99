"""The protocols are no part of the job any more: trials, searches and policies have them.

So jobs that differed in their protocols alone become one, with the policies of all.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic import op
from sqlalchemy import Connection, inspect, text

from syncswitch.storage.records.digest import digest_of

revision = "0006"
down_revision = "0005"

_OF_JOB = (
    "name",
    "total_worker_steps",
    "workers",
    "model",
    "data_set",
    "loss",
    "optimizer",
    "batch_size",
    "learning_rate",
    "momentum",
    "learning_rate_boundaries",
    "evaluation_interval_worker_steps",
    "metric",
    "metric_goal",
    "metric_unit",
    "metric_lowest",
    "metric_highest",
    "simulated_cluster",
)
_PROTOCOLS = ("first_protocol", "second_protocol", "momentum_after_switch")


def upgrade() -> None:
    """Moves the columns, and gives the jobs their new fingerprints."""
    connection = op.get_bind()
    _copy_protocols(connection)
    with _references_checked_at_the_end(connection):
        _renumber(connection)
    for name in _PROTOCOLS:
        op.drop_column("syncswitch_workloads", name)
    _name_dropped(connection)


def _name_dropped(connection: Connection) -> None:
    """Lets a search say of several pairs why they lost; before, each had a search of its own."""
    op.alter_column("syncswitch_searches", "dropped", new_column_name="why_dropped")
    op.execute("ALTER TABLE syncswitch_searches ADD COLUMN dropped JSON DEFAULT '{}' NOT NULL")
    if connection.dialect.name != "sqlite":
        op.execute("ALTER TABLE syncswitch_searches ALTER COLUMN dropped DROP DEFAULT")
    searches = connection.execute(
        text(
            "SELECT study, first_protocol, second_protocol, why_dropped FROM syncswitch_searches"
            " WHERE why_dropped IS NOT NULL"
        )
    ).all()
    for study, first, second, why in searches:
        connection.execute(
            text("UPDATE syncswitch_searches SET dropped = :dropped WHERE study = :study"),
            {"dropped": json.dumps({f"{first},{second}": why}), "study": study},
        )
    op.drop_column("syncswitch_searches", "why_dropped")


def _copy_protocols(connection: Connection) -> None:
    of_workload = (
        "(SELECT w.{name} FROM syncswitch_workloads AS w WHERE w.fingerprint = {table}.fingerprint)"
    )
    # What a workload of ours leaves unsaid is the rule that there was at first.
    op.execute(
        "UPDATE syncswitch_workloads SET momentum_after_switch = 'same'"
        " WHERE momentum_after_switch IS NULL AND batch_size IS NOT NULL"
    )
    for table in ("syncswitch_trials", "syncswitch_searches", "syncswitch_policies"):
        there = {column["name"] for column in inspect(connection).get_columns(table)}
        for name in _PROTOCOLS:
            if name in there:
                continue
            needed = "" if name == "momentum_after_switch" else " DEFAULT '' NOT NULL"
            op.execute(f"ALTER TABLE {table} ADD COLUMN {name} VARCHAR(64){needed}")
            value = of_workload.format(name=name, table=table)
            op.execute(f"UPDATE {table} SET {name} = {value}")
            if needed and connection.dialect.name != "sqlite":
                op.execute(f"ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT")


@contextmanager
def _references_checked_at_the_end(connection: Connection) -> Iterator[None]:
    if connection.dialect.name == "sqlite":
        op.execute("PRAGMA defer_foreign_keys = ON")
        yield
        return
    tables = [
        name for name in inspect(connection).get_table_names() if name.startswith("syncswitch_")
    ]
    keys = [
        (table, key["name"])
        for table in tables
        for key in inspect(connection).get_foreign_keys(table)
    ]
    for table, key in keys:
        op.execute(f"ALTER TABLE {table} ALTER CONSTRAINT {key} DEFERRABLE INITIALLY DEFERRED")
    yield
    op.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for table, key in keys:
        op.execute(f"ALTER TABLE {table} ALTER CONSTRAINT {key} NOT DEFERRABLE")


def _renumber(connection: Connection) -> None:
    rows = connection.execute(
        text("SELECT * FROM syncswitch_workloads ORDER BY registered_at, fingerprint")
    ).mappings()
    jobs: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows.all():
        jobs[_fingerprint(row)].append(row)
    for new, workloads in jobs.items():
        _move(connection, new, [row["fingerprint"] for row in workloads])
        last = workloads[-1]
        for row in workloads[:-1]:
            connection.execute(
                text("DELETE FROM syncswitch_workloads WHERE fingerprint = :old"),
                {"old": row["fingerprint"]},
            )
        connection.execute(
            text(
                "UPDATE syncswitch_workloads SET fingerprint = :new, next_seed = :seed"
                " WHERE fingerprint = :old"
            ),
            {
                "new": new,
                "old": last["fingerprint"],
                "seed": max(row["next_seed"] for row in workloads),
            },
        )


def _fingerprint(row: Any) -> str:
    content = {name: row[name] for name in _OF_JOB}
    boundaries = content["learning_rate_boundaries"]
    if isinstance(boundaries, str):
        content["learning_rate_boundaries"] = json.loads(boundaries)
    if content["model"] is not None:
        del content["name"]
    return digest_of({"version": 2, **content})


def _move(connection: Connection, new: str, olds: list[str]) -> None:
    """Gives all that belongs to some jobs to one, whose policies are numbered by their time."""
    named = {f"old{number}": old for number, old in enumerate(olds)}
    is_old = f"fingerprint IN ({', '.join(f':{name}' for name in named)})"
    policies = connection.execute(
        text(
            "SELECT fingerprint, version FROM syncswitch_policies"
            f" WHERE {is_old} ORDER BY created_at, fingerprint, version"
        ),
        named,
    ).all()
    for version, (old, before) in enumerate(policies, 1):
        values = {"new": new, "version": version, "old": old, "before": before}
        # The newest policy keeps an alias that several have.
        connection.execute(
            text(
                "DELETE FROM syncswitch_policy_aliases WHERE fingerprint = :new AND alias IN"
                " (SELECT a.alias FROM syncswitch_policy_aliases AS a"
                " WHERE a.fingerprint = :old AND a.version = :before)"
            ),
            values,
        )
        for table in ("policies", "policy_evidence", "policy_aliases"):
            connection.execute(
                text(
                    f"UPDATE syncswitch_{table} SET fingerprint = :new, version = :version"
                    " WHERE fingerprint = :old AND version = :before"
                ),
                values,
            )
        connection.execute(
            text(
                "UPDATE syncswitch_trials SET fingerprint = :new, policy_version = :version"
                " WHERE fingerprint = :old AND policy_version = :before"
            ),
            values,
        )
    for table in ("trials", "searches"):
        connection.execute(
            text(f"UPDATE syncswitch_{table} SET fingerprint = :new WHERE {is_old}"),
            {"new": new, **named},
        )
