"""What plain sockets carry: pull and push of all parameters, and nothing is computed."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from multiprocessing.connection import Connection

_CONTEXT = multiprocessing.get_context("fork")
_BYTES_OF_A_PARAMETER = 4


def worker_steps_per_second(parameters: int, workers: int, seconds: float) -> float:
    """Exchanges of `workers` processes with one server process that has a thread for each."""
    size = parameters * _BYTES_OF_A_PARAMETER
    listener = socket.create_server(("127.0.0.1", 0))
    server = _CONTEXT.Process(target=_serve, args=(listener, size, workers), daemon=True)
    server.start()
    processes = [server]
    ends = []
    barrier = _CONTEXT.Barrier(workers)
    for _ in range(workers):
        end, theirs = _CONTEXT.Pipe(duplex=False)
        arguments = (listener.getsockname(), size, barrier, seconds, theirs)
        processes.append(_CONTEXT.Process(target=_exchange, args=arguments, daemon=True))
        processes[-1].start()
        theirs.close()
        ends.append(end)
    listener.close()
    rates = [float(end.recv()) for end in ends]
    for process in processes:
        process.join()
    return sum(rates)


def _serve(listener: socket.socket, size: int, workers: int) -> None:
    threads = [threading.Thread(target=_answer, args=(listener, size)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(listener: socket.socket, size: int) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    parameters, gradient = bytearray(size), bytearray(size)
    with connection:
        while True:
            connection.sendall(parameters)
            if not _receive(connection, gradient):
                return


def _exchange(
    address: tuple[str, int],
    size: int,
    barrier: threading.Barrier,
    seconds: float,
    end: Connection,
) -> None:
    parameters, gradient = bytearray(size), bytearray(size)
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _receive(connection, parameters)
        barrier.wait()
        start = time.perf_counter()
        steps = 0
        while (took := time.perf_counter() - start) < seconds or steps == 0:
            connection.sendall(gradient)
            _receive(connection, parameters)
            steps += 1
    end.send(steps / took)


def _receive(connection: socket.socket, into: bytearray) -> bool:
    """Fills a buffer; False where the other side has closed."""
    rest = memoryview(into)
    while rest:
        count = connection.recv_into(rest, 0, socket.MSG_WAITALL)
        if not count:
            return False
        rest = rest[count:]
    return True
