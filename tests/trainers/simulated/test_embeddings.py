"""Jobs with embeddings whose rows are trained alone, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.simulated.trainer import SimulatedTrainer
from tests.failing import fails
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
    clicks_data,
    final_arrays,
    of_keras,
)
from tests.trainers.jobs import RecordingObserver
from tests.trainers.simulated.clusters import VARIED, spec_of
from tests.wording import Said

MakeTrainer = Callable[..., SimulatedTrainer]
WORKERS = 3


def trained(make_trainer: MakeTrainer, workload: Workload, folder: Path, **fields: Any) -> Arrays:
    fields = {"switch_percent": 50.0, **fields}
    spec = spec_of(workload, WORKERS, **fields)
    return final_arrays(make_trainer(workload, WORKERS), workload, spec, folder)


@pytest.mark.parametrize(
    ("pair", "optimizer"),
    [(("bsp", "asp"), None), (("ssp:1", "gba:1"), adam)],
    ids=["bsp,asp,sgd", "ssp,gba,adam"],
)
def test_rows_are_trained_as_the_whole_table_would_be(
    make_trainer: MakeTrainer, tmp_path: Path, pair: tuple[str, str], optimizer: Any
) -> None:
    """With stale gradients, and with a momentum or batch that changes at the switch."""
    variant = "ramped" if optimizer is None else "same"
    batch = "global" if pair[1] == "asp" else "same"
    job = replace(
        ALIKE,
        optimizer=optimizer,
        momentum_after_switch=variant,
        batch_after_switch=batch,
        learning_rate=0.01,
    )
    whole = replace(job, least_embedding_values=None)
    found = trained(make_trainer, job, tmp_path / "rows", protocols=pair)
    assert_alike(found, trained(make_trainer, whole, tmp_path / "whole", protocols=pair))


COPIED = pytest.mark.parametrize(
    "optimizer",
    [None, of_keras("SGD", momentum=0.9), of_keras("Adagrad"), adam],
    ids=["sgd", "keras", "adagrad", "adam"],
)


@COPIED
@pytest.mark.parametrize("pair", [("bsp", "asp"), ("gba:1", "ssp:1")], ids=",".join)
def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(
    make_trainer: MakeTrainer, tmp_path: Path, pair: tuple[str, str], optimizer: Any
) -> None:
    """Before its switch, at it or after it, it ends as if nothing had happened to it."""
    job = replace(CLICKS, optimizer=optimizer)
    percents = (25.0, 50.0, 75.0)
    fields: dict[str, Any] = {"protocols": pair, "checkpoint_percents": percents}
    found = trained(make_trainer, job, tmp_path, **fields)
    spec = spec_of(job, WORKERS, 50.0, protocols=pair, checkpoint_directory=tmp_path)
    later = {one: checkpoint_path(spec, one, ".npz") for one in (*percents, 100.0)}
    fork = later[50.0].rename(tmp_path / "fork.npz")
    for percent in (100.0, 75.0):
        later.pop(percent).unlink()
        if percent == 75.0:
            later[50.0].write_bytes(fork.read_bytes())
        assert_same(trained(make_trainer, job, tmp_path, resume=True, **fields), found)
    forked = trained(make_trainer, job, tmp_path / "fork", fork_from=fork, **fields)
    assert_same(forked, found)


def test_copies_change_nothing(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """With the first protocol a run is the same whether or not it writes checkpoints."""
    found = trained(make_trainer, CLICKS, tmp_path, checkpoint_percents=(20.0, 50.0))
    assert_same(found, trained(make_trainer, CLICKS, tmp_path / "without"))


@COPIED
def test_a_run_that_fails_goes_back_to_the_rows_at_its_switch_bit_for_bit(
    make_trainer: MakeTrainer, tmp_path: Path, optimizer: Any
) -> None:
    """As if it had never switched: what the second protocol did to rows and slots is gone."""
    job = replace(CLICKS, optimizer=optimizer)
    band = Band(2.0, 0.01, 1, (BandPoint(1, 2.0, 0.0), BandPoint(96, 2.0, 0.0)))
    observer = RecordingObserver()
    spec = spec_of(job, WORKERS, 50.0, band=band)
    guarded = final_arrays(make_trainer(job, WORKERS), job, spec, tmp_path / "guarded", observer)
    assert "alarmed" in [one.kind for one in observer.events]
    whole = trained(make_trainer, job, tmp_path / "whole", switch_percent=100.0)
    assert_same(guarded, whole)


def test_whole_models_cannot_be_averaged(make_trainer: MakeTrainer) -> None:
    spec = spec_of(CLICKS, WORKERS, 50.0, protocols=("bsp", "local-sgd:3"))
    with fails("protocol-unsuitable"):
        make_trainer(CLICKS, WORKERS).train(spec)


def wrong_data() -> Data:
    data = clicks_data()
    return replace(data, train_inputs=data.train_inputs + np.array([0, 40]))


def chained_model() -> Any:
    """Looks up a row whose number follows from another row."""
    from keras import Input, Model, layers, ops

    inputs = Input((2,), dtype="int64")
    first = layers.Embedding(USERS, WIDTH, name="first")(inputs[:, 0])
    number = ops.cast(ops.argmax(first, axis=-1), "int64")
    second = layers.Embedding(USERS, WIDTH, name="second")(number)
    return Model(inputs, layers.Dense(2, "softmax")(second))


def test_what_cannot_be_trained_by_rows_is_refused(said: Said) -> None:
    for fields in (
        {"model": chained_model},
        {"optimizer": of_keras("RMSprop")},
        {"optimizer": of_keras("Adam", clipnorm=1.0)},
    ):
        said.refusal(
            "workload-unsuitable", SimulatedTrainer, replace(CLICKS, **fields), WORKERS, VARIED
        )
    with fails("workload-unsuitable", r"layer 'item' is asked for row (79|80) and has 41"):
        SimulatedTrainer(replace(CLICKS, data=wrong_data), WORKERS, VARIED)


def test_a_run_without_room_for_copies_goes_on(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, spec = make_trainer(TESTED_OFTEN, 1), spec_of(TESTED_OFTEN, 1, 50.0, band=STRICT)
    check_trained_without_room_for_copies(trainer, spec, tmp_path, monkeypatch)


def test_rows_move_at_the_raised_rate_of_their_worker(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(STEERED, 4)
    check_rows_move_at_the_raised_rate(trainer, spec_of(STEERED, 4, 0.0), monkeypatch)
