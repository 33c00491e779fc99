"""All parameter servers of a cluster, as its chief sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncswitch.trainers.cluster.exchange.parameter_server import ParameterServer, Sizes
from syncswitch.trainers.cluster.exchange.remote import Call, Remote, call_all
from syncswitch.trainers.cluster.exchange.shards import Shard, Undone, joined
from syncswitch.trainers.model.embeddings.shard import Ids, ids_for, rows_of
from syncswitch.trainers.model.layout import ModelState, Vector


class ServerGroup:
    """Parameter servers that hold one state together; each call goes to all at the same time.

    Pushes reach one after the other, so while workers push, what one has taken in another may not
    have yet.

    Args:
        servers: Over wires, or a single one of this process.
        shards: What each of them holds.
        sizes: Of the whole state.
    """

    def __init__(
        self,
        servers: Sequence[ParameterServer] | Sequence[Remote],
        shards: Sequence[Shard],
        sizes: Sizes,
    ) -> None:
        self._servers = servers
        self._shards = shards
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._servers)

    def load(self, state: ModelState, undone: Undone) -> None:
        """Overwrites the state.

        Args:
            state: The new one.
            undone: Worker-steps that some servers are ahead of others in it, see `mark`.
        """
        ahead = [sum(number in taken for taken in undone.values()) for number in range(len(self))]
        parts = [
            replace(shard.of(state), updates=state.updates + own - ahead[0])
            for shard, own in zip(self._shards, ahead, strict=True)
        ]
        self._call("load", [(part,) for part in parts])

    def mark(self) -> list[tuple[int, ...]]:
        """Remembers the state as it is now, for `marked`.

        Returns:
            For each worker the numbers of its last push that each of them has taken in.
        """
        return list(zip(*self._call("mark"), strict=True))

    def marked(self) -> ModelState:
        """A copy of the state at the last `mark`; its updates are those of the first server."""
        return joined(self._call("marked"), self._shards, self._sizes)

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Copies of parameters and statistics, and of these rows of embeddings."""
        asked = ids_for(ids, len(self))
        found = self._call("snapshot", [(own,) for own in asked])
        rows = rows_of(ids, [own for _, _, *own in found])
        if len(found) == 1:
            return found[0][0], found[0][1], *rows
        parts = zip(*((one[0], one[1]) for one in found), strict=True)
        parameters, statistics = (np.concatenate(part) for part in parts)
        return parameters, statistics, *rows

    def apply_round(self, workers: Sequence[int], rate: float, momentum: float) -> None:
        """Applies the mean of what these workers have pushed, in this order, as one update."""
        self._call("apply_round", [(workers, rate, momentum)] * len(self))

    def apply_buffer(
        self, worker_steps: Sequence[int], stale: Sequence[int], rate: float, momentum: float
    ) -> None:
        """Applies the mean of these gradients of the buffer, in this order, as one update."""
        self._call("apply_buffer", [(worker_steps, stale, rate, momentum)] * len(self))

    def fence(self, worker: int) -> tuple[int, tuple[int, ...]]:
        """From now on refuses everything from the process that was this worker.

        Returns:
            Incarnation of the next one, and the numbers of its last push that each server has
            taken in.
        """
        incarnations, pushed = zip(*self._call("fence", [(worker,)] * len(self)), strict=True)
        return incarnations[0], pushed

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        each = arguments or [()] * len(self)
        calls, found = [], []
        for server, own in zip(self._servers, each, strict=True):
            if isinstance(server, Remote):
                calls.append(Call(server, method, own))
            else:
                found.append(getattr(server, method)(*own))
        return call_all(calls) if calls else found
