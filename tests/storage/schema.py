"""A test tool: everything that a database says of the tables of some models."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, MetaData, inspect, text


def schema(engine: Engine, tables: MetaData) -> dict[str, dict[str, Any]]:
    """What there is by table, in terms that compare, without the order of the columns."""
    return {name: _table(engine, name) for name in tables.tables}


def _table(engine: Engine, name: str) -> dict[str, Any]:
    found = inspect(engine)
    key = found.get_pk_constraint(name)
    return {
        "columns": {
            column["name"]: (
                str(column["type"]),
                column["nullable"],
                str(column.get("computed", {}).get("sqltext")),
                None if column.get("autoincrement") else column["default"],
            )
            for column in found.get_columns(name)
        },
        "key": (key["name"], tuple(key["constrained_columns"])),
        "references": {
            (
                reference["name"],
                tuple(reference["constrained_columns"]),
                reference["referred_table"],
                tuple(reference["referred_columns"]),
                str(reference["options"]),
            )
            for reference in found.get_foreign_keys(name)
        },
        "unique": {
            (unique["name"], tuple(unique["column_names"]))
            for unique in found.get_unique_constraints(name)
        },
        "checks": {
            (check["name"], str(check["sqltext"])) for check in found.get_check_constraints(name)
        },
        "indices": {
            (
                index["name"],
                tuple(index["column_names"]),
                bool(index["unique"]),
                # The rows that a partial index is for.
                str({key: str(value) for key, value in index["dialect_options"].items()}),
            )
            for index in found.get_indexes(name)
        },
        "has_row_numbers": _has_row_numbers(engine, name),
    }


def _has_row_numbers(engine: Engine, name: str) -> bool:
    if engine.dialect.name != "sqlite":
        return True
    query = text("SELECT sql FROM sqlite_master WHERE name = :name")
    with engine.connect() as connection:
        return "WITHOUT ROWID" not in str(connection.scalar(query, {"name": name}))
