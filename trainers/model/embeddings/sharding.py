"""Which parameter server holds which row: number i of a table lies on server i % n, as i // n.

So the rows that are wanted most, which often come first, are spread over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncswitch.trainers.model.embeddings.shard import Ids, RowGradient
from syncswitch.trainers.model.layout import Vector


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


def ids_for(ids: Sequence[Ids], servers: int) -> list[list[Ids]]:
    """What each server is asked for, of each table."""
    if servers == 1:
        return [list(ids)]
    return [[ids_on(one, server, servers)[1] for one in ids] for server in range(servers)]


def rows_of(ids: Sequence[Ids], found: Sequence[Sequence[Vector]]) -> tuple[Vector, ...]:
    """Rows of each table, of those that each server has found of `ids_for`."""
    if len(found) == 1:
        return tuple(found[0])
    rows = []
    for one, *parts in zip(ids, *found, strict=True):
        whole = np.empty((len(one), parts[0].shape[1]), np.float32)
        for server, part in enumerate(parts):
            whole[ids_on(one, server, len(parts))[0]] = part
        rows.append(whole)
    return tuple(rows)


def gradients_for(gradients: Sequence[RowGradient], servers: int) -> list[list[RowGradient]]:
    """What each server is sent, of each table."""
    if servers == 1:
        return [list(gradients)]
    found: list[list[RowGradient]] = [[] for _ in range(servers)]
    for ids, values in gradients:
        for server in range(servers):
            places, there = ids_on(ids, server, servers)
            found[server].append(RowGradient(there, values[places]))
    return found
