"""Scripts in the style of Keras' gallery train with `fit` in the place of their `model.fit`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.trainers.keras_api.gallery import GALLERY


@pytest.mark.parametrize("name", list(GALLERY))
def test_a_script_trains_by_fit(keras: Any, name: str) -> None:
    keras.utils.set_random_seed(1)
    before: list[Any] = []
    trained: list[Any] = []

    def fit(model: Any, *data: Any, **arguments: Any) -> Any:
        from syncswitch.trainers import fit

        if not trained and model.built:
            before.extend(model.get_weights())
        # Too small to judge a switch by.
        done = fit(model, *data, workers=2, switch_at=50, guard=False, **arguments)
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
