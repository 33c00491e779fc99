"""DDP first, then local SGD, with PyTorch Lightning: the switch is a callback.

It starts its second process itself; `--policy` names a policy file. README.md says how.
"""

from __future__ import annotations

import argparse

import digits
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from syncswitch import LightningCallback, LocalSgd
from syncswitch.script import seed


class Digits(LightningModule):
    """The model, the digits and the rates of the other examples."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self._options = options
        self._model = digits.new_model()

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """The loss of a batch."""
        pictures, labels = batch
        return nn.functional.cross_entropy(self._model(pictures), labels)

    def validation_step(self, batch: list[Tensor]) -> None:
        """Logs the accuracy."""
        pictures, labels = batch
        right = (self._model(pictures).argmax(1) == labels).float().mean()
        self.log("val_acc", right, sync_dist=True)

    def configure_optimizers(self) -> dict[str, object]:
        """SGD with momentum; the rate is divided by ten twice."""
        optimizer = digits.new_optimizer(self._model, self._options)
        first = round(self._options.total_steps * self._options.first_decay / 100)
        decays = [first, (first + self._options.total_steps) // 2]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, decays)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Digits of this process's own (0 to 4, or the others), unless they are shuffled."""
        (pictures, labels), _ = read_examples()
        order = torch.arange(len(labels)) if self._options.shuffled else torch.argsort(labels)
        own = order.tensor_split(self.trainer.world_size)[self.trainer.global_rank]
        data = TensorDataset(pictures[own], labels[own])
        return DataLoader(
            data, self._options.batch_size, sampler=RandomSampler(data), drop_last=True
        )

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """All digits that nobody trains on."""
        data = TensorDataset(*read_examples()[1])
        return DataLoader(data, len(data))


def read_examples() -> tuple[digits.Examples, digits.Examples]:
    """What is trained on, and what is tested."""
    pictures, labels = (torch.from_numpy(one) for one in load_digits(return_X_y=True))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order.tensor_split(2)
    pictures = pictures.float() / 16
    return (pictures[train], labels[train]), (pictures[test], labels[test])


def main() -> None:
    """One of the processes, which starts the other."""
    options = digits.read_options(__doc__)
    seed_everything(seed())
    switch = LightningCallback(
        options.policy, monitor="val_acc", seed=seed(), second_way=LocalSgd(options.period)
    )
    trainer = Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_steps=options.total_steps,
        val_check_interval=options.test_every,
        check_val_every_n_epoch=None,
        use_distributed_sampler=False,
        callbacks=[switch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    switch.fit(trainer, Digits(options))
    accuracy = float(trainer.callback_metrics["val_acc"])
    if trainer.is_global_zero:
        print(f"accuracy {accuracy:.4f} after {trainer.global_step} steps")


if __name__ == "__main__":
    main()
