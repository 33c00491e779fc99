"""The speed of plain and encrypted sockets: pulls and pushes of all parameters, no computing."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from syncswitch.trainers.cluster.exchange.security import Channel, Plain, Reader, Sealed

_CONTEXT = multiprocessing.get_context("fork")
_BYTES_OF_A_PARAMETER = 4


New = Callable[[socket.socket], Channel]


def sealed(connected: socket.socket) -> Channel:
    """As between machines."""
    return Sealed(connected, bytes(32), bytes(32))


def worker_steps_per_second(
    parameters: int, workers: int, seconds: float, new: New = Plain
) -> float:
    """Exchanges of `workers` processes with one server process that has a thread for each."""
    size = parameters * _BYTES_OF_A_PARAMETER
    listener = socket.create_server(("127.0.0.1", 0))
    server = _CONTEXT.Process(target=_serve, args=(listener, size, workers, new), daemon=True)
    server.start()
    processes = [server]
    ends = []
    barrier = _CONTEXT.Barrier(workers)
    for _ in range(workers):
        end, theirs = _CONTEXT.Pipe(duplex=False)
        arguments = (listener.getsockname(), size, barrier, seconds, theirs, new)
        processes.append(_CONTEXT.Process(target=_exchange, args=arguments, daemon=True))
        processes[-1].start()
        theirs.close()
        ends.append(end)
    listener.close()
    rates = [float(end.recv()) for end in ends]
    for process in processes:
        process.join()
    return sum(rates)


def _serve(listener: socket.socket, size: int, workers: int, new: New) -> None:
    arguments = listener, size, new
    threads = [threading.Thread(target=_answer, args=arguments) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(listener: socket.socket, size: int, new: New) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    parameters, gradient = memoryview(bytearray(size)), memoryview(bytearray(size))
    channel = new(connection)
    reader = Reader(channel)
    with connection, suppress(EOFError):
        while True:
            channel.send_all([parameters])
            reader.fill(gradient)


def _exchange(
    address: tuple[str, int],
    size: int,
    barrier: threading.Barrier,
    seconds: float,
    end: Connection,
    new: New,
) -> None:
    parameters, gradient = memoryview(bytearray(size)), memoryview(bytearray(size))
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = new(connection)
        reader = Reader(channel)
        reader.fill(parameters)
        barrier.wait()
        start = time.perf_counter()
        steps = 0
        while (took := time.perf_counter() - start) < seconds or steps == 0:
            channel.send_all([gradient])
            reader.fill(parameters)
            steps += 1
    end.send(steps / took)
