"""Calls over wires, and parameter servers and workers as others see them over these."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.cluster.exchange.parameter_server import FencedError
from syncswitch.trainers.cluster.exchange.plans import WORKER
from syncswitch.trainers.cluster.exchange.remote import (
    TO_WORKER,
    Calls,
    LostError,
    Remote,
    RemoteError,
    RemotePeer,
    serve,
)
from syncswitch.trainers.cluster.exchange.security import Address
from syncswitch.trainers.cluster.exchange.wire import Listener, Wire
from syncswitch.trainers.model.layout import Vector
from tests.trainers.cluster.exchange.host import OF_WORKER

CALLS: Calls = {
    "double": (tuple[int], int),
    "slowly": (tuple[int], int),
    **dict.fromkeys(("fence", "lose", "break", "wait", "later"), (tuple[()], None)),
}


def fail(error: Exception) -> Any:
    raise error


class Served:
    """A wire with a server at one end and a caller at the other."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.remote = Remote(Wire(ours), "worker 3", CALLS)
        self.wire = Wire(theirs)
        self.is_asked = threading.Event()
        methods = {
            "double": lambda value: 2 * value,
            "slowly": self._slowly,
            "fence": lambda: fail(FencedError("worker 3 was replaced")),
            "lose": lambda: fail(LostError("worker 5 is gone")),
            "break": lambda: fail(ZeroDivisionError("by\nzero")),
            "wait": self._wait,
        }
        self.thread = threading.Thread(target=serve, args=(self.wire, CALLS, methods), daemon=True)
        self.thread.start()

    def _slowly(self, value: Any) -> Any:
        time.sleep(0.01)
        return value

    def _wait(self) -> None:
        self.is_asked.set()
        time.sleep(0.5)


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.remote.close()
    made.thread.join(20)
    assert not made.thread.is_alive(), "it goes on for nobody"


def test_what_is_raised_there_is_raised_here_and_the_next_call_is_answered(served: Served) -> None:
    remote = served.remote
    assert remote.call("double", 21) == 42
    with pytest.raises(FencedError, match=r"^worker 3 was replaced$"):
        remote.call("fence")
    with pytest.raises(LostError, match=r"^worker 5 is gone$"):
        remote.call("lose")
    with pytest.raises(RemoteError, match="ZeroDivisionError: by zero"):
        remote.call("break")
    with pytest.raises(RemoteError, match="'nothing' may not be called here"):
        remote.call("nothing")
    with pytest.raises(RemoteError, match="'later' cannot be called yet"):
        remote.call("later")
    for odd in ((), (1, 2), ("1",), ([1],), (1.5,)):
        with pytest.raises(
            RemoteError, match="MalformedMessageError: not what was expected: Expected"
        ):
            remote.call("double", *odd)
    assert remote.call("double", 4) == 8


def test_each_of_many_threads_has_its_own_answer(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = list(range(40))
        assert list(pool.map(lambda number: served.remote.call("slowly", number), asked)) == asked


@pytest.mark.parametrize("who", ["the other", "itself"])
def test_the_end_is_a_loss_for_whoever_waits_and_for_all_later(served: Served, who: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(served.remote.call, "wait")
        assert served.is_asked.wait(20)
        (served.remote if who == "itself" else served.wire).close()
        with pytest.raises(LostError, match=r"^worker 3 is gone"):
            waiting.result(20)
    for _ in range(2):
        with pytest.raises(LostError, match=r"^worker 3 is gone"):
            served.remote.call("double", 1)


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


class Shop:
    """Serves pieces of a vector, as a worker does."""

    def __init__(self, address: Address, content: Vector) -> None:
        self._content = content
        self._wires: list[Wire] = []
        self._listener = Listener(address, OF_WORKER, (WORKER,), self._on_wire)
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
    peer = RemotePeer(shop.address, OF_WORKER)
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
