from __future__ import annotations

import os
import queue
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from syncswitch.trainers.faults.delaying_proxy import serve_proxy

HOST = "127.0.0.1"


class Echo:
    """A server that sends back all it gets, and counts it."""

    def __init__(self) -> None:
        self.received = 0
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                self.received += len(data)
                connection.sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@contextmanager
def proxies(*targets: int) -> Iterator[tuple[int, list[int]]]:
    """Where the proxies are told their delays, and the ports that they listen at."""
    control, steer = os.pipe()
    listening: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    pairs = [(0, target) for target in targets]
    thread = threading.Thread(target=serve_proxy, args=(pairs, control, listening.put))
    thread.start()
    try:
        yield steer, listening.get(timeout=30)
    finally:
        os.close(steer)
        thread.join(30)
    assert not thread.is_alive()


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=60)


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def round_trip_seconds(connection: socket.socket) -> float:
    start = time.monotonic()
    connection.sendall(b"x")
    assert receive(connection, 1) == b"x"
    return time.monotonic() - start


def tell(steer: int, line: str) -> None:
    os.write(steer, f"{line}\n".encode())


def test_the_delay_of_one_pair_changes_while_it_runs(echo: Echo) -> None:
    with proxies(echo.port, echo.port) as (steer, ports):
        first, second = map(connect, ports)
        tell(steer, "1 0.05")
        # It takes a moment until the line is read; then it is so for good.
        while round_trip_seconds(second) < 0.1:
            pass
        assert all(round_trip_seconds(second) >= 0.1 for _ in range(3))
        assert min(round_trip_seconds(first) for _ in range(20)) < 0.1
        tell(steer, "1 0")
        while round_trip_seconds(second) >= 0.1:
            pass


def test_bytes_and_order_are_kept_under_changing_delays(echo: Echo) -> None:
    data = random.Random(1).randbytes(20_000_000)
    with proxies(echo.port) as (steer, (port,)):
        connection = connect(port)

        def send() -> None:
            for start in range(0, len(data), 1_000_000):
                tell(steer, f"0 {0.02 if start % 2_000_000 else 0.001}")
                connection.sendall(data[start : start + 1_000_000])
            connection.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received = receive(connection, len(data) + 1)  # to the end
        sender.join()
    assert received == data


def test_a_sender_has_to_wait_for_a_receiver_that_does_not_read() -> None:
    with socket.create_server((HOST, 0)) as idle, proxies(idle.getsockname()[1]) as (_, ports):
        connection = connect(ports[0])
        connection.settimeout(0.5)
        sent = 0
        with suppress(TimeoutError):
            while sent < 500_000_000:
                sent += connection.send(b"x" * 1_000_000)
        assert sent < 500_000_000
        receiver, _ = idle.accept()
        connection.close()
        received = 0
        while data := receiver.recv(1_000_000):
            received += len(data)
        assert received == sent


def test_the_end_of_one_side_is_passed_on(echo: Echo) -> None:
    with socket.create_server((HOST, 0)) as server, proxies(server.getsockname()[1]) as (_, ports):
        connection = connect(ports[0])
        there, _ = server.accept()
        there.sendall(b"last")
        there.close()
        assert receive(connection, 9) == b"last"
        again = connect(ports[0])
        there, _ = server.accept()
        again.close()
        assert there.recv(9) == b""


def test_a_target_that_refuses_closes_the_connection_and_may_come_later() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
    with proxies(port) as (_, (listen,)):
        assert connect(listen).recv(1) == b""
        with socket.create_server((HOST, port)) as server:
            connection = connect(listen)
            there, _ = server.accept()
            there.sendall(b"here")
            assert receive(connection, 4) == b"here"


def test_a_forked_child_can_serve(echo: Echo) -> None:
    control, steer = os.pipe()
    told, tell_ports = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(steer)
        serve_proxy([(0, echo.port)], control, lambda ports: _write(tell_ports, ports[0]))
        os._exit(0)
    os.close(control)
    with os.fdopen(told) as ports:
        connection = connect(int(ports.readline()))
    assert round_trip_seconds(connection) < 60
    os.close(steer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _write(file_descriptor: int, port: int) -> None:
    os.write(file_descriptor, f"{port}\n".encode())
