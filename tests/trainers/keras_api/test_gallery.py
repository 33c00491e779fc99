"""Scripts in the style of Keras' gallery train with `fit` in the place of their `model.fit`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.trial import TrialSpec
from tests.trainers.keras_api.gallery import GALLERY


@pytest.mark.parametrize("name", list(GALLERY))
def test_a_script_trains_by_fit(
    keras: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where its run is recorded
    keras.utils.set_random_seed(1)
    before: list[Any] = []
    trained: list[Any] = []

    def fit(model: Any, *data: Any, **arguments: Any) -> Any:
        from syncswitch import fit

        if not trained and model.built:
            before.extend(model.get_weights())
        # Too small to judge a switch by.
        done = fit(model, *data, workers=2, switch_at=50, guarded=False, **arguments)
        assert done.model is model
        trained.append(done)
        return done

    record = GALLERY[name](fit)
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
    assert not record.diverged
    assert not record.stopped_early
    assert all(math.isfinite(one) for values in record.history.values() for one in values)
    # As plots of a training want them.
    assert {len(values) for values in record.history.values()} == {len(record.evaluations)}
    after = record.model.get_weights()
    assert not before or any((one != other).any() for one, other in zip(before, after, strict=True))
    assert all(np.isfinite(one).all() for one in after)


_CALLBACKS_OF_FIT = ("EarlyStopping", "TextGenerator")


@pytest.mark.parametrize("name", ["text_transformer", "structured_data", "collaborative_filtering"])
def test_a_script_makes_a_workload(keras: Any, name: str) -> None:
    """Their own layers have no `get_config`, so the model comes from a function."""
    from syncswitch import from_compiled
    from syncswitch.trainers.simulated.profile import load_profile
    from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity

    def fit(model: Any, *data: Any, **arguments: Any) -> Any:
        kept = [
            one
            for one in arguments.pop("callbacks", ())
            if type(one).__name__ not in _CALLBACKS_OF_FIT
        ]
        return from_compiled(lambda: model, *data, callbacks=kept, name=name, **arguments)

    workload = GALLERY[name](fit)
    profile = load_profile("uniform")
    spec = TrialSpec(simulated_identity(workload, 2, ("bsp", "asp"), profile), 50.0, 1)
    with SimulatedTrainer(workload, 2, profile) as trainer:
        record = trainer.train(spec)
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
    assert not record.diverged
