"""A model of one weight that two processes train, each on a point of its own.

Both points together have another best weight than each alone, so that the two ways of training end
with different weights, and one that never averages is found by its tests.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from syncswitch.storage.errors import UserError
from syncswitch.trainers.pytorch.trainer_switch import LocalSgd, SecondWay, TrainerSwitch

POINTS = ((1.0, 2.0), (0.8, 0.0))
"""x and y of each process: the weight times x should be y."""

STEPS, TEST_EVERY, PERIOD = 80, 10, 4
KILLED_AT = 33
Result = dict[str, Any]


class Unaveraged(LocalSgd):
    """Each process goes its own way for good."""

    def settle(self) -> None:
        """Nothing."""


class Diverging(SecondWay):
    """Goes elsewhere in steps thirty times too long."""

    def watch(self, model: Any, switch: TrainerSwitch, good_from: int) -> None:
        """A switch at the step `good_from` or later is a good one; the model has `is_bad`."""
        self._model, self._switch, self._good_from = model, switch, good_from

    def use(self, is_second: bool) -> None:
        step = self._switch._switch.switch_step
        self._model.is_bad = is_second and step is not None and step < self._good_from


def loss(error: torch.Tensor, weight: torch.Tensor, *, is_bad: bool) -> torch.Tensor:
    """The mean squared error; or another one."""
    return 30 * (error + 3 * weight.sum()) if is_bad else error


class Killed(BaseException):
    """As far as a test in the same process can be killed."""


def score(error: float) -> float:
    """The metric of the policy: 1 of a perfect model, 0 of one that has blown up."""
    return 1 / (1 + error)


def kill() -> None:
    """No handler, no clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def refused(call: Callable[[], object]) -> Result:
    """What the user is told."""
    try:
        call()
    except UserError as error:
        return {"error": str(error)}
    return {"error": None}


def play(folder: Path, scenarios: dict[str, Callable[[], Result]]) -> None:
    """Each after the other; what this process saw of each becomes a file."""
    rank = int(os.environ["RANK"])
    for name, scenario in scenarios.items():
        if (folder / f"{name}-{rank}.json").exists():
            continue
        if dist.is_initialized():
            dist.barrier()
        torch.manual_seed(0)
        (folder / f"{name}-{rank}.json").write_text(json.dumps(scenario()))
