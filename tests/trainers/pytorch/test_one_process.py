"""Both callbacks in a single process: what is said before the first step, and what is kept."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import UserError

pytest.importorskip("lightning", reason="needs the extra lightning")
pytest.importorskip("transformers", reason="needs the extra transformers")
import torch
import transformers
from lightning import pytorch as lightning
from lightning.pytorch.callbacks import ModelCheckpoint

from syncswitch.trainers.pytorch import lightning as with_lightning
from syncswitch.trainers.pytorch import transformers as with_transformers
from syncswitch.trainers.pytorch.trainer_switch import SecondWay

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

UNTESTED = "so that nothing guards the switch"


class Way(SecondWay):
    """Remembers in which way steps are made."""

    is_second = False

    def use(self, is_second: bool) -> None:
        self.is_second = is_second


def accuracy(way: Way, step: int, lucky: int) -> float:
    """Best at step 20; the second way begins with luck up to the step `lucky`, and then fails."""
    if way.is_second:
        return 0.95 if step <= lucky else 0.1
    return 0.5 + step / 100 if step <= 20 else 0.7 - (step - 20) / 1000


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    gc.collect()  # of earlier tests, each of which says how it ends
    caplog.clear()
    caplog.set_level(logging.WARNING, "syncswitch")
    return Lines(caplog)


class Lines(list[str]):
    """What the switch says."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def __iter__(self) -> Iterator[str]:
        records = self._caplog.records
        return (one.getMessage() for one in records if one.name == "syncswitch")


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


EXAMPLES = [{"x": torch.randn(4), "labels": i % 2} for i in range(64)]


def hugging_face(
    folder: Path, switch: Any, measured: Any, *, is_tested: bool = True, **options: Any
) -> Any:
    """A trainer of 64 steps."""
    options = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "no", **options}
    if not is_tested:
        options["eval_strategy"] = "no"
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        **options,
    )
    return transformers.Trainer(
        Net(),
        arguments,
        train_dataset=EXAMPLES,
        eval_dataset=EXAMPLES[:8] if is_tested or options.pop("has_data", False) else None,
        compute_metrics=measured,
        callbacks=[switch],
    )


@pytest.mark.parametrize(
    ("options", "lucky"),
    [
        ({"save_strategy": "steps", "save_steps": 2, "load_best_model_at_end": True}, 40),
        ({"save_strategy": "steps", "save_steps": 2}, 40),
        ({"save_strategy": "best", "save_total_limit": 1}, 40),
        ({"save_strategy": "best", "save_total_limit": 1, "eval_steps": 5}, 40),
        # The switch itself is the best of the first way.
        ({"save_strategy": "best", "save_total_limit": 1, "eval_steps": 4, "best_at": 32}, 40),
    ],
)
def test_the_best_checkpoint_from_before_a_failed_switch_is_kept(
    tmp_path: Path, options: dict[str, Any], lucky: int
) -> None:
    way, best_at = Way(), options.pop("best_at", 20)
    switch = with_transformers.TransformersCallback(second_way=way)

    def measured(_: Any) -> dict[str, float]:
        step = trainer.state.global_step
        is_best = not way.is_second and step == best_at
        return {"accuracy": 0.8 if is_best else accuracy(way, step, lucky)}

    options = {"save_total_limit": 2, "metric_for_best_model": "accuracy", **options}
    trainer = hugging_face(tmp_path, switch, measured, **options)
    switch.train(trainer)
    state = trainer.state
    assert switch._switch._switch.events
    assert (state.global_step, state.best_metric) == (64, 0.8)
    assert os.path.basename(state.best_model_checkpoint) == f"checkpoint-{best_at}"
    assert (Path(state.best_model_checkpoint) / "model.safetensors").exists()
    assert list(tmp_path.glob("syncswitch-*")) == []


@pytest.mark.parametrize("switch_at", [None, 20, 100])
def test_a_trainer_that_cannot_evaluate_trains_to_its_end(
    tmp_path: Path, switch_at: float | None, said: list[str]
) -> None:
    switch = with_transformers.TransformersCallback(switch_at=switch_at)
    trainer = hugging_face(tmp_path, switch, None, is_tested=False)
    switch.train(trainer)
    assert trainer.state.global_step == 64
    first = next(iter(said), "")
    told = f"the trainer has no eval_dataset, {UNTESTED}"
    assert (told in first) == (switch_at != 100)
    assert "is guarded by" not in first


def test_a_trainer_that_never_measures_the_metric_is_refused_before_its_first_step(
    tmp_path: Path,
) -> None:
    for options in ({}, {"eval_strategy": "no"}):
        switch = with_transformers.TransformersCallback()
        trainer = hugging_face(tmp_path, switch, None, **options)
        with pytest.raises(UserError, match=r"no compute_metrics, so that it never measures 'eval"):
            switch.train(trainer)
        assert trainer.state.global_step == 0
    # It has the loss anyway, and the first way alone needs nothing.
    for given in ({"metric": "eval_loss", "metric_goal": "min"}, {"switch_at": 100}):
        switch = with_transformers.TransformersCallback(**given)
        trainer = hugging_face(tmp_path, switch, None)
        switch.train(trainer)
        assert trainer.state.global_step == 64


def test_what_is_not_measured_after_the_last_step_costs_no_training(
    tmp_path: Path, said: list[str]
) -> None:
    switch = with_transformers.TransformersCallback()
    trainer = hugging_face(tmp_path, switch, lambda _: {"f1": 0.5}, eval_strategy="no")
    switch.train(trainer)
    assert trainer.state.global_step == 64
    first, *others = said
    assert f"with eval_strategy='no' the model is tested after the last step alone, {UNTESTED}" in (
        first
    )
    assert any(one.startswith("there is no 'eval_accuracy' among") for one in others)


class Module(lightning.LightningModule):  # type: ignore[misc]
    """Tests what it is told to."""

    def __init__(self, way: Way | None = None, lucky: int = 0) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.way, self.lucky, self.tested = way or Way(), lucky, list[int]()

    def training_step(self, batch: Any, _: int) -> Any:
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_acc", accuracy(self.way, self.global_step, self.lucky))

    def on_validation_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.tested.append(self.global_step)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Stream(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]
    """16 examples, which nobody knows before."""

    def __iter__(self) -> Iterator[Any]:
        for i in range(16):
            yield torch.full((4,), float(i % 5)), i % 2


def trainer_of(folder: Path, *callbacks: Any, **options: Any) -> Any:
    return lightning.Trainer(
        callbacks=list(callbacks),
        default_root_dir=folder,
        logger=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"enable_checkpointing": False, **options},
    )


def batches(number: int) -> Any:
    data = torch.utils.data.TensorDataset(torch.randn(number, 4), torch.arange(number) % 2)
    return torch.utils.data.DataLoader(data)


@pytest.mark.parametrize("options", [{"max_epochs": 3}, {"max_epochs": 3, "max_steps": 400}])
def test_data_of_unknown_length_need_their_steps_before_the_first(
    tmp_path: Path, options: dict[str, int]
) -> None:
    stream = torch.utils.data.DataLoader(Stream())
    switch = with_lightning.LightningCallback(monitor="val_acc")
    trainer = trainer_of(tmp_path, switch, **options)
    with pytest.raises(UserError, match=r"max_epochs=3 ends the training; give the trainer max_st"):
        switch.fit(trainer, Module(), stream, stream)
    assert trainer.global_step == 0
    # With steps alone the data begin again as often as need be.
    switch = with_lightning.LightningCallback(monitor="val_acc")
    trainer = trainer_of(tmp_path, switch, max_epochs=-1, max_steps=40)
    switch.fit(trainer, Module(), stream, stream)
    assert trainer.global_step == 40


def test_a_training_that_ends_before_its_length_says_so(tmp_path: Path, said: list[str]) -> None:
    stream = torch.utils.data.DataLoader(Stream())
    switch = with_lightning.LightningCallback(monitor="val_acc")
    # Nobody can know that the data end after 16 of these.
    trainer = trainer_of(tmp_path, switch, max_epochs=1, limit_train_batches=60)
    switch.fit(trainer, Module(), stream, stream)
    assert trainer.global_step == 16
    assert (
        "the training ended after step 16 of 60, before its switch at step 30: it is not rec"
        in ("\n".join(said))
    )


@pytest.mark.parametrize("switch_at", [None, 30])
def test_without_validation_nothing_is_said_to_be_guarded(
    tmp_path: Path, said: list[str], switch_at: float | None
) -> None:
    switch = with_lightning.LightningCallback(monitor="val_acc", switch_at=switch_at)
    trainer = trainer_of(tmp_path, switch, max_epochs=2, limit_val_batches=0)
    switch.fit(trainer, Module(), batches(16), batches(1))
    first = next(iter(said))
    assert f"fit has no validation, {UNTESTED}" in first
    assert "is guarded by" not in first
    assert "Expected" not in first


def test_rare_validations_are_told_and_the_last_step_has_one(
    tmp_path: Path, said: list[str]
) -> None:
    switch = with_lightning.LightningCallback(monitor="val_acc")
    trainer = trainer_of(tmp_path, switch, max_epochs=5, check_val_every_n_epoch=2)
    module = Module()
    switch.fit(trainer, module, batches(8), batches(1))
    assert module.tested == [16, 32, 40]
    assert trainer.check_val_every_n_epoch == 2
    _, rare, end = said
    assert rare == (
        "with a test about every 16 steps nothing shows whether the switch at step 10 fails: test"
        " the model at least every 2 steps"
    )
    assert end.startswith("nothing shows whether the switch at 25 % held; the training took ")


@pytest.mark.parametrize("best_at", [20, 32])
def test_the_best_model_from_before_a_failed_switch_is_kept(tmp_path: Path, best_at: int) -> None:
    class Tested(Module):
        def validation_step(self, batch: Any, _: int) -> None:
            step = self.global_step
            is_best = not self.way.is_second and step == best_at
            self.log("val_acc", 0.8 if is_best else accuracy(self.way, step, 40))

    way = Way()
    switch = with_lightning.LightningCallback(monitor="val_acc", second_way=way)
    keeper = ModelCheckpoint(tmp_path / "best", "{step}", monitor="val_acc", mode="max")
    options = {"val_check_interval": 2, "check_val_every_n_epoch": None, "max_steps": 64}
    trainer = trainer_of(tmp_path, switch, keeper, enable_checkpointing=True, **options)
    switch.fit(trainer, Tested(way), batches(16), batches(1))
    assert switch._switch._switch.events
    assert float(keeper.best_model_score) == pytest.approx(0.8)
    assert [one.name for one in (tmp_path / "best").iterdir()] == [f"step={best_at}.ckpt"]
    assert Path(keeper.best_model_path).name == f"step={best_at}.ckpt"
    assert list(tmp_path.glob("syncswitch-*")) == []
