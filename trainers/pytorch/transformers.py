"""The guarded switch of a training with Hugging Face's Trainer.

```
switch = SyncSwitchCallback("job.json", metric="eval_accuracy", seed=7)
trainer = Trainer(model, arguments, ..., callbacks=[switch])
switch.train(trainer)
```
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

try:
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
except ImportError as error:
    raise ImportError(
        "the callback for Hugging Face's Trainer needs Transformers and Accelerate, which are"
        " missing; run: pip install 'syncswitch[transformers]'"
    ) from error

import torch.distributed as dist

from syncswitch.storage.errors import UserError
from syncswitch.trainers.pytorch.trainer_switch import LocalSgd, SecondWay, TrainerSwitch

__all__ = ["LocalSgd", "SecondWay", "SyncSwitchCallback"]

_KEY = "syncswitch"


class SyncSwitchCallback(TrainerCallback):  # type: ignore[misc]  # Transformers may be missing
    """Trains in the first way up to a step and in the second from there on, guarded.

    At the switch the trainer saves a checkpoint, of which `syncswitch-STEP` in `output_dir` is a
    copy. Each evaluation is compared with those of the first way in the search. After an alarm
    `train` has the trainer resume from that copy: model, optimizer, scheduler, random numbers,
    counters and the order of the data are as at the switch. The steps that were lost are made
    again, and their checkpoints removed. The first way holds until a later switch, or to the end.
    The copies are removed when the training ends.

    A step is an optimizer step, `state.global_step`. Who decides when to switch and what it is
    compared with, with and without a policy, is as with `LoopSwitch`. The trainer's own checkpoints
    contain the state of the guard.

    Args:
        policy: Policy file, see `syncswitch-search policy export`; None without one.
        switch_at: See `LoopSwitch`.
        metric: Name of the policy's metric among those of an evaluation.
        metric_goal: See `LoopSwitch`.
        seed: Seed of this run, for its record.
        second_way: The second way of training; None for `LocalSgd()`, which needs DDP, as
            `torchrun` and `accelerate launch` use it.

    Raises:
        PolicyError: The file is not a policy with one switch.
        UserError: An argument is out of range, or missing without a policy.
    """

    def __init__(
        self,
        policy: str | Path | None = None,
        *,
        switch_at: float | None = None,
        metric: str = "eval_accuracy",
        metric_goal: str | None = None,
        seed: int = 0,
        second_way: SecondWay | None = None,
    ) -> None:
        self._switch = TrainerSwitch(
            policy, metric, seed, second_way, switch_at=switch_at, metric_goal=metric_goal
        )
        self._metric = metric
        self._trainer: Trainer | None = None

    def train(self, trainer: Trainer, resume_from_checkpoint: str | bool | None = None) -> Any:
        """Calls `trainer.train`, and again from the switch as often as one fails.

        Returns the trainer's result of the last of these.
        """
        if self not in trainer.callback_handler.callbacks:
            raise UserError("give the callback to the trainer as well: Trainer(callbacks=[switch])")
        if trainer.args.save_only_model and self._switch.may_go_back:
            raise UserError("save_only_model keeps too little to go back to; leave it out")
        self._switch.check_callbacks(trainer.callback_handler.callbacks)
        self._trainer = trainer
        output = trainer.train(resume_from_checkpoint=resume_from_checkpoint)
        while self._switch.back is not None:
            path, self._switch.back = self._switch.back, None
            if trainer.args.should_save:
                _remove_later(Path(trainer.args.output_dir), Path(path))
            output = trainer.train(resume_from_checkpoint=path)
        self._trainer = None
        if trainer.args.should_save and trainer.state.global_step >= trainer.state.max_steps:
            for path in self._switch.saved.values():
                shutil.rmtree(path, ignore_errors=True)
        return output

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._trainer is None:
            raise UserError("call switch.train(trainer) instead of trainer.train()")
        if (kept := state.stateful_callbacks.get(_KEY)) is not None:
            self._switch.load_state_dict(kept)
        self._switch.begin(self._trainer.model_wrapped, state.max_steps)
        step = state.global_step
        if self._switch.saves_at(step) and not os.path.isdir(path := _copy_at(args, step)):
            self._switch.remember(step, path)
            self._keep(state)
            if step == 0:  # the trainer saves after steps only
                self._trainer._save_checkpoint(self._trainer.model, None)
            self.on_save(args, state, control)
        if self._switch.back is not None:
            control.should_training_stop = True  # it was killed between an alarm and going back

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: Any,
        **_: Any,
    ) -> None:
        self._switch.before_step(state.global_step, [optimizer])

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._switch.after_step(state.global_step)
        if self._switch.saves_at(state.global_step):
            self._switch.remember(state.global_step, _copy_at(args, state.global_step))
            control.should_save = True
        self._before_looking(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.global_step >= state.max_steps > self._switch.tested_step:
            control.should_evaluate = self._switch.back is None
        self._before_looking(state, control)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **_: Any,
    ) -> None:
        if self._trainer is None:
            return
        # Each of several data sets has an evaluation of its own.
        if isinstance(self._trainer.eval_dataset, dict) and self._metric not in metrics:
            return
        if self._switch.test(state.global_step, metrics):
            control.should_training_stop = True
        self._keep(state)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Copies the checkpoint at the switch, as the trainer may delete its own."""
        if not self._switch.saves_at(state.global_step):
            return
        if dist.is_initialized():
            dist.barrier()  # all parts are written
        if args.should_save:
            path = _copy_at(args, state.global_step)
            for old in (path, f"{path}.part"):
                shutil.rmtree(old, ignore_errors=True)
            original = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            if args.save_strategy == "no":  # only the switch has wanted it
                os.rename(original, path)
            else:
                shutil.copytree(original, f"{path}.part")
                os.rename(f"{path}.part", path)
        if dist.is_initialized():
            dist.barrier()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._switch.settle()

    def _before_looking(self, state: TrainerState, control: TrainerControl) -> None:
        if control.should_evaluate or control.should_save:
            self._switch.settle()
        self._keep(state)

    def _keep(self, state: TrainerState) -> None:
        state.stateful_callbacks[_KEY] = self._switch.state_dict()


def _remove_later(folder: Path, copy: Path) -> None:
    # Of checkpoints made within a second the trainer keeps those with the highest steps.
    for checkpoint in folder.glob("checkpoint-*"):
        is_later = int(checkpoint.name.rpartition("-")[2]) > int(copy.name.rpartition("-")[2])
        if is_later and checkpoint.stat().st_mtime >= copy.stat().st_mtime:
            shutil.rmtree(checkpoint, ignore_errors=True)


def _copy_at(args: TrainingArguments, step: int) -> str:
    return os.path.join(args.output_dir, f"{_KEY}-{step}")
