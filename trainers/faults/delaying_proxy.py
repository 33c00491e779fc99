"""TCP proxies that delay every byte, as a slow network does."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

_HOST = "127.0.0.1"
_CHUNK_BYTES = 64 * 1024
_CHUNKS_ON_THE_WAY = 256  # of each direction; beyond that the sender has to wait


@dataclass
class _Pair:
    listen: int
    target: int
    delay_seconds: float = 0.0


def serve_proxy(
    pairs: Sequence[tuple[int, int]],
    control_fd: int,
    on_listening: Callable[[list[int]], None] = lambda _: None,
) -> None:
    """Serves until the end of the control file.

    Args:
        pairs: Ports of 127.0.0.1 to listen at (0 is any free one), and to connect to.
        control_fd: Brings lines such as `2 0.03`: from then on, what arrives at the proxy number
            2 (from 0) is delayed by 30 ms in each direction. Closed at the end.
        on_listening: Is told the ports that are listened at, once all are.

    Raises:
        OSError: A port is taken.
    """
    asyncio.run(_serve([_Pair(*pair) for pair in pairs], control_fd, on_listening))


async def _serve(
    pairs: list[_Pair], control_fd: int, on_listening: Callable[[list[int]], None]
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    servers = []
    for pair in pairs:
        servers.append(await asyncio.start_server(_connector(pair), _HOST, pair.listen))
    on_listening([server.sockets[0].getsockname()[1] for server in servers])

    def control() -> None:
        # In a thread of its own, because a file need not be one that asyncio can wait for.
        with os.fdopen(control_fd, "rb") as lines:
            for line in lines:
                loop.call_soon_threadsafe(_obey, line, pairs)
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=control, daemon=True).start()
    await ended.wait()
    for server in servers:
        server.close()


def _obey(line: bytes, pairs: Sequence[_Pair]) -> None:
    number, seconds = line.split()
    pairs[int(number)].delay_seconds = float(seconds)


def _connector(
    pair: _Pair,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(_HOST, pair.target)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(
                _forward(reader, there_writer, pair), _forward(there_reader, writer, pair)
            )
        except OSError:
            # Whatever is still on the way has lost its receiver or its sender.
            writer.transport.abort()
            there_writer.transport.abort()
        finally:
            writer.close()
            there_writer.close()

    return connect


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
    """One direction of a connection, until its end has been passed on."""
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_ON_THE_WAY)

    async def receive() -> None:
        chunk = b"-"
        while chunk:
            chunk = await reader.read(_CHUNK_BYTES)
            await on_the_way.put((loop.time() + pair.delay_seconds, chunk))

    async def deliver() -> None:
        while True:
            due_seconds, chunk = await on_the_way.get()
            await asyncio.sleep(due_seconds - loop.time())
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()

    receiving = asyncio.ensure_future(receive())
    delivering = asyncio.ensure_future(deliver())
    try:
        await asyncio.gather(receiving, delivering)
    finally:
        receiving.cancel()
        delivering.cancel()
