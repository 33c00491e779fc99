"""Engines of one kind share their SQL, and others do not."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, select
from sqlalchemy.pool import StaticPool

TABLE = Table("ones", MetaData(), Column("one", Integer))
OTHER = Table("ones", MetaData(), Column("two", Integer))


def cached(statement: Any, **options: Any) -> bool:
    """Whether a new engine had it as SQL already."""
    engine = create_engine("sqlite://", poolclass=StaticPool, **options)
    with engine.connect() as connection:
        connection.exec_driver_sql("create table ones (one integer, two integer)")
        hit: str = connection.execute(statement).context._get_cache_stats()
    engine.dispose()
    return "cached since" in hit


def test_a_new_engine_knows_what_another_one_has_said() -> None:
    assert [cached(select(TABLE)) for _ in range(2)] == [False, True]


def test_another_table_of_the_same_name_is_another_statement() -> None:
    assert not cached(select(OTHER))


def test_an_engine_with_other_options_keeps_its_own() -> None:
    assert not cached(select(TABLE), paramstyle="named")
