"""One of two processes that train with Lightning. Arguments: a folder with policies."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.utils.data import DataLoader, Dataset, TensorDataset

from syncswitch.trainers.pytorch.lightning import LightningCallback, LocalSgd, SecondWay
from tests.trainers.pytorch import problem
from tests.trainers.pytorch.problem import Killed, Result

FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK"])
WHOLE = torch.tensor(problem.POINTS)


class Module(LightningModule):  # type: ignore[misc]
    """The weight, and a rate that shrinks with each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.is_bad = False

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        x, y = batch
        return problem.loss(((self.weight * x - y) ** 2).mean(), self.weight, is_bad=self.is_bad)

    def validation_step(self, batch: Any, _: int) -> None:
        x, y = WHOLE.T
        error = float(((self.weight * x - y) ** 2).mean().detach())
        for name in ("val_score", "val_acc"):
            self.log(name, problem.score(error), sync_dist=False)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Trace(problem.Trace, Callback):  # type: ignore[misc]
    """Of a training with Lightning."""

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps.append((trainer.global_step, float(pl_module.weight), float(batch[0].sum())))
        self.die_here()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.end()


def own_points(steps: int) -> Dataset[Any]:
    """The point of this process, so often that an epoch has so many steps."""
    x, y = problem.POINTS[RANK]
    return TensorDataset(torch.full((steps,), x), torch.full((steps,), y))


def train(
    name: str,
    policy: str | None = None,
    second_way: type[SecondWay] = LocalSgd,
    *,
    good_from: int = problem.STEPS,
    has_callback: bool = True,
    epoch_steps: int = 10,
    is_mixed: bool = False,
    switch_at: float | None = None,
    dies_at: int | None = None,
    resumes: str | None = None,
    **options: Any,
) -> Result:
    module, trace = Module(), Trace(dies_at, end_dies=name == "stopped")
    path = None if policy is None else FOLDER / f"{policy}.json"
    metric = "val_score" if policy else "val_acc"
    make = partial(LightningCallback, monitor=metric, switch_at=switch_at)
    switch = problem.switch_of(make, path, second_way, module, good_from)
    if not {"max_epochs", "max_steps"} & options.keys():
        options["max_steps"] = problem.STEPS
    root = FOLDER / (resumes or name)
    keeper = ModelCheckpoint(
        root / "own", filename="{step}", every_n_train_steps=5, save_last=True, save_top_k=-1
    )
    keepers = [keeper]
    if "stopped" in (name, resumes):
        keepers = [ModelCheckpoint(root / "own", save_last=True, save_on_train_epoch_end=False)]
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        callbacks=[*([switch] if has_callback else []), trace, *keepers],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=is_mixed,
        val_check_interval=options.pop("val_check_interval", problem.TEST_EVERY),
        check_val_every_n_epoch=None,
        default_root_dir=root,
        **options,
    )
    train_data = TensorDataset(*problem.mixed_points()) if is_mixed else own_points(epoch_steps)
    data = (
        DataLoader(train_data, 1, shuffle=is_mixed),
        DataLoader(TensorDataset(torch.zeros(2), torch.zeros(2)), 2),
    )
    fit = partial(switch.fit, trainer) if has_callback else trainer.fit
    with contextlib.suppress(Killed):
        fit(module, *data, ckpt_path=None if resumes is None else str(root / "own" / "last.ckpt"))
    torch.distributed.barrier()
    return {
        "trace": trace.steps,
        "end": float(module.weight.detach()),
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "left": sorted(one.name for one in root.glob("syncswitch-*")),
        "saved": {
            one.stem: float(torch.load(one, weights_only=False)["state_dict"]["weight"])
            for one in (root / "own").glob("step=*.ckpt")
        },
    }


class Hooked(Callback):  # type: ignore[misc]
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        trainer.strategy.model.register_comm_hook(None, allreduce_hook)


def plain(*callbacks: Callback) -> Trainer:
    return Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(),
        callbacks=[*callbacks],
        logger=False,
        max_steps=problem.STEPS,
    )


def fitted(monitor: str, *callbacks: Callback) -> object:
    switch = LightningCallback(FOLDER / "good.json", monitor=monitor)
    trainer = plain(*callbacks, switch)
    return switch.fit(trainer, Module(), DataLoader(own_points(10)), DataLoader(own_points(1)))


def not_by_the_switch() -> object:
    switch = LightningCallback(FOLDER / "good.json", monitor="val_score")
    return plain(switch).fit(Module(), DataLoader(own_points(10)))


if __name__ == "__main__":
    problem.play(
        FOLDER,
        train,
        {
            "few_tests": {"val_check_interval": 30},
            "epochs": {"max_epochs": 8},
            "unmeasured_failing": {"val_check_interval": 4},
        },
        {
            "no_fit": not_by_the_switch,
            "no_callback": lambda: LightningCallback(monitor="val_acc").fit(plain(), Module()),
            "no_goal": lambda: LightningCallback(monitor="val_score"),
            "other_metric": partial(fitted, "accuracy"),
            "other_hook": partial(fitted, "val_score", Hooked()),
            "early_stopping": partial(fitted, "val_score", EarlyStopping("val_score")),
        },
    )
