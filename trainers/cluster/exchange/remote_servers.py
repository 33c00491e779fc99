"""Parameter servers in other processes, as one worker sees them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import (
    Caller,
    Computed,
    Pulled,
    RowGradients,
)
from syncswitch.trainers.cluster.exchange.plans import WORKER_TO_SERVER
from syncswitch.trainers.cluster.exchange.remote import Call, LostError, Remote, call_all
from syncswitch.trainers.cluster.exchange.wire import Wire
from syncswitch.trainers.model.embeddings.shard import Ids, gradients_for, ids_for, rows_of
from syncswitch.trainers.model.layout import Vector


class RemoteServer:
    """One of them: the wire to it, and the memory that is shared with it.

    Args:
        wire: To a `ServerPart`.
        name: Of it, for people.
        shard: What it holds of the vector that workers pull.
        computed: What the worker has computed.

    Attributes:
        remote: To call it.
        shard: See above.
        buffers: Its buffers, where memory is shared.
    """

    def __init__(self, wire: Wire, name: str, shard: slice, computed: Block) -> None:
        rows = wire.receive().read(int | None)
        self.remote = Remote(wire, name, WORKER_TO_SERVER)
        self.shard = shard
        self.buffers: list[Vector] | None = None
        if rows is not None:
            size = shard.stop - shard.start
            self.buffers = Block(rows, size, wire.receive_descriptor()).rows
            wire.send_descriptor(computed.descriptor)


class RemoteServers:
    """All of them, which together are one `ParameterServer`; each call goes to all at once.

    Each takes in a push by itself, so those of several workers may come in another order to each.

    Args:
        servers: In the order of their shards.
        size: Of what is pulled.
    """

    def __init__(self, servers: Sequence[RemoteServer], size: int) -> None:
        self._servers = servers
        self._pulled_updates = [0] * len(servers)
        # One alone may share its memory; what comes from several has to become one vector.
        needs_copy = len(servers) > 1 or servers[0].buffers is None
        self._model = aligned(size) if needs_copy else aligned(0)

    def pull(self, caller: Caller, ids: Sequence[Ids] = ()) -> Pulled:
        """See `ParameterServer`; updates are those of the first."""
        asked = ids_for(ids, len(self._servers))
        places = [self._model[one.shard] for one in self._servers]
        found = call_all(
            [
                Call(one.remote, "pull", (caller, own), place if one.buffers is None else None)
                for one, own, place in zip(self._servers, asked, places, strict=True)
            ]
        )
        self._pulled_updates = [updates for updates, *_ in found]
        model = self._model
        for server, place, (_, buffer, sent, _) in zip(self._servers, places, found, strict=True):
            if server.buffers is None:
                if sent is None or sent.shape != place.shape:
                    raise LostError(f"{server.remote.name} gives parameters of another length")
            elif len(self._servers) == 1:
                model = server.buffers[buffer]
            else:
                place[:] = server.buffers[buffer]
        rows = rows_of(ids, [own for *_, own in found])
        return Pulled(self._pulled_updates[0], 0, model, rows)

    def push_update(
        self,
        caller: Caller,
        number: int,
        computed: Vector,
        rate: float,
        momentum: float,
        rows: RowGradients = (),
        taken: Collection[int] = (),
    ) -> int:
        """See `ParameterServer`; leaves out those servers that have taken the step in before."""
        rates = (rate, momentum)
        return self._push("push_update", caller, number, Computed(computed, rows), rates, taken)

    def push_gradient(
        self,
        caller: Caller,
        number: int,
        computed: Vector,
        worker_step: int | None = None,
        rows: RowGradients = (),
    ) -> int:
        """See `ParameterServer`."""
        made = Computed(computed, rows)
        return self._push("push_gradient", caller, number, made, (worker_step,))

    def close(self) -> None:
        """Ends the wires."""
        for one in self._servers:
            one.remote.close()

    def _push(
        self,
        method: str,
        caller: Caller,
        number: int,
        computed: Computed,
        rest: tuple[float | None, ...],
        taken: Collection[int] = (),
    ) -> int:
        calls, positions = [], []
        rows = gradients_for(computed.rows, len(self._servers))
        for position, one in enumerate(self._servers):
            if position not in taken:
                # Nothing where memory is shared.
                sent = computed.vector[one.shard] if one.buffers is None else None
                arguments = (caller, number, sent, *rest, rows[position])
                calls.append(Call(one.remote, method, arguments))
                positions.append(position)
        updates: int = call_all(calls)[0]
        # As if the first had been asked, for who counts the updates since the pull.
        return updates - self._pulled_updates[positions[0]] + self._pulled_updates[0]
