"""Simulated trainers; what computes the same is compiled once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import copy_context
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.kept import Computation, computation, kept_for_the_next
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.simulated.profile import ClusterProfile
from tests.trainers.final import final_state
from tests.trainers.simulated.clusters import VARIED, spec_of


class Last:
    """The last trainer of a computation, and room for what it leaves to the next one."""

    def __init__(self) -> None:
        self._context, self._stack = copy_context(), ExitStack()
        self._context.run(self._stack.enter_context, kept_for_the_next())
        self._wanted: tuple[Any, ...] = ()
        self._trainer: Any = None

    def of(self, workload: Any, workers: int, profile: Any) -> Any:
        from syncswitch.trainers.simulated.trainer import SimulatedTrainer

        if self._wanted != (workload, workers, profile.digest):
            self._leave()
            self._trainer = self._context.run(SimulatedTrainer, workload, workers, profile)
            self._wanted = (workload, workers, profile.digest)
        return self._trainer

    def close(self) -> None:
        self._leave()
        self._context.run(self._stack.close)

    def _leave(self) -> None:
        if self._trainer is not None:
            self._context.run(self._trainer.close)


@pytest.fixture(scope="session")
def make_trainer() -> Iterator[Callable[..., Any]]:
    """Makes simulated trainers; the same one again for the same arguments.

    One gradient is computed at a time, as a call for several takes long to compile, unless
    `is_batched`: then as many as usual.
    """
    from syncswitch.trainers.simulated import trainer

    last: defaultdict[Computation, Last] = defaultdict(Last)

    def make(
        workload: Any, workers: int, profile: Any = VARIED, *, is_batched: bool = False
    ) -> Any:
        known = last[computation(workload, is_batched)]
        with pytest.MonkeyPatch.context() as patch:
            if not is_batched:
                patch.setattr(trainer, "_MOST_AT_ONCE", 1)
            return known.of(workload, workers, profile)

    yield make
    for one in last.values():
        one.close()


@pytest.fixture
def end_of(make_trainer: Callable[..., Any], tmp_path: Path) -> Callable[..., ModelState]:
    """Trains on a simulated cluster, by default with the first protocol; gives the final state."""
    folders = (tmp_path / str(number) for number in count())

    def end(
        workload: Workload,
        workers: int,
        switch_percent: float = 100.0,
        profile: ClusterProfile = VARIED,
        **fields: Any,
    ) -> ModelState:
        spec = spec_of(workload, workers, switch_percent, profile=profile, **fields)
        return final_state(make_trainer(workload, workers, profile), spec, next(folders))

    return end
