"""Local SGD of two processes: what their averages are of."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch, which is in the extra lightning")
import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from syncswitch.storage.errors import UserError
from syncswitch.trainers.pytorch.trainer_switch import LocalSgd

OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


class Scaled(nn.Module):
    """A weight without dimensions, as Adam's step is, and one that has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


def two_steps(name: str, rank: int, way: LocalSgd) -> dict[str, float]:
    """Two steps of local SGD, each process on a point of its own, and then an average."""
    module = Scaled()
    model = DistributedDataParallel(module, find_unused_parameters=True)
    optimizer = OPTIMIZERS[name](model.parameters())
    way.attach(model)
    for step in (1, 2):
        way.take_optimizers([optimizer])
        way.use(True)
        optimizer.zero_grad()
        model(torch.tensor(float(1 + 2 * rank))).backward()
        optimizer.step()
        way.after_step(step, 0.1)
    state = optimizer.state[module.weight]
    return {"weight": float(module.weight), **{one: float(state[one]) for one in state}}


def process(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {
        f"{name} {kind}": two_steps(
            name, rank, LocalSgd(2, kind, None if kind == "averaged" else 1)
        )
        for name in OPTIMIZERS
        for kind in ("averaged", "kept")
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


@pytest.mark.slow
def test_momenta_are_averaged_with_the_models_unless_each_keeps_its_own(tmp_path: Path) -> None:
    multiprocessing.spawn(process, (tmp_path,), nprocs=2)
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    for name, own in one.items():
        assert own["weight"] == other[name]["weight"]
        assert (own == other[name]) is name.endswith("averaged")
    # The gradients are 1 and 3, and the momentum of two steps 1.9 times as long.
    assert one["momentum averaged"]["momentum_buffer"] == pytest.approx(1.9 * 2)
    assert one["momentum kept"]["momentum_buffer"] == pytest.approx(1.9)
    assert one["adamw averaged"]["exp_avg"] == pytest.approx(0.19 * 2)
    assert one["adamw averaged"]["exp_avg_sq"] == pytest.approx(0.001999 * 5)
    assert one["adamw averaged"]["step"] == 2
    # There are second moments from the first step on, which is one of the length 0.1.
    rate = 0.1 * math.sqrt(2)
    assert one["adamw averaged"]["weight"] == pytest.approx(0.899 * (1 - 0.01 * rate) - rate)
    assert one["adamw kept"]["weight"] == pytest.approx(0.899 * (1 - 0.01 * 0.1) - 0.1)
    assert one["momentum averaged"]["weight"] == pytest.approx(1 - 0.1 * 2 * (1 + 1.9))


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_raised_rate_is_that_of_steps_in_the_second_way_alone(is_wrapped: bool) -> None:
    """Schedules see their own, also one that goes by the last."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda _: 0.5)
    taken: Any = SimpleNamespace(optimizer=optimizer) if is_wrapped else optimizer
    way, moved = LocalSgd(rate=3.0), []
    for is_second in (False, True, True, False):
        way.take_optimizers([taken])
        way.use(is_second)
        before, weight.grad = weight.item(), torch.ones(1)
        optimizer.step()
        schedule.step()
        moved.append(before - weight.item())
    assert moved == [1.0, 0.5 * 3, 0.25 * 3, 0.125]
    assert schedule.get_last_lr() == [1 / 16]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="give 'averaged' or 'kept'"):
        LocalSgd(optimizer="mean")
    with pytest.raises(UserError, match="rate is 0: give a number above 0"):
        LocalSgd(rate=0)
