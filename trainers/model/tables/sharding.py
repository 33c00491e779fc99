"""Which parameter server holds which row: number i of a table lies on server i % n, as i // n.

So the rows that are wanted most, which often come first, are spread over all of them.
"""

from __future__ import annotations

from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.tables.shard import Ids


def rows_on(rows: int, server: int, servers: int) -> int:
    """How many of a table's rows a server holds."""
    return len(range(server, rows, servers))


def range_on(start: int, stop: int, server: int, servers: int) -> tuple[int, int]:
    """Where the rows from `start` to `stop` of a table lie on a server, which are neighbours."""
    return rows_on(start, server, servers), rows_on(stop, server, servers)


def ids_on(ids: Ids, server: int, servers: int) -> tuple[Ids, Ids]:
    """Which of these rows lie on a server.

    Returns:
        Their places in `ids`, and their numbers there.
    """
    (places,) = (ids % servers == server).nonzero()
    return places, ids[places] // servers


def block_on(start: int, values: Vector, server: int, servers: int) -> Vector:
    """Those of a table's rows from `start` on that lie on a server."""
    return values[(server - start) % servers :: servers]
