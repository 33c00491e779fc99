from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.model.embeddings import shard as shards
from syncswitch.trainers.model.embeddings.rules import (
    AdagradRule,
    AdamRule,
    KerasMomentumRule,
    KerasSGDRule,
    MomentumRule,
    RowRule,
    Update,
)
from syncswitch.trainers.model.embeddings.shard import (
    EmbeddingShard,
    RowGradient,
    ShardPlan,
    block_on,
    gradients_for,
    ids_for,
    ids_on,
    mean_of_rows,
    rows_of,
    rows_on,
)
from syncswitch.trainers.model.layout import Vector

WIDTH = 3
RULES: list[RowRule] = [
    MomentumRule(),
    KerasSGDRule(),
    KerasMomentumRule(0.9),
    AdagradRule(1e-7, 0.1),
    AdamRule(0.9, 0.999, 1e-7),
    AdamRule(0.5, 0.9, 1e-3),
    AdamRule(0.9, 0.9, 1e-5),
    AdamRule(0.0, 0.999, 1e-7),
]


class Dense:
    """The same optimizer on the whole table, whose gradient is 0 where a row has none."""

    def __init__(self, rule: RowRule, values: Vector) -> None:
        self.rule, self.updates = rule, 0
        self.parts = [values.copy(), *(np.full_like(values, rule.initial) for _ in rule.slots)]

    def push(
        self, gradients: Sequence[Sequence[RowGradient]], rate: float, momentum: float
    ) -> None:
        dense = np.zeros_like(self.parts[0])
        for (one,) in gradients:
            dense[one.ids] += one.values
        dense /= np.float32(len(gradients))
        update = Update(self.updates, rate, momentum)
        self.rule.apply(self.parts[0], self.parts[1:], dense, update)
        self.updates += 1


def loaded(rule: RowRule, values: Vector, updates: int = 0) -> EmbeddingShard:
    shard = EmbeddingShard(ShardPlan((values.shape,), rule))
    shard.reset(updates)
    shard.load_rows(0, 0, 0, values)
    return shard


def parts_of(shard: EmbeddingShard, rule: RowRule, rows: int) -> list[Vector]:
    """As they are now, read in two pieces."""
    shard.mark()
    found = read_parts(shard, rule, rows)
    shard.end_read()
    return found


def read_parts(shard: EmbeddingShard, rule: RowRule, rows: int) -> list[Vector]:
    cut = rows // 2
    return [
        np.concatenate([shard.read_rows(0, part, 0, cut), shard.read_rows(0, part, cut, rows)])
        for part in range(1 + len(rule.slots))
    ]


def gradient(random: np.random.Generator, rows: int) -> RowGradient:
    ids = np.flatnonzero(random.random(rows) < random.choice([0.0, 0.1, 0.6]))
    scale = 10.0 ** random.integers(-6, 2)
    values = scale * random.standard_normal((len(ids), WIDTH))
    return RowGradient(ids, values.astype(np.float32))


def assert_close(found: Sequence[Vector], wanted: Sequence[Vector]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@st.composite
def histories(draw: Any) -> tuple[RowRule, int, int, int]:
    seed = draw(st.integers(0, 2**32 - 1))
    return draw(st.sampled_from(RULES)), seed, draw(st.integers(1, 9)), draw(st.integers(1, 60))


@given(histories())
def test_rows_are_what_the_whole_table_would_be(case: tuple[RowRule, int, int, int]) -> None:
    """Also after long pauses, under rates and momenta that change."""
    rule, seed, rows, updates = case
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, WIDTH)).astype(np.float32)
    shard, dense = loaded(rule, values), Dense(rule, values)
    rate, momentum = 0.01, 0.9
    for _ in range(updates):
        if random.random() < 0.1:
            rate, momentum = 0.1 * random.random(), random.choice([0.0, 0.1125, 0.9])
        pushed = [[gradient(random, rows)] for _ in range(random.integers(1, 4))]
        for one in (shard, dense):
            one.push(pushed, rate, momentum)
        (wanted,) = pushed[0]
        assert_close(shard.pull([wanted.ids]), [dense.parts[0][wanted.ids]])
    assert_close(parts_of(shard, rule, rows), dense.parts)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_row_may_be_left_alone_for_long(rule: RowRule) -> None:
    values = np.ones((4, WIDTH), np.float32)
    shard, dense = loaded(rule, values), Dense(rule, values)
    some = RowGradient(np.array([0, 2]), np.full((2, WIDTH), 0.5, np.float32))
    other = RowGradient(np.array([1]), np.full((1, WIDTH), -1e-6, np.float32))
    for number in range(3000):
        pushed = [[some if number % 1500 == 0 else other]]
        for one in (shard, dense):
            one.push(pushed, 1e-3, 0.9 if number < 700 else 0.99)
    assert_close(parts_of(shard, rule, 4), dense.parts)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_memory_of_updates_does_not_grow_for_ever(
    rule: RowRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_MOST_UPDATES", 7)
    monkeypatch.setattr(shards, "_ROWS_AT_ONCE", 2)
    random = np.random.default_rng(0)
    values = random.standard_normal((5, WIDTH)).astype(np.float32)
    shard, dense = loaded(rule, values), Dense(rule, values)
    for number in range(40):
        pushed = [[gradient(random, 5)]]
        if number == 20:
            shard.mark()
            wanted = [part.copy() for part in dense.parts]
        for one in (shard, dense):
            one.push(pushed, 0.01, 0.9)
    assert_close(read_parts(shard, rule, 5), wanted)
    assert_close(parts_of(shard, rule, 5), dense.parts)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_is_read_is_of_the_mark(rule: RowRule) -> None:
    random = np.random.default_rng(1)
    values = random.standard_normal((6, WIDTH)).astype(np.float32)
    shard, dense = loaded(rule, values), Dense(rule, values)

    def push(times: int) -> None:
        for _ in range(times):
            pushed = [[gradient(random, 6)]]
            for one in (shard, dense):
                one.push(pushed, 0.05, 0.9)

    push(5)
    for _ in range(2):
        shard.mark()
        wanted = [part.copy() for part in dense.parts]
        push(7)
        assert_close(read_parts(shard, rule, 6), wanted)
        push(3)
        assert_close(read_parts(shard, rule, 6), wanted)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_it_goes_on_where_another_one_was(rule: RowRule) -> None:
    random = np.random.default_rng(2)
    values = random.standard_normal((6, WIDTH)).astype(np.float32)
    shard, dense = loaded(rule, values), Dense(rule, values)
    for _ in range(3):
        for _ in range(4):
            pushed = [[gradient(random, 6)]]
            for one in (shard, dense):
                one.push(pushed, 0.05, 0.9)
        parts = parts_of(shard, rule, 6)
        shard = loaded(rule, values, dense.updates)
        for number, part in enumerate(parts):
            shard.load_rows(0, number, 0, part[:2])
            shard.load_rows(0, number, 2, part[2:])
    assert_close(parts_of(shard, rule, 6), dense.parts)


def test_the_mean_of_rows_is_that_of_embeddings() -> None:
    parts = [
        RowGradient(np.array(ids), np.array(values, np.float32)[:, None])
        for ids, values in (([1, 4], [3, 6]), ([4], [9]), ([], []))
    ]
    ids, values = mean_of_rows(parts)
    assert ids.tolist() == [1, 4]
    assert values.ravel().tolist() == [1, 5]
    assert mean_of_rows(parts[:1]) is parts[0]


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
        first, end = rows_on(start, server, servers), rows_on(stop, server, servers)
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
