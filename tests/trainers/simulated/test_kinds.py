"""Jobs of twenty kinds, as `compile` and `fit` would get them, train in the simulator."""

from __future__ import annotations

import math
from typing import Any

import pytest

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.simulated.profile import load_profile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity
from tests.trainers.simulated.kinds import kinds

_NAMES = (
    "tabular",
    "imbalanced",
    "weighted",
    "one-hot",
    "regression",
    "structured",
    "wide and deep",
    "siamese",
    "two tasks",
    "autoencoder",
    "pictures",
    "residual",
    "segmentation",
    "text",
    "attention",
    "tagging",
    "ragged text",
    "bag of words",
    "series",
    "recurrent",
)


def test_these_are_all() -> None:
    assert tuple(kinds()) == _NAMES


@pytest.mark.parametrize("name", _NAMES)
def test_it_is_trained_as_it_is_compiled(keras: Any, name: str) -> None:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    kind = kinds()[name]
    model = kind.model(keras)
    metrics = kind.metrics if isinstance(kind.metrics, dict) else list(kind.metrics)
    model.compile(keras.optimizers.SGD(0.05), kind.loss, metrics=metrics, **kind.compiled)
    workload = from_compiled(
        model,
        kind.x,
        kind.y,
        validation_data=(kind.x, kind.y),
        batch_size=16,
        epochs=4,
        name=name,
        evaluation_interval_worker_steps=4,
        **kind.fitted,
    )
    profile = load_profile("uniform")
    identity = simulated_identity(workload, 2, ("bsp", "asp"), profile)
    with SimulatedTrainer(workload, 2, profile) as trainer:
        record = trainer.train(TrialSpec(identity, 50.0, 1))
    assert record.worker_steps == 16
    assert not record.diverged
    losses = [one.training_loss for one in record.evaluations]
    assert all(map(math.isfinite, losses))
