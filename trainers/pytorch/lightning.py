"""The guarded switch of a training with PyTorch Lightning.

```
switch = SyncSwitchCallback("job.json", monitor="val_acc", seed=7)
trainer = Trainer(max_steps=5000, strategy="ddp", devices=2, callbacks=[switch])
switch.fit(trainer, model, data)
```
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError(
        "the callback for Lightning needs Lightning, which is missing; run:"
        " pip install 'syncswitch[lightning]'"
    ) from error

from syncswitch.storage.errors import UserError
from syncswitch.trainers.pytorch.trainer_switch import LocalSgd, SecondWay, TrainerSwitch

__all__ = ["LocalSgd", "SecondWay", "SyncSwitchCallback"]


class SyncSwitchCallback(Callback):  # type: ignore[misc]  # Lightning may be missing
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

    If `syncswitch-run` or a search has started the script, that decides when to switch, guards the
    run and gets each validation. Without that and without a policy it switches at 50 % of the
    steps, as it is unknown how early the second way may begin, and is compared with its own
    validations; a warning says what is expected of that, and what is not known.

    Args:
        policy: Policy file, see `syncswitch-search policy export`; None without one.
        switch_at: Without a policy, switch after this percentage of the steps; 100 is the first way
            alone.
        monitor: Name under which the module logs the policy's metric in its validation, with
            `sync_dist=True`, as rank 0's value counts.
        metric_goal: Without a policy, whether more of that metric is better, `max`, or less, `min`;
            None for an accuracy from 0 to 1. With a goal the switch is at 75 %, as it is unknown
            how much may be lost.
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
            policy,
            monitor,
            seed,
            second_way,
            switch_at=switch_at,
            metric_goal=metric_goal,
        )
        self._process: int | None = None
        self._is_before_batch = False
        self._last_step = 0
        self._total_steps = 0.0

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
            # A module may save any objects; the file is this run's own.
            trainer.fit(model, *data, ckpt_path=path, weights_only=False)
        self._process = None
        if trainer.global_step >= self._total_steps:
            for path in self._switch.saved.values():
                trainer.strategy.remove_checkpoint(path)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuses trainers that cannot go back."""
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
        self._total_steps = trainer.estimated_stepping_batches
        self._switch.begin(trainer.strategy.model, self._total_steps)
        self._last_step = trainer.global_step
        if self._switch.back is not None:
            trainer.should_stop = True  # it was killed between an alarm and going back

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Saves at a switch between two epochs, and selects the way of the step."""
        if str(trainer.global_step) not in self._switch.saved:
            self._is_before_batch = True
            self._save(trainer)
            self._is_before_batch = False
        self._switch.before_step(trainer.global_step, trainer.optimizers)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Lets the second way finish its step, and saves at the switch."""
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

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._switch.settle()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes the test; after an alarm the trainer stops, and `fit` goes back."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self._switch.test(trainer.global_step, trainer.callback_metrics):
            trainer.should_stop = True

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Makes the models of all processes one, in the memory that is about to be saved."""
        self._switch.settle()
        if self._is_before_batch:
            # The batch has been counted and taken, and will be again.
            loop = checkpoint["loops"]["fit_loop"]
            batches = loop["epoch_loop.batch_progress"]["total"]
            batches["ready"] = batches["completed"]
            loop["state_dict"].pop("combined_loader", None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._switch.settle()

    def state_dict(self) -> dict[str, Any]:
        """Returns the part of the switch in Lightning's checkpoints."""
        return self._switch.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores it from a checkpoint; a switch that has failed since is not forgotten."""
        self._switch.load_state_dict(state_dict)

    def _save(self, trainer: Trainer) -> None:
        if not self._switch.saves_at(trainer.global_step):
            return
        name = trainer.strategy.broadcast(f"syncswitch-{uuid.uuid4().hex}.ckpt")
        path = os.path.join(trainer.default_root_dir, name)
        self._switch.remember(trainer.global_step, path)
        trainer.save_checkpoint(path)
