"""The state at the end of a trial, as the checkpoint at its end has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.state import read_checkpoint
from syncswitch.trainers.trainer import Observer, Trainer

_GROUPS = ("parameters", "slots", "statistics")


def train_to_end(
    trainer: Trainer, spec: TrialSpec, folder: Path, observer: Observer | None = None
) -> tuple[TrialRecord, ModelState]:
    """Its record, with a checkpoint at the end as well, and the state there."""
    percents = tuple(sorted({*spec.checkpoint_percents, 100.0}))
    directory = spec.checkpoint_directory or folder
    spec = replace(spec, checkpoint_percents=percents, checkpoint_directory=directory)
    record = trainer.train(spec, observer)
    checkpoint = read_checkpoint(record.checkpoints[100.0])
    groups = {group: _flat(getattr(checkpoint, group)) for group in _GROUPS}
    return record, ModelState(**groups, updates=checkpoint.updates)


def final_state(trainer: Trainer, spec: TrialSpec, folder: Path) -> ModelState:
    """The state alone."""
    return train_to_end(trainer, spec, folder)[1]


def assert_bitwise_equal(one: ModelState, other: ModelState) -> None:
    for group in _GROUPS:
        np.testing.assert_array_equal(getattr(one, group), getattr(other, group))
    assert one.updates == other.updates


def _flat(named: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.float32), *(value.ravel() for value in named.values())])
