"""Embedding tables in this process, for one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.tables.file import TableForm, kept_tables
from syncswitch.trainers.model.tables.held import HeldTables
from syncswitch.trainers.model.tables.servers import TableServers
from syncswitch.trainers.model.tables.shard import ShardPlan, TableShard


class LocalTables:
    """Rows that all workers share; those that they have pulled stay as they were.

    Args:
        plan: Of all rows.
        forms: Of the tables.

    Attributes:
        shard: All rows.
    """

    def __init__(self, plan: ShardPlan, forms: Sequence[TableForm]) -> None:
        self._forms = forms
        self.shard = TableShard(plan)
        self._servers = TableServers([HeldTables(self.shard, nullcontext())], forms)

    def load(self, state: ModelState) -> ModelState:
        """Takes over the tables of a state; the rest of it."""
        if state.tables is None:
            return state
        self.shard.reset(state.updates)
        self._servers.load(state.tables)
        return replace(state, tables=None)

    @contextmanager
    def with_tables(self, state: ModelState) -> Iterator[ModelState]:
        """The state with the tables as they are now, which can be read meanwhile."""
        if not self._forms:
            yield state
            return
        self.shard.mark()
        try:
            yield replace(state, tables=self._servers.marked())
        finally:
            self._servers.end_read()

    def kept(self, state: ModelState) -> ModelState:
        """The state with a copy of the tables.

        Raises:
            NoRoomForTablesError: There is no place for it.
        """
        with self.with_tables(state) as whole:
            if whole.tables is None:
                return state
            return replace(state, tables=kept_tables(self._forms, whole.tables))
