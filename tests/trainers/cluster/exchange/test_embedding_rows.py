from __future__ import annotations

import numpy as np

from syncswitch.trainers.cluster.exchange.parameter_server import (
    Caller,
    ParameterServer,
    Sizes,
)
from syncswitch.trainers.cluster.exchange.vectors import aligned, momentum_update
from syncswitch.trainers.model.embeddings.rules import MomentumRule
from syncswitch.trainers.model.embeddings.shard import RowGradient, ShardPlan
from syncswitch.trainers.model.layout import ModelState, Vector

NOTHING = np.zeros(0, np.float32)
ROWS = 6
IDS = np.array([1, 4])


def new_server() -> ParameterServer:
    """Returns a server with one table, whose rows are their numbers, for two workers."""
    server = ParameterServer(
        Sizes(0, 0, 0),
        2,
        momentum_update,
        NOTHING,
        lambda: aligned(0),
        ShardPlan(((ROWS, 1),), MomentumRule()),
    )
    server.load(ModelState(NOTHING, NOTHING, NOTHING))
    server.embeddings.load_rows(0, 0, 0, np.arange(ROWS, dtype=np.float32)[:, None])
    return server


def gradient(*values: float) -> list[RowGradient]:
    return [RowGradient(IDS, np.array(values, np.float32)[:, None])]


def read(server: ParameterServer) -> list[float]:
    found: Vector = server.embeddings.read_rows(0, 0, 0, ROWS)
    return list(map(float, found.ravel()))


def now(server: ParameterServer) -> list[float]:
    server.mark()
    server.marked()
    return read(server)


def test_rows_come_and_go_with_the_rest() -> None:
    server = new_server()
    (rows,) = server.pull(Caller(0, 0), [IDS]).rows
    assert rows.ravel().tolist() == [1, 4]
    server.push_update(Caller(0, 0), 7, NOTHING, 0.5, 0.0, gradient(2, 4))
    assert server.snapshot([IDS])[2].ravel().tolist() == [0, 2]
    assert now(server) == [0, 0, 2, 3, 2, 5]


def test_a_round_applies_the_mean_of_rows() -> None:
    server = new_server()
    server.push_gradient(Caller(0, 0), 1, NOTHING, rows=gradient(1, 2))
    server.push_gradient(Caller(1, 0), 2, NOTHING, rows=gradient(3, 0))
    server.apply_round([0, 1], 0.5, 0.0)
    assert now(server) == [0, 0, 2, 3, 3.5, 5]


def test_what_is_stale_in_a_buffer_counts_as_zero() -> None:
    server = new_server()
    server.push_gradient(Caller(0, 0), 1, NOTHING, 10, gradient(100, 200))
    server.push_gradient(Caller(0, 0), 2, NOTHING, 11, gradient(2, 4))
    server.apply_buffer([10, 11], [10], 0.5, 0.0)
    assert now(server) == [0, 0.5, 2, 3, 3, 5]


def test_another_state_has_rows_of_its_own() -> None:
    server = new_server()
    server.push_update(Caller(0, 0), 7, NOTHING, 0.5, 0.9, gradient(2, 4))
    server.load(ModelState(NOTHING, NOTHING, NOTHING, updates=3))
    server.embeddings.load_rows(0, 0, 2, np.full((2, 1), 9, np.float32))
    assert now(server) == [0, 0, 9, 9, 0, 0]
    server.push_update(Caller(0, 0), 8, NOTHING, 0.5, 0.9, gradient(0, 0))
    assert now(server) == [0, 0, 9, 9, 0, 0], "nothing is left of the momentum"
