from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from syncswitch.trainers.model.checkpoint import read_checkpoint, write_checkpoint
from syncswitch.trainers.model.embeddings import blocks as moved
from syncswitch.trainers.model.embeddings.blocks import InitialEmbeddings, kept_embeddings
from syncswitch.trainers.model.embeddings.rules import AdagradRule
from syncswitch.trainers.model.layout import EmbeddingForm, EmbeddingSource, Vector
from tests.trainers.model.test_checkpoint import CHECKPOINT

FORMS = (EmbeddingForm("000-a", ("momentum",), 5, 2), EmbeddingForm("001-b", ("momentum",), 2, 3))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved, "BLOCK_VALUES", 4)


class Numbered(EmbeddingSource):
    """Each value a number of its own."""

    @override
    def part(self, table: int, part: int) -> Iterator[Vector]:
        form, start = FORMS[table], 100.0 * table + 50 * part
        values = start + np.arange(form.rows * form.width, dtype=np.float32)
        yield from np.split(values.reshape(form.rows, form.width), [1])


def whole(source: EmbeddingSource) -> dict[tuple[int, int], np.ndarray]:
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    for one in source.blocks():
        rows = found.setdefault((one.table, one.part), [])
        assert one.start == sum(map(len, rows))
        rows.append(one.values)
    return {key: np.concatenate(rows) for key, rows in found.items()}


def assert_numbered(source: EmbeddingSource) -> None:
    found, wanted = whole(source), whole(Numbered(FORMS))
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        np.testing.assert_array_equal(found[key], values)


WITH_EMBEDDINGS = replace(
    CHECKPOINT,
    parameters={"002-kernel": np.ones(3, np.float32)},
    slots={},
    statistics={},
    embeddings=Numbered(FORMS),
)


def test_embeddings_go_through_checkpoints_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, WITH_EMBEDDINGS)
    found = read_checkpoint(path)
    assert list(found.parameters) == ["002-kernel"]
    assert found.forms == FORMS
    assert found.embeddings is not None
    assert [len(one.values) for one in found.embeddings.blocks()][:3] == [2, 2, 1]
    # They stay readable when their file is gone, and others read them as plain arrays.
    for change in (lambda: write_checkpoint(path, found), path.unlink):
        with np.load(path) as file:
            assert file["parameters/000-a"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
            assert file["slots/001-b/momentum"].tolist() == [[150, 151, 152], [153, 154, 155]]
        change()
        assert_numbered(found.embeddings)


def test_a_copy_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    copied = kept_embeddings(Numbered(FORMS))
    assert os.listdir(tmp_path) == []
    one, other = copied.blocks(), copied.blocks()
    next(one), next(one)
    assert next(other).start == 0, "two may read at once"
    assert next(one).start == 4
    assert_numbered(copied)


TABLES = [
    EmbeddingForm("000-a", ("accumulator",), 5, 2),
    EmbeddingForm("001-b", ("accumulator",), 2, 2),
]


def initial_rows(seed: int, *initializers: Any) -> list[np.ndarray]:
    source = InitialEmbeddings(TABLES, initializers, AdagradRule(1e-7, 0.1), seed)
    blocks = list(source.blocks(skips_initial=True))
    assert [(one.table, one.start) for one in blocks] == [(0, 0), (0, 2), (0, 4), (1, 0)]
    assert all(one.part == 0 for one in blocks)
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


def test_slots_begin_as_the_optimizer_does(keras: Any) -> None:
    zeros = keras.initializers.Zeros()
    source = InitialEmbeddings(TABLES, [zeros, zeros], AdagradRule(1e-7, 0.1), 1)
    parts = [(one.table, one.part, one.start) for one in source.blocks()]
    assert parts == sorted(parts)
    assert {(one.part, float(one.values.max())) for one in source.blocks()} == {
        (0, 0.0),
        (1, float(np.float32(0.1))),
    }
