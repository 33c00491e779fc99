"""The guarded switch of a training with PyTorch Lightning.

```
switch = LightningCallback("job.json", monitor="val_acc", seed=7)
trainer = Trainer(max_steps=5000, strategy="ddp", devices=2, callbacks=[switch])
switch.fit(trainer, model, data)
```
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
except ImportError as error:
    raise ImportError(
        "the callback for Lightning needs Lightning, which is missing; run:"
        " pip install 'syncswitch[lightning]'"
    ) from error

import torch.distributed as dist

from syncswitch.storage.errors import UserError
from syncswitch.storage.former import former_names
from syncswitch.trainers.pytorch.trainer_switch import LocalSgd, SecondWay, TrainerSwitch

__all__ = ["LightningCallback", "LocalSgd", "SecondWay"]


class LightningCallback(Callback):  # type: ignore[misc]  # Lightning may be missing
    """Trains in the first way up to a step and in the second from there on, guarded.

    At the switch it saves a checkpoint, `syncswitch-*.ckpt` in the trainer's `default_root_dir`.
    Each validation is compared with those of the first way in the search. After an alarm `fit` has
    Lightning resume from that checkpoint: model, optimizers, schedulers, the other callbacks and
    all counters are as at the switch, and the steps that were lost are made again. The first way
    holds until a later switch, or to the end. The checkpoints are removed when the training ends.

    A step is an optimizer step, `trainer.global_step`. Lightning decides the order of the data
    after resuming: exact at the end of an epoch and with a stateful data loader; otherwise the rest
    of an epoch is taken from the start of a new pass over the data. With a switch at the end of an
    epoch and a seeded sampler, which DDP has, a training that goes back ends bit for bit like one
    in the first way alone.

    Who decides when to switch and what it is compared with, with and without a policy, is as with
    `LoopSwitch`.

    Args:
        policy: Policy file, see `syncswitch-search policy export`; None without one.
        switch_at: See `LoopSwitch`.
        monitor: Name under which the module logs the policy's metric in its validation, with
            `sync_dist=True`, as rank 0's value counts.
        metric_goal: See `LoopSwitch`.
        seed: Seed of this run, for its record.
        second_way: The second way of training; None for `LocalSgd()`, which needs DDP.

    Raises:
        PolicyError: The file is not a policy with one switch.
        UserError: An argument is out of range, or missing without a policy.
    """

    def __init__(
        self,
        policy: str | Path | None = None,
        *,
        monitor: str,
        switch_at: float | None = None,
        metric_goal: str | None = None,
        seed: int = 0,
        second_way: SecondWay | None = None,
    ) -> None:
        self._switch = TrainerSwitch(
            policy, monitor, seed, second_way, switch_at=switch_at, metric_goal=metric_goal
        )
        self._process: int | None = None
        self._is_before_batch = False
        self._last_step = 0
        self._total_steps = 0.0
        self._test_epochs: int | None = None
        # The best models of the first way, by the step of the switch and what keeps them.
        self._best: dict[str, dict[str, Any]] = {}

    def fit(
        self,
        trainer: Trainer,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: Any = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = None,
    ) -> None:
        """Calls `trainer.fit`, and again from the switch as often as one fails."""
        if self not in trainer.callbacks:
            raise UserError("give the callback to the trainer as well: Trainer(callbacks=[switch])")
        self._switch.check_callbacks(trainer.callbacks)
        data = (train_dataloaders, val_dataloaders, datamodule)
        self._process = os.getpid()
        trainer.fit(model, *data, ckpt_path=ckpt_path, weights_only=weights_only)
        while self._switch.back is not None:
            path, self._switch.back = self._switch.back, None
            self._bring_back_best(trainer, path)
            # A module may save any objects; the file is this run's own.
            trainer.fit(model, *data, ckpt_path=path, weights_only=False)
        self._process = None
        self._switch.end(trainer.global_step)
        if trainer.global_step >= self._total_steps:
            for path in self._switch.saved.values():
                trainer.strategy.remove_checkpoint(path)
                if trainer.is_global_zero:
                    shutil.rmtree(_best_beside(path), ignore_errors=True)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if self._process is None:
            raise UserError("call switch.fit(trainer, model) instead of trainer.fit(model)")
        if self._process != os.getpid():
            raise UserError(
                "the callback cannot go back where the trainer spawns or forks its processes; use"
                " strategy='ddp', or torchrun"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if math.isinf(trainer.num_training_batches) and trainer.max_epochs != -1:
            raise UserError(
                "nobody knows how many steps an epoch of these data has, nor so when"
                f" max_epochs={trainer.max_epochs} ends the training; give the trainer max_steps"
                " and max_epochs=-1"
            )
        self._total_steps = trainer.estimated_stepping_batches
        if not trainer.enable_validation:
            self._switch.goes_untested("fit has no validation")
        self._switch.begin(trainer.strategy.model, self._total_steps)
        self._last_step = trainer.global_step
        if self._switch.back is not None:
            trainer.should_stop = True  # it was killed between an alarm and going back

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # The switch may lie between two epochs.
        if str(trainer.global_step) not in self._switch.saved:
            self._is_before_batch = True
            self._save(trainer)
            self._is_before_batch = False
        if self._switch.saved.keys() - self._best.keys():
            self._keep_best(trainer)
        self._switch.before_step(trainer.global_step, trainer.optimizers)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == self._last_step:
            return
        if step > self._last_step + 1:
            raise UserError(
                f"{step - self._last_step} optimizer steps were made for one batch; the callback"
                " needs one: step a single optimizer"
            )
        self._last_step = step
        self._switch.after_step(step)
        # Lightning does not resume exactly from the last batch of an epoch.
        if not trainer.is_last_batch:
            self._save(trainer)
        if step >= self._total_steps:
            trainer.should_stop = True  # makes Lightning validate after the last step
            self._test_epochs, trainer.check_val_every_n_epoch = trainer.check_val_every_n_epoch, 1

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._test_epochs is not None:
            self._test_epochs, trainer.check_val_every_n_epoch = None, self._test_epochs
        self._switch.settle()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self._switch.report(trainer.global_step, trainer.callback_metrics):
            trainer.should_stop = True

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._switch.settle()  # in the memory that is about to be saved
        if self._is_before_batch:
            # The batch has been counted and taken, and will be again.
            loop = checkpoint["loops"]["fit_loop"]
            batches = loop["epoch_loop.batch_progress"]["total"]
            batches["ready"] = batches["completed"]
            loop["state_dict"].pop("combined_loader", None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._switch.settle()

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # The model may have been tested and kept at the switch after that was saved.
        own = checkpoint["callbacks"].get(self.state_key, {})
        step = str(checkpoint["global_step"])
        if step in self._best and step not in own.get("best", {}):
            checkpoint["callbacks"].update(self._best[step])

    def state_dict(self) -> dict[str, Any]:
        return {**self._switch.state_dict(), "best": dict(self._best)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._switch.load_state_dict(state_dict)
        self._best |= state_dict.get("best", {})

    def _save(self, trainer: Trainer) -> None:
        if not self._switch.saves_at(trainer.global_step):
            return
        name = trainer.strategy.broadcast(f"syncswitch-{uuid.uuid4().hex}.ckpt")
        path = os.path.join(trainer.default_root_dir, name)
        self._switch.remember(trainer.global_step, path)
        trainer.save_checkpoint(path)

    def _keep_best(self, trainer: Trainer) -> None:
        """Keeps the files of the best models so far, which better ones of the second way replace.

        A way that fails may begin with a lucky test.
        """
        for step in self._switch.saved.keys() - self._best.keys():
            self._best[step] = {
                one.state_key: copy.deepcopy(one.state_dict()) for one in _keepers(trainer)
            }
            folder = _best_beside(self._switch.saved[step])
            for path in {path for one in _keepers(trainer) for path in _files(one)}:
                if trainer.is_global_zero and os.path.exists(path):
                    os.makedirs(folder, exist_ok=True)
                    _copy(path, os.path.join(folder, _name_of(path)))

    def _bring_back_best(self, trainer: Trainer, checkpoint: str) -> None:
        """Replaces the models that were best after the switch by those before it."""
        folder = _best_beside(checkpoint)
        if trainer.is_global_zero and os.path.isdir(folder):
            step = next(at for at, path in self._switch.saved.items() if path == checkpoint)
            before = {path for one in self._best[step].values() for path in _files_in(one)}
            for path in {path for one in _keepers(trainer) for path in _files(one)} - before:
                trainer.strategy.remove_checkpoint(path)
            for path in before:
                kept = os.path.join(folder, _name_of(path))
                if os.path.exists(kept) and not os.path.exists(path):
                    _copy(kept, path)
        if dist.is_initialized():
            dist.barrier()


def _keepers(trainer: Trainer) -> list[ModelCheckpoint]:
    """The callbacks that remove a model for a better one."""
    found = [one for one in trainer.checkpoint_callbacks if isinstance(one, ModelCheckpoint)]
    return [one for one in found if one.save_top_k > 0]


def _files(keeper: ModelCheckpoint) -> set[str]:
    return _files_in(keeper.state_dict())


def _files_in(state: dict[str, Any]) -> set[str]:
    return {path for path in (*state["best_k_models"], state["best_model_path"]) if path}


def _best_beside(checkpoint: str) -> str:
    return f"{checkpoint.removesuffix('.ckpt')}-best"


def _name_of(path: str) -> str:
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:16]


def _copy(path: str, to: str) -> None:
    # Strategies that shard a model make folders.
    (shutil.copytree if os.path.isdir(path) else shutil.copy2)(path, to)


__getattr__ = former_names(__name__, {"syncswitch": "SyncSwitchCallback=LightningCallback"})
