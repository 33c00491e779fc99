"""TCP proxies on this machine that keep every byte for a while, as a slow network does.

    python -m syncswitch.trainers.faults.delaying_proxy LISTEN:TARGET ...

Ports of 127.0.0.1; a LISTEN of 0 is any free one. A line `listening PORT ...` on standard output
says when all do. A line such as `2 0.03` on standard input delays what arrives at the proxy with
number 2 (from 0) by 30 ms in each direction from then on. The end of standard input ends it.
"""

from __future__ import annotations

import asyncio
import os
import sys
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
        pairs: Ports to listen at, and to connect to.
        control_fd: Brings lines `NUMBER SECONDS`; closed at the end.
        on_listening: Is told the ports that are listened at, once all are.

    Raises:
        OSError: A port is taken.
    """
    asyncio.run(_serve([_Pair(*pair) for pair in pairs], control_fd, on_listening))


def main() -> None:
    """Serves the proxies that the command line names."""
    try:
        pairs = [_pair(argument) for argument in sys.argv[1:]]
        if not pairs:
            raise ValueError("give LISTEN:TARGET, two ports, once or more")
        serve_proxy(pairs, sys.stdin.fileno(), lambda ports: print("listening", *ports, flush=True))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _pair(text: str) -> tuple[int, int]:
    listen, _, target = text.partition(":")
    if listen.isdecimal() and target.isdecimal() and int(listen) < 2**16 > int(target) > 0:
        return int(listen), int(target)
    raise ValueError(f"{text!r} must be LISTEN:TARGET, two ports such as 6000:5000")


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
    try:
        number, seconds = line.split()
        if not (0 <= int(number) < len(pairs) and 0 <= float(seconds) < float("inf")):
            raise ValueError
    except ValueError:
        text = line.decode(errors="replace").strip()
        print(
            f"error: {text!r} must be NUMBER SECONDS, such as 0 0.03, with a number from 0 to"
            f" {len(pairs) - 1}",
            file=sys.stderr,
            flush=True,
        )
        return
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


if __name__ == "__main__":
    main()
