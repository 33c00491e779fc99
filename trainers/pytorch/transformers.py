"""The guarded switch of a training with Hugging Face's Trainer.

```
switch = TransformersCallback("job.json", metric="eval_accuracy", seed=7)
trainer = Trainer(model, arguments, ..., callbacks=[switch])
switch.train(trainer)
```
"""

from __future__ import annotations

import json
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
    from transformers.trainer import TRAINER_STATE_NAME
except ImportError as error:
    raise ImportError(
        "the callback for Hugging Face's Trainer needs Transformers and Accelerate, which are"
        " missing; run: pip install 'syncswitch[transformers]'"
    ) from error

import torch.distributed as dist

from syncswitch.storage.errors import UserError
from syncswitch.storage.former import former_names
from syncswitch.trainers.pytorch.trainer_switch import LocalSgd, SecondWay, TrainerSwitch

__all__ = ["LocalSgd", "SecondWay", "TransformersCallback"]

_KEY = "syncswitch"
_BEST = "-best"
_MEASURED_ANYWAY = ("_loss", "_runtime", "_per_second")


class TransformersCallback(TrainerCallback):  # type: ignore[misc]  # Transformers may be missing
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
        self._check_tests(trainer)
        self._trainer = trainer
        output = trainer.train(resume_from_checkpoint=resume_from_checkpoint)
        while self._switch.back is not None:
            path, self._switch.back = self._switch.back, None
            if trainer.args.should_save:
                _remove_later(Path(trainer.args.output_dir), Path(path))
                _bring_back_best(Path(path))
            if dist.is_initialized():
                dist.barrier()
            output = trainer.train(resume_from_checkpoint=path)
        self._trainer = None
        self._switch.end(trainer.state.global_step)
        if trainer.args.should_save and trainer.state.global_step >= trainer.state.max_steps:
            for path in self._switch.saved.values():
                for kept in (path, f"{path}{_BEST}"):
                    shutil.rmtree(kept, ignore_errors=True)
        return output

    def _check_tests(self, trainer: Trainer) -> None:
        """Says before the first step what is not tested, or not measured."""
        if not _can_evaluate(trainer):
            self._switch.goes_untested("the trainer has no eval_dataset")
            return
        is_own = type(trainer).evaluation_loop is not Trainer.evaluation_loop
        is_own = is_own or not _is_plain(trainer) or trainer.compute_metrics is not None
        if not (is_own or self._metric.endswith(_MEASURED_ANYWAY) or self._switch.is_optional):
            raise UserError(
                f"the trainer has no compute_metrics, so that it never measures {self._metric!r}:"
                " give it compute_metrics, or the callback metric='eval_loss' with"
                " metric_goal='min'"
            )
        if trainer.args.eval_strategy == "no":
            why = "with eval_strategy='no' the model is tested after the last step alone"
            self._switch.goes_untested(why, is_end_tested=True)

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
            if args.save_strategy == "best":  # saves after evaluations alone
                self._keep(state)
                assert self._trainer is not None
                self._trainer._save_checkpoint(self._trainer.model, None)
                self._copy(args, state, is_ours=True)
            else:
                control.should_save = True
        self._before_looking(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.global_step >= state.max_steps > self._switch.tested_step:
            can_evaluate = self._trainer is not None and _can_evaluate(self._trainer)
            control.should_evaluate = self._switch.back is None and can_evaluate
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
        if self._switch.report(state.global_step, metrics):
            control.should_training_stop = True
        self._keep(state)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Copies the checkpoint at the switch, as the trainer may delete its own."""
        if self._switch.saves_at(state.global_step):
            self._copy(args, state, is_ours=args.save_strategy == "no")

    def _copy(self, args: TrainingArguments, state: TrainerState, *, is_ours: bool) -> None:
        """Copies a checkpoint, or moves it where only the switch has wanted it."""
        if dist.is_initialized():
            dist.barrier()  # all parts are written
        if args.should_save:
            path = _copy_at(args, state.global_step)
            for old in (path, f"{path}.part"):
                shutil.rmtree(old, ignore_errors=True)
            original = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            if is_ours:
                os.rename(original, path)
            else:
                shutil.copytree(original, f"{path}.part")
                os.rename(f"{path}.part", path)
            _keep_best(path, state.best_model_checkpoint)
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


def _keep_best(path: str, best: str | None) -> None:
    """Keeps the best checkpoint so far, which the trainer may delete for one of the second way.

    A way that fails may begin with a lucky evaluation.
    """
    shutil.rmtree(f"{path}{_BEST}", ignore_errors=True)
    if best is not None and os.path.isdir(best):
        shutil.copytree(best, f"{path}{_BEST}", copy_function=_link)


def _bring_back_best(path: Path) -> None:
    best = json.loads((path / TRAINER_STATE_NAME).read_text())["best_model_checkpoint"]
    kept = f"{path}{_BEST}"
    if best is not None and not os.path.isdir(best) and os.path.isdir(kept):
        shutil.copytree(kept, best, copy_function=_link)


def _link(file: str, to: str) -> None:
    """A second name of a file that nobody changes; a copy where that is not possible."""
    try:
        os.link(file, to)
    except OSError:
        shutil.copy2(file, to)


def _can_evaluate(trainer: Trainer) -> bool:
    return trainer.eval_dataset is not None or not _is_plain(trainer)


def _is_plain(trainer: Trainer) -> bool:
    """Whether it evaluates as the library does."""
    kind = type(trainer)
    return kind.evaluate is Trainer.evaluate and (
        kind.get_eval_dataloader is Trainer.get_eval_dataloader
    )


def _copy_at(args: TrainingArguments, step: int) -> str:
    return os.path.join(args.output_dir, f"{_KEY}-{step}")


__getattr__ = former_names(__name__, {"syncswitch": "SyncSwitchCallback=TransformersCallback"})
