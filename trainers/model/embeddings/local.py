"""Embeddings in this process, for one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from syncswitch.trainers.model.embeddings.file import EmbeddingForm, kept_embeddings
from syncswitch.trainers.model.embeddings.held import HeldEmbeddings
from syncswitch.trainers.model.embeddings.servers import EmbeddingServers
from syncswitch.trainers.model.embeddings.shard import EmbeddingShard, ShardPlan
from syncswitch.trainers.model.layout import ModelState


class LocalEmbeddings:
    """Rows that all workers share; those that they have pulled stay as they were.

    Args:
        plan: Of all rows.
        forms: Of the embeddings.

    Attributes:
        shard: All rows.
    """

    def __init__(self, plan: ShardPlan, forms: Sequence[EmbeddingForm]) -> None:
        self._forms = forms
        self.shard = EmbeddingShard(plan)
        self._servers = EmbeddingServers([HeldEmbeddings(self.shard, nullcontext())], forms)

    def load(self, state: ModelState) -> ModelState:
        """Takes over the embeddings of a state; the rest of it."""
        if state.embeddings is None:
            return state
        self.shard.reset(state.updates)
        self._servers.load(state.embeddings)
        return replace(state, embeddings=None)

    @contextmanager
    def with_embeddings(self, state: ModelState) -> Iterator[ModelState]:
        """The state with the embeddings as they are now, which can be read meanwhile."""
        if not self._forms:
            yield state
            return
        self.shard.mark()
        try:
            yield replace(state, embeddings=self._servers.marked())
        finally:
            self._servers.end_read()

    def kept(self, state: ModelState) -> ModelState:
        """The state with a copy of the embeddings.

        Raises:
            NoRoomForEmbeddingsError: There is no place for it.
        """
        with self.with_embeddings(state) as whole:
            if whole.embeddings is None:
                return state
            return replace(state, embeddings=kept_embeddings(self._forms, whole.embeddings))
