"""A model whose parameters tell the rates of its updates, and a callback that notes the rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.trainers.jobs import linear_model, mean_output

ETA = 0.25


@pytest.fixture(scope="module")
def make(keras: Any) -> Any:
    from syncswitch.trainers.keras_api.callback import PolicyCallback

    return PolicyCallback


@pytest.fixture(scope="module")
def compiled(keras: Any) -> Any:
    """Traced once for most tests."""
    model = linear_model()
    model.compile(keras.optimizers.SGD(ETA), mean_output)
    return model


@pytest.fixture
def model(compiled: Any) -> Any:
    """Its gradient is always `CONSTANT_GRADIENT`, so its parameters tell the sum of the rates."""
    compiled.set_weights([np.ones((4, 1))])
    compiled.optimizer.learning_rate = ETA
    return compiled


@pytest.fixture
def own_model() -> Any:
    """The same, to be compiled by the test."""
    return linear_model()


@pytest.fixture
def rates(keras: Any) -> Any:
    """A callback that notes the learning rate of each batch."""

    class Rates(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            rate = self.model.optimizer.learning_rate
            self.seen.append(float(keras.ops.convert_to_numpy(rate)))

    return Rates()
