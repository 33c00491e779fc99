"""Parameter servers and workers as others see them over wires."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from syncswitch.trainers.cluster.exchange.handshake import Address, Identity
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, FencedError, Sizes
from syncswitch.trainers.cluster.exchange.parts import ServerPart
from syncswitch.trainers.cluster.exchange.plans import SERVER, TO_WORKER, WORKER, ServerPlan
from syncswitch.trainers.cluster.exchange.remote import (
    LostError,
    RemotePeer,
    RemoteServer,
    RemoteServers,
    serve,
)
from syncswitch.trainers.cluster.exchange.vectors import Block
from syncswitch.trainers.cluster.exchange.wire import Listener, Wire, dial
from syncswitch.trainers.model.layout import ModelState, Vector

SECRET = b"of this cluster alone"
SERVERS, WORKERS = (Identity((role, 1), SECRET) for role in (SERVER, WORKER))
SIZES = Sizes(3, 1, 3)


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


@pytest.fixture
def part(address: Address) -> Iterator[tuple[ServerPart, Listener]]:
    made = ServerPart()
    listener = Listener(address, SERVERS, made.admits, made.on_wire)
    yield made, listener
    listener.close()


def test_a_parameter_server_elsewhere_takes_what_was_computed(
    part: tuple[ServerPart, Listener],
) -> None:
    served, listener = part
    whole = slice(0, SIZES.model)
    served.methods["build"](ServerPlan(SIZES, vector(0.5), None, 2, whole, SIZES.model))
    served.methods["load"](ModelState(vector(1, 2, 3), vector(0, 0, 0), vector(8), 0))
    wire, computed = dial(listener.address, SERVER, WORKERS), Block(1, SIZES.model)
    alone = RemoteServer(wire, "the parameter server", whole, computed)
    server = RemoteServers([alone], SIZES.model)
    caller = Caller(1, 0)
    with pytest.raises(FencedError, match="worker 0 is another one"):
        server.pull(Caller(0, 0))
    updates, _, model, _ = server.pull(caller)
    assert (updates, model.tolist()) == (0, [1, 2, 3, 8])
    computed.rows[0][:] = 1, 2, 4, 2
    assert server.push_update(caller, 1, computed.rows[0], 0.5, 0.0) == 1
    updates, _, model, _ = server.pull(caller)
    assert (updates, model.tolist()) == (1, [0.5, 1, 1, 6])
    computed.rows[0][:] = 2, 0, 0, 0
    assert server.push_gradient(caller, 2, computed.rows[0]) == 1
    assert served.methods["apply_round"]([1], 0.25, 0.0) == 2
    parameters, statistics = served.methods["snapshot"]()
    assert (parameters.tolist(), statistics.tolist()) == ([0, 1, 1], [3])
    computed.rows[0][:] = 4, 0, 0, 0
    assert server.push_gradient(caller, 3, computed.rows[0], 17) == 2
    computed.rows[0][:] = 0, 8, 0, 0
    assert server.push_gradient(caller, 4, computed.rows[0], 18) == 2
    assert served.methods["apply_buffer"]([17, 18], [18], 0.5, 0.0) == 3
    parameters, statistics = served.methods["snapshot"]()
    assert (parameters.tolist(), statistics.tolist()) == ([-1, 1, 1], [1.5])
    assert served.methods["fence"](1) == (1, 4)
    with pytest.raises(FencedError, match="worker 1 was replaced"):
        server.pull(caller)
    server.close()
    with pytest.raises(LostError, match="the parameter server is gone"):
        server.pull(caller)


def test_a_new_one_takes_nobody_in(part: tuple[ServerPart, Listener]) -> None:
    wire = dial(part[1].address, SERVER, WORKERS)
    with pytest.raises((EOFError, OSError)):
        RemoteServer(wire, "new", slice(0, SIZES.model), Block(1, SIZES.model))


class Shop:
    """Serves pieces of a vector, as a worker does."""

    def __init__(self, address: Address, content: Vector) -> None:
        self._content = content
        self._wires: list[Wire] = []
        self._listener = Listener(address, WORKERS, (WORKER,), self._on_wire)
        self.address = self._listener.address

    def _on_wire(self, wire: Wire) -> None:
        self._wires.append(wire)
        serve(wire, TO_WORKER, {"fetch": lambda what, start, stop: self._content[start:stop]})

    def close(self) -> None:
        for one in (self._listener, *self._wires):
            one.close()


def test_a_worker_is_connected_to_when_it_is_asked_and_again_where_another_one_is(
    address: Address, folder: Path
) -> None:
    shop = Shop(address, vector(0, 1, 2, 3))
    peer = RemotePeer(shop.address, WORKERS)
    for _ in range(2):
        assert peer.fetch("model", 1, 3).tolist() == [1, 2]
    assert len(shop._wires) == 1
    shop.close()
    with pytest.raises(LostError, match=r"the worker at .* is gone"):
        peer.fetch("model", 1, 3)
    if isinstance(shop.address, str):
        Path(shop.address).unlink()
    shop = Shop(shop.address, vector(4, 5, 6, 7))
    assert peer.fetch("model", 1, 3).tolist() == [5, 6]
    peer.close()
    shop.close()
