from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from syncswitch.trainers.job.sources import Array
from syncswitch.trainers.model import embeddings as shards
from syncswitch.trainers.model.embeddings import (
    EmbeddingShard,
    InitialEmbeddings,
    RowGradient,
    ShardPlan,
    block_on,
    gradients_for,
    ids_for,
    ids_on,
    kept_embeddings,
    mean_of_rows,
    rows_of,
    rows_on,
)
from syncswitch.trainers.model.layout import EmbeddingLayout, EmbeddingSource, Vector
from syncswitch.trainers.model.row_rules import (
    AdagradRule,
    AdamRule,
    KerasMomentumRule,
    KerasSGDRule,
    MomentumRule,
    RowRule,
    Update,
    row_rule,
)
from syncswitch.trainers.model.state import read_checkpoint, write_checkpoint
from tests.trainers.clicks import CLICKS, of_keras
from tests.trainers.model.test_state import CHECKPOINT

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
        self,
        gradients: Sequence[Sequence[RowGradient]],
        rate: float,
        momentum: float,
        own_workers: int = 0,
    ) -> None:
        dense = np.zeros_like(self.parts[0])
        for (one,) in gradients:
            dense[one.ids] += one.values
        dense /= np.float32(len(gradients))
        update = Update(self.updates, rate, momentum, own_workers)
        self.rule.apply(self.parts[0], self.parts[1:], dense, update)
        self.updates += 1


def loaded(rule: RowRule, values: Vector, updates: int = 0) -> EmbeddingShard:
    shard = EmbeddingShard(ShardPlan((values.shape,), rule))
    shard.reset(updates)
    shard.load_rows(0, 0, 0, values)
    return shard


def gradient(random: np.random.Generator, rows: int) -> RowGradient:
    ids = np.flatnonzero(random.random(rows) < random.choice([0.0, 0.1, 0.6]))
    scale = 10.0 ** random.integers(-6, 2)
    values = scale * random.standard_normal((len(ids), WIDTH))
    return RowGradient(ids, values.astype(np.float32))


def assert_close(found: Sequence[Vector], wanted: Sequence[Vector]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


class Both:
    """A shard, and the whole table beside it, which has to be the same."""

    def __init__(self, rule: RowRule, rows: int, seed: int) -> None:
        self.rule, self.random = rule, np.random.default_rng(seed)
        self.values = self.random.standard_normal((rows, WIDTH)).astype(np.float32)
        self.shard, self.dense = loaded(rule, self.values), Dense(rule, self.values)

    def push(self, times: int = 1, rate: float = 0.05, momentum: float = 0.9) -> None:
        for _ in range(times):
            pushed = [[gradient(self.random, len(self.values))]]
            for one in (self.shard, self.dense):
                one.push(pushed, rate, momentum)

    def marked(self) -> list[Vector]:
        self.shard.mark()
        return [part.copy() for part in self.dense.parts]

    def copied(self) -> list[Array]:
        """The parts at the mark, read in two pieces."""
        rows, cut = len(self.values), len(self.values) // 2
        return [
            np.concatenate([self.shard.read_rows(0, part, *one) for one in ((0, cut), (cut, rows))])
            for part in range(2 + len(self.rule.slots))
        ]

    def parts(self) -> list[Vector]:
        """Values and slots at the mark, up to date."""
        values, *slots, last = self.copied()
        self.rule.memory(self.shard.read_memory()).catch_up(last, values, slots)
        return [values, *slots]

    def check(self) -> list[Vector]:
        wanted = self.marked()
        found = self.parts()
        self.shard.end_read()
        assert_close(found, wanted)
        return found


@given(st.sampled_from(RULES), st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 60))
def test_rows_are_what_the_whole_table_would_be(
    rule: RowRule, seed: int, rows: int, updates: int
) -> None:
    """Also after long pauses, under rates and momenta that change, shared or the workers' own."""
    both = Both(rule, rows, seed)
    random, rate, momentum, own_workers = both.random, 0.01, 0.9, 0
    for _ in range(updates):
        if random.random() < 0.1:
            rate, momentum = 0.1 * random.random(), random.choice([0.0, 0.1125, 0.9])
            own_workers = random.choice([0, 1, 8])
        pushed = [[gradient(random, rows)] for _ in range(random.integers(1, 4))]
        for one in (both.shard, both.dense):
            one.push(pushed, rate, momentum, own_workers)
        (wanted,) = pushed[0]
        assert_close(both.shard.pull([wanted.ids]), [both.dense.parts[0][wanted.ids]])
    both.check()


@pytest.mark.parametrize("rule", [MomentumRule(), KerasMomentumRule(0.9)], ids=str)
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_workers_own_momentum_moves_rows_as_far_as_each_gradient_would(
    rule: RowRule, workers: int
) -> None:
    """`rate / (1 - momentum)` times the gradient in the end, and at once what looks ahead."""
    shard = loaded(rule, np.zeros((2, WIDTH), np.float32))
    row = RowGradient(np.array([0]), np.ones((1, WIDTH), np.float32))
    shard.push([[row]], 0.01, 0.9, workers)
    np.testing.assert_allclose(shard.pull([row.ids])[0], -0.01 * 1.9, rtol=1e-5)
    for _ in range(200 * workers):
        shard.push([[row.none]], 0.01, 0.9, workers)
    np.testing.assert_allclose(shard.pull([row.ids])[0], -0.1, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_row_may_be_left_alone_for_long(rule: RowRule) -> None:
    both = Both(rule, 4, seed=0)
    both.shard.load_rows(0, 0, 0, np.ones((4, WIDTH), np.float32))
    both.dense.parts[0][:] = 1.0
    some = RowGradient(np.array([0, 2]), np.full((2, WIDTH), 0.5, np.float32))
    other = RowGradient(np.array([1]), np.full((1, WIDTH), -1e-6, np.float32))
    for number in range(3000):
        pushed = [[some if number % 1500 == 0 else other]]
        for one in (both.shard, both.dense):
            one.push(pushed, 1e-3, 0.9 if number < 700 else 0.99)
    both.check()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("most_updates", [7, 1000])
def test_what_is_read_is_of_the_mark(
    rule: RowRule, most_updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the memory of updates, which must not grow for ever, has been forgotten since."""
    monkeypatch.setattr(shards, "_MOST_UPDATES", most_updates)
    monkeypatch.setattr(shards, "_ROWS_AT_ONCE", 2)
    both = Both(rule, 5, seed=1)
    both.push(20)
    for _ in range(2):
        wanted = both.marked()
        for times in (17, 3):
            both.push(times)
            assert_close(both.parts(), wanted)
    both.check()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("most_updates", [70, 1000])
def test_a_copy_goes_on_bit_for_bit(
    rule: RowRule, most_updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was never copied does: rows that wait are not brought up to date meanwhile."""
    monkeypatch.setattr(shards, "_MOST_UPDATES", most_updates)
    both, alone = Both(rule, 60, seed=2), Both(rule, 60, seed=2)
    given_up = RowGradient(np.arange(0, 60, 3), np.ones((20, WIDTH), np.float32))
    for times in (3, 40, 50):
        both.push(times)
        alone.push(times)
        both.shard.mark()
        both.shard.push([[given_up]], 0.1, 0.9)
        parts, memory = both.copied(), both.shard.read_memory()
        both.shard = loaded(rule, both.values, both.dense.updates)
        both.shard.load_memory(memory)
        for number, part in enumerate(parts):
            both.shard.load_rows(0, number, 0, part[:2])
            both.shard.load_rows(0, number, 2, part[2:])
    for one, other in zip(both.check(), alone.check(), strict=True):
        np.testing.assert_array_equal(one, other)


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


@pytest.mark.parametrize(
    "optimizer",
    [of_keras("SGD", momentum=0.8), of_keras("SGD"), of_keras("Adagrad"), of_keras("Adam")],
)
def test_a_rule_moves_rows_as_the_optimizer_of_keras_does(optimizer: Any) -> None:
    from keras import Variable

    rule, random = row_rule(replace(CLICKS, optimizer=optimizer)), np.random.default_rng(0)
    values = random.standard_normal((5, 3)).astype(np.float32)
    slots = [np.full_like(values, rule.initial) for _ in rule.slots]
    table, built = Variable(values), optimizer()
    for update, rate in enumerate([0.1, 0.1, 0.1, 0.01, 0.01]):
        gradient = random.standard_normal(values.shape).astype(np.float32)
        rule.apply(values, slots, gradient, Update(update, rate, momentum=0.3))
        built.learning_rate = rate
        built.apply([gradient], [table])
    np.testing.assert_allclose(values, table.numpy(), rtol=1e-5)


LAYOUTS = (
    EmbeddingLayout("000-a", ("momentum",), 5, 2),
    EmbeddingLayout("001-b", ("momentum",), 2, 3),
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BLOCK_VALUES", 4)


class Numbered(EmbeddingSource):
    """Each value a number of its own."""

    @override
    def part(self, table: int, part: int) -> Iterator[Vector]:
        (shape, kind), start = LAYOUTS[table].form(part), 100 * table + 50 * part
        values = start + np.arange(math.prod(shape))
        yield from np.split(values.astype(kind).reshape(shape), [1])

    @override
    def memories(self) -> list[Array]:
        return [np.arange(2.0) + server for server in range(11)]


def whole(source: EmbeddingSource) -> dict[tuple[int, int], np.ndarray]:
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    for one in source.blocks():
        rows = found.setdefault((one.table, one.part), [])
        assert one.start == sum(map(len, rows))
        rows.append(one.values)
    return {key: np.concatenate(rows) for key, rows in found.items()}


def assert_numbered(source: EmbeddingSource) -> None:
    found, wanted = whole(source), whole(Numbered(LAYOUTS))
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        np.testing.assert_array_equal(found[key], values)
    np.testing.assert_array_equal(source.memories(), Numbered(LAYOUTS).memories())


WITH_EMBEDDINGS = replace(
    CHECKPOINT,
    parameters={"002-kernel": np.ones(3, np.float32)},
    slots={},
    statistics={},
    embeddings=Numbered(LAYOUTS),
)


def test_embeddings_go_through_checkpoints_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, WITH_EMBEDDINGS)
    found = read_checkpoint(path)
    assert list(found.parameters) == ["002-kernel"]
    assert found.layouts == LAYOUTS
    assert found.embeddings is not None
    assert [len(one.values) for one in found.embeddings.blocks()][:3] == [2, 2, 1]
    # They stay readable when their file is gone, and others read them as plain arrays.
    for change in (lambda: write_checkpoint(path, found), path.unlink):
        with np.load(path) as file:
            assert file["parameters/000-a"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
            assert file["slots/001-b/momentum"].tolist() == [[150, 151, 152], [153, 154, 155]]
            assert file["known/001-b"].tolist() == [200, 201]
        change()
        assert_numbered(found.embeddings)


def test_no_row_waits_in_an_older_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, WITH_EMBEDDINGS)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if not name.startswith(("kn", "mem"))}
    np.savez(path, **arrays)
    embeddings = read_checkpoint(path).embeddings
    assert embeddings is not None
    assert whole(embeddings)[1, 1].tolist() == [[150, 151, 152], [153, 154, 155]]
    assert whole(embeddings)[0, 2].tolist() == [0] * 5
    assert embeddings.memories() == []


def test_a_copy_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    copied = kept_embeddings(Numbered(LAYOUTS))
    assert os.listdir(tmp_path) == []
    one, other = copied.blocks(), copied.blocks()
    next(one), next(one)
    assert next(other).start == 0, "two may read at once"
    assert next(one).start == 4
    assert_numbered(copied)


SECOND = [(1, 0, 0), (1, 1, 0), (1, 2, 0)]
TABLES = [
    EmbeddingLayout("000-a", ("accumulator",), 5, 2),
    EmbeddingLayout("001-b", ("accumulator",), 2, 2),
]


def initial_rows(seed: int, *initializers: Any) -> list[np.ndarray]:
    """By embedding; slots begin as the optimizer's do."""
    source = InitialEmbeddings(TABLES, initializers, AdagradRule(1e-7, 0.1), seed)
    blocks = list(source.blocks(skips_initial=True))
    assert [(one.table, one.start) for one in blocks] == [(0, 0), (0, 2), (0, 4), (1, 0)]
    assert all(one.part == 0 for one in blocks)
    parts = [(one.table, one.part, one.start) for one in source.blocks()]
    assert parts == [*((0, part, start) for part in range(3) for start in (0, 2, 4)), *SECOND]
    initial = [
        {float(one.values.mean()) for one in source.blocks() if one.part == 1 + n} for n in (0, 1)
    ]
    assert initial == [{np.float32(0.1)}, {0.0}], "slots, and what rows know"
    return [
        np.concatenate([one.values for one in blocks if one.table == number]) for number in (0, 1)
    ]


def test_rows_are_as_their_initializer_and_the_seed_of_the_run_make_them(keras: Any) -> None:
    spread = keras.initializers.RandomUniform(1.0, 2.0, seed=3)
    first, second = initial_rows(1, spread, keras.initializers.Constant(0.5))
    assert first.shape == (5, 2)
    assert len(np.unique(first)) == first.size
    assert 1 <= first.min() < first.max() <= 2
    assert (second == 0.5).all()
    other = keras.initializers.RandomUniform(1.0, 2.0, seed=4)
    again, table = initial_rows(1, other, other)
    np.testing.assert_array_equal(again, first)
    assert (initial_rows(2, other, other)[0] != first).any()
    assert (table != first[:2]).any()
