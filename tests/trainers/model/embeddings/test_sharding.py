from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.model.embeddings.shard import RowGradient
from syncswitch.trainers.model.embeddings.sharding import (
    block_on,
    gradients_for,
    ids_for,
    ids_on,
    range_on,
    rows_of,
    rows_on,
)


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


@given(st.integers(1, 4), st.sets(st.integers(0, 30)))
def test_what_is_asked_and_sent_arrives(servers: int, wanted: set[int]) -> None:
    table = np.arange(31, dtype=np.float32)[:, None] * [1.0, 0.5]
    table = table.astype(np.float32)
    ids = [np.array(sorted(wanted), np.int64), np.zeros(0, np.int64)]
    held = [table[server::servers] for server in range(servers)]
    found = [[held[n][one] for one in own] for n, own in enumerate(ids_for(ids, servers))]
    for one, rows in zip(ids, rows_of(ids, found), strict=True):
        np.testing.assert_array_equal(rows, table[one])
    sent = gradients_for([RowGradient(one, table[one]) for one in ids], servers)
    for server, own in enumerate(sent):
        for one in own:
            np.testing.assert_array_equal(held[server][one.ids], one.values)
    assert sum(len(own[0].ids) for own in sent) == len(wanted)
