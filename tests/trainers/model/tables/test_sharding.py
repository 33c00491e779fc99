from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.model.tables.sharding import block_on, ids_on, range_on, rows_on


@given(st.integers(1, 5), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_each_row_has_one_place(servers: int, rows: int, start: int, length: int) -> None:
    start = min(start, rows)
    stop = min(start + length, rows)
    table = np.arange(rows, dtype=np.float32)[:, None]
    held = [table[server::servers] for server in range(servers)]
    assert [rows_on(rows, server, servers) for server in range(servers)] == [*map(len, held)]
    ids = np.arange(start, stop)
    found = np.zeros((stop - start, 1), np.float32)
    for server in range(servers):
        places, there = ids_on(ids, server, servers)
        found[places] = held[server][there]
        first, end = range_on(start, stop, server, servers)
        block = block_on(start, table[start:stop], server, servers)
        np.testing.assert_array_equal(held[server][first:end], block)
    np.testing.assert_array_equal(found, table[start:stop])
