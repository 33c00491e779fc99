from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.cluster.servers.network import free_ports
from syncswitch.trainers.cluster.servers.pool import ServerState
from syncswitch.trainers.cluster.servers.static_pool import StaticPool
from syncswitch.trainers.cluster.servers.tf_config_server import ChiefWatch

PS, WORKER = ("ps", 0), ("worker", 0)


class Listener:
    """What of a server its pool can see: somebody takes connections at its address."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def up(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", self._port), reuse_port=True, backlog=99)

    def down(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@pytest.fixture
def ports() -> list[int]:
    return free_ports(2)


@pytest.fixture
def listeners(ports: list[int]) -> Iterator[list[Listener]]:
    found = [Listener(port) for port in ports]
    yield found
    for listener in found:
        listener.down()


def pool_of(ports: list[int], limit_seconds: float) -> StaticPool:
    addresses = [f"127.0.0.1:{port}" for port in ports]
    return StaticPool(
        {"chief": ["127.0.0.1:1"], "ps": addresses[:1], "worker": addresses[1:]},
        limit_seconds,
        lambda _: None,
    )


def generations(pool: StaticPool) -> tuple[int, int]:
    states = pool.states()
    return states[PS].generation, states[WORKER].generation


def test_a_server_that_comes_back_is_another(ports: list[int], listeners: list[Listener]) -> None:
    pool = pool_of(ports, 60.0)
    for listener in listeners:
        listener.up()
    pool.await_all()
    assert pool.states() == {PS: ServerState(True, False, 0), WORKER: ServerState(True, False, 0)}
    assert not pool.renew_dead()
    listeners[1].down()
    assert pool.states()[WORKER] == ServerState(False, False, 0)
    assert not pool.renew_dead(), "it is waited for by those who need it alone"
    listeners[1].up()
    assert pool.renew_dead()
    assert generations(pool) == (0, 1)
    assert not pool.renew_dead()


def test_one_that_nobody_has_seen_dead_is_another_when_it_is_asked_for(
    ports: list[int], listeners: list[Listener]
) -> None:
    pool = pool_of(ports, 60.0)
    for listener in listeners:
        listener.up()
    pool.renew([WORKER])
    assert generations(pool) == (0, 1)


def test_who_needs_a_server_waits_until_it_is_back(
    ports: list[int], listeners: list[Listener]
) -> None:
    pool = pool_of(ports, 60.0)
    listeners[0].up()
    waiting = threading.Thread(target=lambda: pool.renew([WORKER]))
    waiting.start()
    assert pool.states()[WORKER].is_alive is False
    assert waiting.is_alive()
    listeners[1].up()
    waiting.join(30)
    assert not waiting.is_alive()
    assert pool.states()[WORKER].generation >= 1


def test_one_that_does_not_come_is_named(ports: list[int], listeners: list[Listener]) -> None:
    pool = pool_of(ports, 0.0)
    listeners[0].up()
    with pytest.raises(RetryableError) as caught:
        pool.await_all()
    assert str(caught.value).startswith(
        f"worker 0 at 127.0.0.1:{ports[1]} in TF_CONFIG did not answer within 0 s; look"
    )
    listeners[0].down()
    time.sleep(0.01)
    with pytest.raises(RetryableError, match=r"the parameter server at .*, worker 0 at"):
        pool.renew([PS, WORKER])


def test_a_server_waits_longer_for_a_chief_to_come_than_to_come_back() -> None:
    watch = ChiefWatch(limit_seconds=100.0, grace_seconds=10.0, since_seconds=0.0)
    assert not watch.is_over(False, 100.0)
    assert watch.is_over(False, 101.0)
    assert not watch.was_there
    assert not watch.is_over(True, 90.0)
    assert not watch.is_over(False, 100.0)
    assert not watch.is_over(True, 100.5), "started again in time"
    assert not watch.is_over(False, 110.5)
    assert watch.is_over(False, 110.6)
    assert watch.was_there
