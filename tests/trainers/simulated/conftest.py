"""Simulated trainers, each compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.trainers.simulated.clusters import VARIED


@pytest.fixture(scope="session")
def make_trainer() -> Iterator[Callable[..., Any]]:
    """Makes simulated trainers; the same one again for the same arguments.

    One gradient is computed at a time, as a call for several takes long to compile, unless
    `is_batched`: then as many as usual.
    """
    from syncswitch.trainers.simulated import trainer

    trainers: dict[Any, Any] = {}

    def make(
        workload: Any, workers: int, profile: Any = VARIED, *, is_batched: bool = False
    ) -> Any:
        key = (workload, workers, profile.digest, is_batched)
        if key not in trainers:
            with pytest.MonkeyPatch.context() as patch:
                if not is_batched:
                    patch.setattr(trainer, "_MOST_AT_ONCE", 1)
                trainers[key] = trainer.SimulatedTrainer(workload, workers, profile)
        return trainers[key]

    yield make
    for made in trainers.values():
        made.close()
