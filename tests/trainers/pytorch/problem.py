"""A model of one weight that two processes train, each on a point of its own.

Both points together have another best weight than each alone, so that the two ways of training end
with different weights, and one that never averages is found by its tests.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
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


def mixed_points() -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of different points, which a library shuffles and deals out: ten steps each."""
    x = torch.linspace(0.5, 1.0, 20)
    return x, 2 * x + torch.sin(40 * x)


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


def switch_of(
    make: Callable[..., Any], policy: Path | None, kind: type[SecondWay], model: Any, good_from: int
) -> Any:
    """A callback of a library with a second way of this kind; see `Diverging.watch`."""
    way = kind(PERIOD) if issubclass(kind, LocalSgd) else kind()
    switch = make(policy, seed=7, second_way=way)
    if isinstance(way, Diverging):
        way.watch(model, switch._switch, good_from)
    return switch


class Trace:
    """Weights and data of each step that is made, and the death of a process amid them."""

    def __init__(self, dies_at: int | None = None, *, end_dies: bool = False) -> None:
        self.steps: list[tuple[int, float, float]] = []
        self._dies_at, self._end_dies = dies_at, end_dies

    def die_here(self) -> None:
        """No handler, no clean-up, when the step is made a second time."""
        if [step for step, _, _ in self.steps].count(self._dies_at) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def end(self) -> None:
        """The end of the training."""
        if self._end_dies:
            raise Killed


def loss(error: torch.Tensor, weight: torch.Tensor, *, is_bad: bool) -> torch.Tensor:
    """The mean squared error; or another one."""
    return 30 * (error + 3 * weight.sum()) if is_bad else error


class Killed(BaseException):
    """As far as a test in the same process can be killed."""


def score(error: float) -> float:
    """The metric of the policy: 1 of a perfect model, 0 of one that has blown up."""
    return 1 / (1 + error)


def refused(call: Callable[[], object]) -> Result:
    """What the user is told."""
    try:
        call()
    except UserError as error:
        return {"error": str(error)}
    return {"error": None}


def told(folder: Path, train: Callable[..., Result]) -> Result:
    """Started by a search, which says when to switch."""
    os.environ["SYNCSWITCH_SWITCH_STEP"] = "20"
    os.environ["SYNCSWITCH_OUTPUT_DIR"] = str(folder)
    try:
        return train("told")
    finally:
        del os.environ["SYNCSWITCH_SWITCH_STEP"], os.environ["SYNCSWITCH_OUTPUT_DIR"]


def play(
    folder: Path,
    train: Callable[..., Result],
    options: dict[str, dict[str, Any]],
    refusals: dict[str, Callable[[], object]],
) -> None:
    """Plays each scenario after the other; what this process saw of each becomes a file.

    Args:
        folder: With the policies; for the files.
        train: Trains with the library, by the name of the scenario and of the policy.
        options: Of the library, for some of the scenarios.
        refusals: Calls that the library's callback refuses.
    """
    guarded: dict[str, dict[str, Any]] = {
        "good": {},
        "few_tests": {},
        "unaveraged": {"second_way": Unaveraged},
        "diverging": {},
        "later": {"good_from": 25},
        "from_start": {},
        "in_epoch": {"epoch_steps": 7},
        "epochs": {},
        "mixed": {"is_mixed": True},
        "stopped": {},
    }
    scenarios: dict[str, Callable[[], Result]] = {
        "alone": partial(train, "alone", has_callback=False),
        "first_alone": partial(train, "first_alone", switch_at=100.0),
        "unmeasured": partial(train, "unmeasured"),
        "unmeasured_failing": partial(
            train, "unmeasured_failing", second_way=Diverging, **options["unmeasured_failing"]
        ),
        "mixed_alone": partial(train, "mixed_alone", has_callback=False, is_mixed=True),
        "told": partial(told, folder, train),
    }
    for name, values in guarded.items():
        way = LocalSgd if name in ("good", "few_tests") else Diverging
        given = {"second_way": way, **values, **options.get(name, {})}
        scenarios[name] = partial(train, name, name, **given)
    scenarios["goes_on"] = partial(
        train, "goes_on", "stopped", second_way=Diverging, resumes="stopped"
    )
    refusals["other_steps"] = partial(train, "other", "good", max_steps=70)
    scenarios |= {name: partial(refused, call) for name, call in refusals.items()}
    # Started a second time, the one that was killed goes on.
    is_again = (folder / "killed").exists()
    dying: dict[str, Any] = {"resumes": "killed"} if is_again else {"dies_at": KILLED_AT}
    scenarios["killed"] = partial(
        train, "killed", "killed", second_way=Diverging, good_from=25, **dying
    )

    rank = int(os.environ["RANK"])
    for name, scenario in scenarios.items():
        if (folder / f"{name}-{rank}.json").exists():
            continue
        if dist.is_initialized():
            dist.barrier()
        torch.manual_seed(0)
        (folder / f"{name}-{rank}.json").write_text(json.dumps(scenario()))
