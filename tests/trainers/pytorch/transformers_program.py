"""One of two processes that train with Hugging Face's Trainer. Argument: a folder with policies."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.utils.data import Dataset
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from syncswitch.trainers.pytorch.transformers import LocalSgd, SecondWay, TransformersCallback
from tests.trainers.pytorch import problem
from tests.trainers.pytorch.problem import Killed, Result

FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK"])


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.is_bad = False
        self.data = 0.0

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.data = float(x.sum())
        output = self.weight * x
        error = ((output - labels) ** 2).mean()
        loss = problem.loss(error, self.weight, is_bad=self.is_bad)
        return {"loss": loss, "output": output}


class Points(Dataset[Any]):
    def __init__(self, points: Any) -> None:
        self._points = points

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        x, y = self._points[number]
        return {"x": torch.tensor(x), "labels": torch.tensor(y)}


class Trace(problem.Trace, TrainerCallback):  # type: ignore[misc]
    """Of a training with Hugging Face's Trainer."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        model = known["model"]
        self.steps.append((state.global_step + 1, float(model.weight.detach()), model.data))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.die_here()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.end()


def measured(given: Any) -> dict[str, float]:
    error = float(((given.predictions - given.label_ids) ** 2).mean())
    return dict.fromkeys(("score", "acc"), problem.score(error))


def arguments(root: Path, **options: Any) -> TrainingArguments:
    if not {"num_train_epochs", "max_steps"} & options.keys():
        options["max_steps"] = problem.STEPS
    return TrainingArguments(
        **{
            "output_dir": str(root),
            "use_cpu": True,
            "ddp_backend": "gloo",
            "per_device_train_batch_size": 1,
            "per_device_eval_batch_size": 1,
            "learning_rate": 0.1,
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "eval_strategy": "steps",
            "eval_steps": problem.TEST_EVERY,
            "save_strategy": "steps",
            "save_steps": 5,
            "save_total_limit": 2,
            "report_to": "none",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "train_sampling_strategy": "sequential",
            **options,
        }
    )


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
    metric = "eval_score" if policy else "eval_acc"
    make = partial(TransformersCallback, metric=metric, switch_at=switch_at)
    switch = problem.switch_of(make, path, second_way, module, good_from)
    root = FOLDER / (resumes or name)
    points: Any = problem.POINTS * epoch_steps
    if is_mixed:
        points = torch.stack(problem.mixed_points(), 1).tolist()
        options["train_sampling_strategy"] = "random"
    trainer = Trainer(
        module,
        arguments(root, **options),
        train_dataset=Points(points),
        # Each process predicts the point that the other was trained with.
        eval_dataset=Points(problem.POINTS[::-1]),
        compute_metrics=measured,
        callbacks=[trace, *([switch] if has_callback else [])],
    )
    fit = partial(switch.train, trainer) if has_callback else trainer.train
    try:
        fit(resume_from_checkpoint=resumes is not None)
    except Killed:
        trainer.is_in_train = False
    if dist.is_initialized():
        dist.barrier()
    return {
        "trace": trace.steps,
        "end": float(module.weight.detach()),
        "step": trainer.state.global_step,
        "left": sorted(one.name for one in root.glob("syncswitch-*")),
        "saved": {
            one.name.replace("checkpoint-", "step="): float(
                load_file(one / "model.safetensors")["weight"]
            )
            for one in root.glob("checkpoint-*")
        },
    }


def trainer_of(switch: TransformersCallback | None, *others: Any, **options: Any) -> Trainer:
    return Trainer(
        Module(),
        arguments(FOLDER / "refused", **options),
        train_dataset=Points(problem.POINTS * 10),
        eval_dataset=Points(problem.POINTS),
        compute_metrics=measured,
        callbacks=[*others, *([] if switch is None else [switch])],
    )


def switch_of(metric: str = "eval_score") -> TransformersCallback:
    return TransformersCallback(FOLDER / "good.json", metric=metric)


def another_metric() -> object:
    switch = switch_of("eval_accuracy")
    return switch.train(trainer_of(switch))


def another_hook() -> object:
    class Hooked(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            trainer.model_wrapped.register_comm_hook(None, allreduce_hook)

    switch = switch_of()
    trainer = trainer_of(switch, Hooked())
    return switch.train(trainer)


def model_alone() -> object:
    switch = switch_of()
    return switch.train(trainer_of(switch, save_only_model=True))


def early_stopping() -> object:
    switch = switch_of()
    return switch.train(trainer_of(switch, EarlyStoppingCallback()))


if __name__ == "__main__":
    by_epoch = {"num_train_epochs": 8, "eval_strategy": "epoch", "save_strategy": "epoch"}
    problem.play(
        FOLDER,
        train,
        {
            "few_tests": {"eval_strategy": "no", "save_strategy": "no"},
            "epochs": by_epoch,
            "unmeasured_failing": {"eval_steps": 4},
        },
        {
            "no_fit": lambda: trainer_of(switch_of()).train(),
            "no_callback": lambda: switch_of().train(trainer_of(None)),
            "no_goal": lambda: TransformersCallback(metric="eval_score"),
            "other_metric": another_metric,
            "other_hook": another_hook,
            "model_alone": model_alone,
            "early_stopping": early_stopping,
        },
    )
