"""A small job with embeddings, as recommenders have: one column of numbers for each table."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.embeddings import EmbeddingShard, SettledEmbeddings
from syncswitch.trainers.model.own_slots import OwnSlots
from syncswitch.trainers.model.row_rules import row_rule
from syncswitch.trainers.model.state import read_checkpoint
from syncswitch.trainers.trainer import Observer, Trainer
from tests.trainers.jobs import RecordingObserver

USERS, ITEMS, WIDTH = 300, 41, 4
BATCH_SIZE = 8


@functools.cache
def clicks_data(users: int = USERS) -> Data:
    """Numbers with a long tail, and whether a user of this kind clicks on an item of that kind."""
    random = np.random.default_rng(0)
    examples = 640
    user = np.minimum(random.zipf(1.3, examples), users) - 1
    item = random.integers(0, ITEMS, examples)
    labels = ((user + item) % 2 == 0).astype(np.int64)
    inputs = np.stack([user, item], axis=1).astype(np.int64)
    return Data(inputs, labels, inputs[:96], labels[:96])


def clicks_model(users: int = USERS, initializer: Any = "uniform") -> Any:
    from keras import Input, Model, layers

    inputs = Input((2,), dtype="int64")
    user = layers.Embedding(users, WIDTH, initializer, name="user")(inputs[:, 0])
    item = layers.Embedding(ITEMS, WIDTH, initializer, name="item")(inputs[:, 1])
    joined = layers.Concatenate()([user, item, user * item])
    hidden = layers.Dense(8, "relu", name="hidden")(joined)
    return Model(inputs, layers.Dense(2, "softmax", name="output")(hidden))


def constant_clicks_model() -> Any:
    """All rows begin alike, so that it does not matter how they are made."""
    from keras import initializers

    return clicks_model(initializer=initializers.Constant(0.25))


CLICKS = Workload(
    name="small-clicks",
    model=clicks_model,
    data=clicks_data,
    data_set="generated",
    total_worker_steps=96,
    batch_size=BATCH_SIZE,
    learning_rate=0.05,
    evaluation_interval_worker_steps=32,
    least_embedding_values=ITEMS * WIDTH,
)
"""Both embeddings are trained by their rows."""

ALIKE = replace(CLICKS, name="alike", model=constant_clicks_model)
"""The same with rows that all begin alike."""

WHOLE = replace(CLICKS, least_embedding_values=None)
"""The same job with embeddings that every step moves whole."""


def of_keras(name: str, **settings: Any) -> Callable[[], Any]:
    def build() -> Any:
        from keras import optimizers

        return getattr(optimizers, name)(**settings)

    return build


adam = of_keras("Adam")


Arrays = dict[str, np.ndarray]


def final_arrays(
    trainer: Trainer,
    workload: Workload,
    spec: TrialSpec,
    folder: Path,
    observer: Observer | None = None,
) -> Arrays:
    """All arrays of the checkpoint at the end, by their names; no row waits for anything."""
    percents = tuple(sorted({*spec.checkpoint_percents, 100.0}))
    own = replace(spec, checkpoint_percents=percents, checkpoint_directory=folder)
    record = trainer.train(own, observer)
    assert not record.diverged
    checkpoint = read_checkpoint(record.checkpoints[100.0])
    found = {
        f"{group}/{name}": values
        for group in ("parameters", "slots", "statistics")
        for name, values in getattr(checkpoint, group).items()
    }
    if checkpoint.embeddings is not None:
        settled = SettledEmbeddings(checkpoint.embeddings, row_rule(workload))
        for table, layout in enumerate(checkpoint.layouts):
            for part, name in enumerate(layout.members):
                found[name] = np.concatenate(list(settled.part(table, part)))
    return found


def assert_alike(one: Arrays, other: Arrays) -> None:
    """Parameters differ by rounding alone, whether embeddings are trained by rows or whole."""
    one, other = _parameters_of(one), _parameters_of(other)
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=2e-5, atol=2e-6, err_msg=name)


def assert_same(one: Arrays, other: Arrays) -> None:
    """Bit for bit, with all that optimizers keep."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def _parameters_of(arrays: Arrays) -> Arrays:
    return {name: value for name, value in arrays.items() if name.startswith("parameters/")}


STRICT = Band(
    2.0, 0.01, 3, (BandPoint(1, 2.0, 0.0), BandPoint(CLICKS.total_worker_steps, 2.0, 0.0))
)
"""No test is as good, so the third one after the switch is an alarm."""

TESTED_OFTEN = replace(CLICKS, name="tested often", evaluation_interval_worker_steps=8)


STEERED = replace(CLICKS, name="steered", optimizer=adam, learning_rate=0.001)
"""The rate of its workers rises after the switch."""


def check_rows_move_at_the_raised_rate(
    trainer: Trainer, spec: TrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whole parameters do, in a run of `STEERED` by four workers without BSP."""
    turned, pushed = list[float](), list[float]()
    turn, push = OwnSlots.turn, EmbeddingShard.push

    def turning(*given: Any) -> float:
        turned.append(turn(*given))
        return turned[-1]

    def pushing(shard: EmbeddingShard, rows: Any, rate: float, *others: Any) -> None:
        pushed.append(rate)
        push(shard, rows, rate, *others)

    monkeypatch.setattr(OwnSlots, "turn", turning)
    monkeypatch.setattr(EmbeddingShard, "push", pushing)
    trainer.train(spec)
    assert sorted(pushed) == sorted(turned)
    assert (min(pushed), len(pushed)) == (0.001, STEERED.total_worker_steps)
    assert 0.001 < max(pushed) <= 0.002


def check_trained_without_room_for_copies(
    trainer: Trainer, spec: TrialSpec, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guarded run goes on, and back to the checkpoint at its switch, or has no guard without.

    Args:
        trainer: Of `TESTED_OFTEN`.
        spec: With a switch within the job, and `STRICT`.
        folder: For checkpoints.
        monkeypatch: Takes the folder for temporary files away.
    """
    job, unswitched = TESTED_OFTEN, replace(spec, switch_percent=100.0, band=None)
    alone = final_arrays(trainer, job, unswitched, folder / "alone")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "gone"))
    observer = RecordingObserver()
    guarded = final_arrays(trainer, job, spec, folder / "guarded", observer)
    assert [one.kind for one in observer.events].count("alarmed") == 1
    assert_same(guarded, alone)
    record = trainer.train(spec)
    assert record.guard is None
    assert record.worker_steps == spec.identity.total_worker_steps
    (said,) = {one.reason for one in record.events if one.kind == "unsaved"}
    assert said.startswith(f"a copy of the embeddings cannot be written to {folder}/gone:")
    assert said.endswith("; the run continues without a guard")
