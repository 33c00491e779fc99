"""Simulated trainers, each compiled once for a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .clusters import VARIED


@pytest.fixture(scope="module")
def make_trainer(devices: Any) -> Iterator[Callable[..., Any]]:
    """Makes simulated trainers; the same one again for the same arguments."""
    from syncswitch.trainers.simulated.trainer import SimulatedTrainer

    trainers: dict[Any, Any] = {}

    def make(workload: Any, workers: int, profile: Any = VARIED) -> Any:
        key = (id(workload), workers, profile.digest)
        if key not in trainers:
            trainers[key] = (SimulatedTrainer(workload, workers, profile), workload)
        return trainers[key][0]

    yield make
    for trainer, _ in trainers.values():
        trainer.close()
