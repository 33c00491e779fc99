from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.simulated.trainer import SimulatedTrainer
from syncswitch.trainers.workloads.clicks import (
    DENSE,
    ROWS_VARIABLE,
    WIDTH,
    auc,
    click_model,
    generate,
    rows_of_tables,
    workload,
)
from tests.trainers.simulated.clusters import EVEN, spec_of


def test_the_examples_are_the_same_everywhere_and_have_a_long_tail() -> None:
    inputs, labels, _ = generate(5_000, 1_000)
    assert inputs[:4, DENSE:].tolist() == [[851, 536], [641, 982], [765, 79], [765, 27]]
    assert int(labels.sum()) == 1556
    inputs, *_ = generate(20_000, 10_000)
    for column in (DENSE, DENSE + 1):
        ordered = np.sort(np.bincount(inputs[:, column].astype(int)))[::-1]
        assert ordered[:100].sum() > 0.5 * 20_000, "a hundredth makes more than half"
        assert np.count_nonzero(ordered) < 0.5 * 10_000, "most are never seen"


def test_the_examples_are_clicks_as_often_as_their_probability_says() -> None:
    _, labels, probabilities = generate(50_000, 500)
    for low in np.arange(0.0, 1.0, 0.2):
        of = (probabilities >= low) & (probabilities < low + 0.2)
        assert labels[of].mean() == pytest.approx(probabilities[of].mean(), abs=0.02)
    best = auc()
    best.update_state(labels, probabilities)
    assert 0.75 < float(best.result()) < 0.9


def test_numbers_of_rows_are_whole_in_large_tables() -> None:
    rows = generate(1_000, 5_000_000)[0][:, DENSE:]
    np.testing.assert_array_equal(rows, np.round(rows))
    assert rows.min() >= 0
    assert 4_000_000 < rows.max() < 5_000_000


def test_the_model_looks_each_number_up_in_a_table_of_its_own() -> None:
    model = click_model(3, 2, 50)
    tables = [layer for layer in model.layers if layer.name.startswith("table_")]
    assert [(one.input_dim, one.output_dim) for one in tables] == [(50, WIDTH)] * 2
    inputs = np.array([[0.1, 0.2, 0.3, 7, 49]], np.float32)
    before = model(inputs)
    tables[1].embeddings.assign(np.eye(50, WIDTH))
    assert not np.allclose(model(inputs), before)
    # The rows of the second one are zeros, but for the first sixteen.
    others = [model(np.array([[0.1, 0.2, 0.3, 7, row]], np.float32)) for row in (48, 3)]
    np.testing.assert_array_equal(model(inputs), others[0])
    assert not np.allclose(model(inputs), others[1])


def test_the_model_learns() -> None:
    """With small tables, of which each row is seen often."""
    inputs, labels, _ = generate(8_000, 200)
    labels = labels[:, np.newaxis]
    brief = replace(
        workload,
        model=partial(click_model, DENSE, 2, 200),
        data=lambda: Data(inputs[:7_000], labels[:7_000], inputs[7_000:], labels[7_000:]),
        total_worker_steps=200,
        learning_rate_boundaries=(),
        evaluation_interval_worker_steps=100,
    )
    with SimulatedTrainer(brief, 2, EVEN) as trainer:
        record = trainer.train(spec_of(brief, 2, 100.0, profile=EVEN))
    assert 0.65 < record.final_accuracy < 0.9


@pytest.mark.parametrize("text", ["0", "-3", "1e6", "16777217", "²"])
def test_rows_that_are_none_are_refused(monkeypatch: Any, text: str) -> None:
    monkeypatch.setenv(ROWS_VARIABLE, text)
    with pytest.raises(WorkloadError) as error:
        rows_of_tables()
    expected = f"{ROWS_VARIABLE} is {text!r}; give a whole number from 1 to 16777216"
    assert str(error.value) == expected


@pytest.mark.parametrize(("text", "rows"), [("5000000", 5_000_000), ("", 10_000)])
def test_the_environment_sets_the_rows(monkeypatch: Any, text: str, rows: int) -> None:
    monkeypatch.setenv(ROWS_VARIABLE, text)
    assert rows_of_tables() == rows


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("digits", "7efc8a588bb2fbc569925eb232d8021ed078a7a0cad7e8a701a14c08aaa7de98"),
        ("breast-cancer", "228936ee4df6438bc265449f5114e18af359782e17b84e3ab902a3dbdde6a246"),
    ],
)
def test_every_machine_trains_on_the_same_bits_of_a_shipped_data_set(
    name: str, digest: str
) -> None:
    data = load_workload(name).load_data()
    assert isinstance(data, Data)
    found = hashlib.sha256()
    for part in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        array = getattr(data, part)
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    assert found.hexdigest() == digest
