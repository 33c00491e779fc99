"""A trainer's switch without a trainer: the second way is asked before each step of every run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.records import changed
from tests.storage.conftest import IDENTITY
from tests.trainers.policies import level_band, policy_file

pytest.importorskip("torch", reason="needs PyTorch, which is in the extra lightning")
import torch

from syncswitch.trainers.pytorch.trainer_switch import LocalSgd, SecondWay, TrainerSwitch

STEPS = 20
MODEL = torch.nn.Linear(1, 1)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.5)


class Asked(SecondWay):
    """Remembers the calls."""

    def __init__(self) -> None:
        self.models: list[object] = []
        self.used: list[bool] = []

    def attach(self, model: torch.nn.Module) -> None:
        self.models.append(model)

    def use(self, is_second: bool) -> None:
        assert self.models == [MODEL]
        self.used.append(is_second)


class Averaged(LocalSgd):
    """Remembers at which step models are averaged, though there is one process."""

    def __init__(self, period: int | str) -> None:
        super().__init__(period)
        self.at: list[int] = []
        self._step = 0

    def after_step(self, step: int, rate: float) -> None:
        self._step = step
        super().after_step(step, rate)

    def settle(self) -> None:
        self.at.append(self._step)
        super().settle()


def policy_at(folder: Path, percent: float) -> Path:
    """The policy file of a job in whose first way each test has 0.9."""
    identity = changed(IDENTITY, total_worker_steps=STEPS, workers=1)
    band = level_band(0.9, range(1, STEPS + 1))
    return policy_file(folder / "job.json", identity, switch_percent=percent, band=band)


def switch_at(folder: Path, percent: float) -> tuple[TrainerSwitch, Asked]:
    """The switch of such a policy."""
    way = Asked()
    return TrainerSwitch(policy_at(folder, percent), "accuracy", 7, way), way


def train(switch: TrainerSwitch, accuracy: float, start: int = 0, end: int = STEPS) -> int:
    """Steps from `start` on, each with a test; returns the step at which it stops."""
    switch.begin(MODEL, STEPS)
    for step in range(start, end):
        if switch.saves_at(step):
            switch.remember(step, f"{step}")
        switch.before_step(step, [OPTIMIZER])
        switch.after_step(step + 1)
        if switch.report(step + 1, {"accuracy": accuracy}):
            return step + 1
    return end


@pytest.mark.parametrize(("percent", "switch"), [(100.0, STEPS), (50.0, 10), (0.0, 0)])
def test_it_is_asked_before_each_step(tmp_path: Path, percent: float, switch: int) -> None:
    trainer, way = switch_at(tmp_path, percent)
    assert train(trainer, 0.9) == STEPS
    assert way.used == [False] * switch + [True] * (STEPS - switch)


def test_it_is_asked_in_each_step_after_going_back_and_after_a_kill(tmp_path: Path) -> None:
    trainer, way = switch_at(tmp_path, 50.0)
    stopped = train(trainer, 0.5)
    assert (trainer.back, stopped) == ("10", 13)
    assert way.used == [False] * 10 + [True] * 3
    state = json.loads(json.dumps(trainer.state_dict()))

    # A new process continues from the switch, and has none any more.
    resumed, anew = switch_at(tmp_path, 50.0)
    resumed.load_state_dict(state)
    resumed.back = None
    assert train(resumed, 0.9, start=10) == STEPS
    assert anew.used == [False] * 10


@pytest.mark.parametrize(("period", "expected"), [(3, [13, 16, 19]), ("qsr:2:0.5", [12, 14, 18])])
def test_a_period_begins_with_an_average_and_is_as_long_as_the_rate_says(
    tmp_path: Path, period: int | str, expected: list[int]
) -> None:
    way = Averaged(period)
    switch = TrainerSwitch(policy_at(tmp_path, 50.0), "accuracy", 7, way)
    # (0.5 / rate)^2 is 1 up to step 14, and 4 from there on.
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.5)
    switch.begin(MODEL, STEPS)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.5 if step < 14 else 0.25
        switch.before_step(step, [optimizer])
        switch.after_step(step + 1)
    assert way.at == expected
