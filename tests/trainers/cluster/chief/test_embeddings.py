"""Jobs with embeddings whose rows are on parameter servers."""

from __future__ import annotations

import functools
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.trial import RunConditions
from syncswitch.trainers.cluster.chief import run
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.job.workload import Workload
from tests.trainers import jobs
from tests.trainers.clicks import (
    ALIKE,
    CLICKS,
    STEERED,
    STRICT,
    TESTED_OFTEN,
    USERS,
    WIDTH,
    Arrays,
    adam,
    assert_alike,
    assert_same,
    check_rows_move_at_the_raised_rate,
    check_trained_without_room_for_copies,
    final_arrays,
)
from tests.trainers.cluster.launchers import connected_trainer, new_launcher
from tests.trainers.jobs import CONSTANT_GRADIENT, RecordingObserver, counted, spec_of


def trained(workload: Workload, workers: int, folder: Path, switch_percent: float) -> Arrays:
    with ClusterTrainer(workload, workers) as trainer:
        return final_arrays(trainer, workload, spec_of(workload, workers, switch_percent), folder)


@pytest.mark.parametrize(
    ("optimizer", "rate", "workers", "switch_percent"),
    # Of one worker all protocols are the same, and its momentum changes with them.
    [(None, 0.02, 1, 50.0), (adam, 0.01, 2, 100.0)],
    ids=["sgd", "adam"],
)
def test_rows_are_trained_as_the_whole_table_would_be(
    tmp_path: Path,
    optimizer: Callable[[], Any] | None,
    rate: float,
    workers: int,
    switch_percent: float,
) -> None:
    """Rows that no batch has used for long are right too."""
    variant = "zero" if optimizer is None else "same"
    job = replace(ALIKE, optimizer=optimizer, learning_rate=rate, momentum_after_switch=variant)
    whole = replace(job, least_embedding_values=None)
    found = trained(job, workers, tmp_path / "rows", switch_percent)
    assert_alike(found, trained(whole, workers, tmp_path / "whole", switch_percent))
    table = found["parameters/000-embeddings"]
    assert table.shape == (USERS, WIDTH)
    assert 10 < len(np.unique(table[:, 0])) < USERS, "some were used, others never"


ROWS = 8
COUNTS = np.array([13, 0, 7, 1, 20, 3, 0, 20])
"""The number of the 64 examples that look up each row."""


def counting_data() -> Data:
    """Examples of a row number and the gradient of the rest of the model."""
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(ROWS), COUNTS))
    rest = np.tile(CONSTANT_GRADIENT, (len(ids), 1))
    inputs = np.concatenate([ids[:, None], rest], axis=1).astype(np.float32)
    labels = np.zeros((len(ids), 1), np.float32)
    return Data(inputs, labels, inputs[:8], labels[:8])


def counting_model() -> Any:
    from keras import Input, Model, layers

    inputs = Input((5,))
    table = layers.Embedding(ROWS, 1, "ones", name="table")(inputs[:, 0])
    rest = layers.Dense(1, use_bias=False, kernel_initializer="ones")(inputs[:, 1:])
    return Model(inputs, table + rest)


# Each example is looked up as often as any other, and sums of these gradients are exact.
COUNTING = replace(
    jobs.COUNTING, model=counting_model, data=counting_data, least_embedding_values=ROWS
)


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "pair"), [(1, ("bsp", "asp")), (2, ("ssp:2", "gba:1000"))])
def test_each_gradient_of_a_row_is_applied_once_whoever_is_lost(
    tmp_path: Path, servers: int, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(run, "_PROGRESS_SECONDS", 0.01)
    launcher = new_launcher(tmp_path, 2, servers=servers)
    last = "" if servers == 1 else "=1"
    injections = ("kill:worker=1,at=15%", f"kill:ps{last},at=40%", "kill:ps,at=75%")
    job = replace(COUNTING, batch_after_switch="global" if pair[1] == "asp" else "same")
    with connected_trainer(job, 2, launcher) as trainer:
        conditions = RunConditions(injections=injections)
        spec = spec_of(job, 2, 50.0, protocols=pair, conditions=conditions)
        observer = RecordingObserver()
        found = final_arrays(trainer, job, spec, tmp_path, observer)
    assert [one.kind for one in observer.events].count("rebuilt") == 2
    times = COUNTING.total_worker_steps * COUNTING.batch_size / COUNTS.sum()
    rate = COUNTING.learning_rate / COUNTING.batch_size
    np.testing.assert_array_equal(
        found["parameters/000-embeddings"].ravel(), 1 - rate * times * COUNTS
    )
    np.testing.assert_array_equal(found["parameters/001-kernel"].ravel(), counted())


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [None, adam], ids=["sgd", "adam"])
def test_it_goes_on_bit_for_bit_on_as_many_servers(
    tmp_path: Path, optimizer: Callable[[], Any] | None
) -> None:
    """On another number of them up to rounding, as rows that wait are brought up to date first."""
    job = replace(CLICKS, optimizer=optimizer)
    with connected_trainer(job, 2, new_launcher(tmp_path, 2, servers=2)) as trainer:
        folder = tmp_path / "whole"
        spec = spec_of(job, 2, 100.0, checkpoint_percents=(50.0,))
        found = final_arrays(trainer, job, spec, folder)
        half = checkpoint_path(replace(spec, checkpoint_directory=folder), 50.0, ".npz")
        fork = replace(spec, fork_from=half)
        assert_same(final_arrays(trainer, job, fork, tmp_path / "fork"), found)
    with ClusterTrainer(job, 2) as trainer:
        assert_alike(final_arrays(trainer, job, fork, tmp_path / "one server"), found)


@pytest.mark.parametrize("mechanism", ["hot", "restart"])
def test_a_run_without_room_for_copies_goes_on(
    make_trainer: Callable[[Workload, int], ClusterTrainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
) -> None:
    """With one worker, both protocols compute the same."""
    conditions = RunConditions(switch_mechanism=mechanism)
    spec = spec_of(TESTED_OFTEN, 1, 50.0, band=STRICT, conditions=conditions)
    trainer = make_trainer(TESTED_OFTEN, 1)
    if mechanism == "hot":
        check_trained_without_room_for_copies(trainer, spec, tmp_path, monkeypatch)
        (shard,) = trainer._cluster.embeddings._servers
        assert shard._tables[0].mark is None, "read for ever"
        return
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    record = trainer.train(replace(spec, band=None))
    assert [one.protocol for one in record.phases] == ["bsp", "asp"]
    said = [one.reason for one in record.events if one.kind == "unsaved"]
    assert said[0].endswith("; the cluster continues without a restart")


@pytest.mark.slow
def test_a_server_lost_without_room_for_copies_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(run, "_PROGRESS_SECONDS", 0.01)
    launcher = new_launcher(tmp_path, 1)
    with connected_trainer(CLICKS, 1, launcher) as trainer:
        spec = spec_of(CLICKS, 1, 100.0)
        expected = final_arrays(trainer, CLICKS, spec, tmp_path / "whole")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        conditions = RunConditions(injections=("kill:ps,at=75%",))
        observer = RecordingObserver()
        spec = replace(spec, conditions=conditions)
        found = final_arrays(trainer, CLICKS, spec, tmp_path / "lost", observer)
    assert_same(found, expected)
    kinds = [one.kind for one in observer.events]
    assert (kinds.count("unsaved"), kinds.count("rebuilt")) == (1, 1), kinds


BIG_ROWS = 480_000
BIG_BYTES = 16 * 4 * BIG_ROWS


def big_model(rows: int = BIG_ROWS) -> Any:
    from keras import Input, Model, layers

    inputs = Input((1,), dtype="int64")
    table = layers.Flatten()(layers.Embedding(rows, 16, name="table")(inputs))
    return Model(inputs, layers.Dense(2, "softmax")(table))


def big_data() -> Data:
    ids = np.random.default_rng(0).integers(0, BIG_ROWS, (256, 1))
    labels = (ids[:, 0] % 2).astype(np.int64)
    return Data(ids, labels, ids[:32], labels[:32])


@pytest.mark.slow
def test_the_chief_holds_no_table(tmp_path: Path) -> None:
    """A table of 31 MB, and its momentum, are made, copied, saved and read in pieces."""
    big = replace(CLICKS, name="big", model=big_model, data=big_data, total_worker_steps=40)
    small = replace(big, name="not big", model=functools.partial(big_model, BIG_ROWS // 10))
    small = replace(small, data=lambda: Data(*(one % 9 for one in parts)), least_embedding_values=1)
    data = big_data()
    parts = (data.train_inputs, data.train_labels, data.test_inputs, data.test_labels)

    def train(job: Workload) -> int:
        folder = tmp_path / f"{job.name} cluster"
        folder.mkdir()
        launcher = new_launcher(folder, 1, servers=2)
        with connected_trainer(job, 1, launcher) as trainer:
            percents = (50.0, 100.0)
            spec = spec_of(
                job, 1, 50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path / job.name
            )
            # What Python and NumPy hold at most; the system's own figures depend on who else works.
            tracemalloc.start()
            record = trainer.train(spec)
            forked = replace(spec, fork_from=record.checkpoints[50.0])
            trainer.train(replace(forked, checkpoint_directory=tmp_path / f"{job.name} fork"))
            _, most_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert record.checkpoints[100.0].stat().st_size > (2 * BIG_BYTES if job is big else 0)
        return most_bytes

    before = train(small)
    assert train(big) - before < BIG_BYTES / 3


def test_rows_move_at_the_raised_rate_of_their_worker(
    make_trainer: Callable[[Workload, int], ClusterTrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(STEERED, 4)
    check_rows_move_at_the_raised_rate(trainer, spec_of(STEERED, 4, 0.0), monkeypatch)
