from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.model.embeddings import initial
from syncswitch.trainers.model.embeddings.initial import InitialEmbeddings
from syncswitch.trainers.model.embeddings.rules import AdagradRule

EMBEDDINGS = [EmbeddingTable(0, "000-a", "a", 10, 3), EmbeddingTable(1, "001-b", "b", 4, 3)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "BLOCK_VALUES", 12)


def rows(seed: int, *initializers: Any) -> list[np.ndarray]:
    source = InitialEmbeddings(EMBEDDINGS, initializers, AdagradRule(1e-7, 0.1), seed)
    blocks = list(source.blocks(skips_initial=True))
    assert [(one.table, one.start) for one in blocks] == [(0, 0), (0, 4), (0, 8), (1, 0)]
    assert all(one.part == 0 for one in blocks)
    return [
        np.concatenate([one.values for one in blocks if one.table == number]) for number in (0, 1)
    ]


def test_rows_are_as_their_initializer_makes_them(keras: Any) -> None:
    spread = keras.initializers.RandomUniform(1.0, 2.0)
    first, second = rows(1, spread, keras.initializers.Constant(0.5))
    assert first.shape == (10, 3)
    assert len(np.unique(first)) == first.size
    assert 1 <= first.min() < first.max() <= 2
    assert (second == 0.5).all()


def test_they_depend_on_the_seed_of_the_run_alone(keras: Any) -> None:
    one, other = (keras.initializers.RandomNormal(seed=seed) for seed in (3, 4))
    for first, second in zip(rows(1, one, one), rows(1, other, other), strict=True):
        np.testing.assert_array_equal(first, second)
    assert (rows(1, one, one)[0] != rows(2, one, one)[0]).any()
    assert (rows(1, one, one)[0][:4] != rows(1, one, one)[1]).any()


def test_slots_begin_as_the_optimizer_does(keras: Any) -> None:
    zeros = keras.initializers.Zeros()
    source = InitialEmbeddings(EMBEDDINGS, [zeros, zeros], AdagradRule(1e-7, 0.1), 1)
    parts = [(one.table, one.part, one.start) for one in source.blocks()]
    assert parts == sorted(parts)
    assert {(one.part, float(one.values.max())) for one in source.blocks()} == {
        (0, 0.0),
        (1, float(np.float32(0.1))),
    }
