"""Large results in blocks of rows, so that memory stays bounded however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Row, Select

from syncswitch.storage.database.engine import Database

ROWS_AT_ONCE = 10_000
"""Rows of a block, which takes a few megabytes."""


def row_blocks(
    database: Database, query: Select[Any], rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[Sequence[Row[Any]]]:
    """The rows of a query in blocks; all of them are of the moment when the first was read.

    The transaction is open until the last block was taken or the iterator is closed. The last block
    may be smaller; without rows there is none.
    """
    with database.transaction(read_only=True) as connection:
        # A server sends no more than this at a time, too.
        options = {"yield_per": rows_at_once}
        yield from connection.execute(query, execution_options=options).partitions()
