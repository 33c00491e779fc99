"""Callbacks of Keras are told of a run's tests, and refused where they want more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Verdict
from tests.failing import fails
from tests.trainers.jobs import CONSTANT, RecordingObserver, spec_of

# Tests after 4, 8 and 10 worker-steps.
SHORT = replace(CONSTANT, total_worker_steps=10, evaluation_interval_worker_steps=4, metric="mae")


FURTHER = (("r2_score", -8.0),)


@pytest.fixture
def recording(keras: Any) -> Callable[[list[Any]], Any]:
    """Makes a callback that notes what it is told."""

    class Recording(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self, seen: list[Any]) -> None:
            super().__init__()
            self.seen = seen

        def on_train_begin(self, logs: Any = None) -> None:
            self.seen.append(("train begin", self.params["epochs"]))

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.seen.append(("begin", epoch))

        def on_test_end(self, logs: Any = None) -> None:
            self.seen.append(("test", logs))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seen.append(("end", epoch, logs))

        def on_train_end(self, logs: Any = None) -> None:
            self.seen.append(("train end", logs))

    return Recording


def tell(workload: Workload, steps: Sequence[int], loss: float = 2.0) -> list[Evaluation]:
    """Tells the callbacks of tests after these steps; returns what the observer is told."""
    from syncswitch.trainers.run.callbacks import keras_callbacks

    stops = {10: Verdict.STOP}
    observer = RecordingObserver(lambda one: stops.get(one.worker_step, Verdict.CONTINUE))
    with keras_callbacks(workload, spec_of(workload, 2, 50.0), observer) as watching:
        watching.on_progress(1)
        for step in steps:
            verdict = watching.on_evaluation(Evaluation(step, 0.5 * step, -3.0, loss, FURTHER))
            assert verdict is stops.get(step, Verdict.CONTINUE)
    assert observer.progress == [1]
    return observer.evaluations


def test_an_epoch_is_from_test_to_test(keras: Any, recording: Any) -> None:
    """What one callback does to the logs is not seen by the others."""
    seen: list[Any] = []
    of = keras.callbacks
    clearing = of.LambdaCallback(on_epoch_end=lambda _, logs: logs.clear())
    # A run does anyway what the others do.
    callbacks = [clearing, of.TerminateOnNaN(), of.History(), recording(seen)]
    # The first came late, as it does where workers do not wait for each other.
    found = tell(replace(SHORT, callbacks=lambda: callbacks), (5, 8, 10))
    assert [one.worker_step for one in found] == [5, 8, 10]
    tested = {"mae": 3.0, "r2_score": -8.0}
    logs = {"loss": 2.0, "val_mae": 3.0, "val_r2_score": -8.0}
    assert seen == [
        ("train begin", 3),
        ("begin", 0),
        *(("test", tested), ("end", 0, logs), ("begin", 1)),
        *(("test", tested), ("end", 1, logs), ("begin", 2)),
        *(("test", tested), ("end", 2, logs)),
        ("train end", logs),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"metric": None}, "val_accuracy"),
        ({"metric": "loss"}, "val_loss"),
        ({"metric": "mae", "metric_output": "price"}, "val_price_mae"),
    ],
)
def test_the_metric_has_the_name_that_fit_gives_it(
    recording: Any, fields: dict[str, Any], expected: str
) -> None:
    seen: list[Any] = []
    workload = replace(SHORT, callbacks=lambda: [recording(seen)], **fields)
    tell(workload, [4], loss=math.nan)
    assert list(seen[-1][1]) == ["loss", expected, "val_r2_score"]
    assert math.isnan(seen[-1][1]["loss"])


def _wrong(keras: Any) -> dict[Any, str]:
    """Callbacks, each with what is said of it."""
    of = keras.callbacks

    class Batches(of.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    class Patient(of.EarlyStopping):  # type: ignore[misc]
        pass

    class Stopping(of.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    class Looking(of.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.predict([1])

    class Failing(of.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            logs["lr"] / 2

    return {
        of.ModelCheckpoint("m.keras"): r"saved by: train\('WORKLOAD', output='MODEL.keras'\)",
        of.TensorBoard("logs"): r"with: train\('WORKLOAD', tensorboard='FOLDER'\)",
        of.BackupAndRestore("backup"): r"continue it with: train\('WORKLOAD', resume=True\)",
        of.ReduceLROnPlateau(): "set learning_rate_boundaries",
        Patient(): "callback Patient cannot be used here; all runs of a search",
        Batches(): "callback Batches has on_train_batch_end, which a run cannot call",
        of.LambdaCallback(on_train_batch_begin=print): "LambdaCallback has on_train_batch_begin",
        "early_stopping": "str is not a callback",
        Stopping(): "callback Stopping uses self.model.stop_training, .*; use the logs",
        Looking(): "callback Looking uses self.model.predict",
        Failing(): r"Failing.on_train_begin\(\) failed with KeyError",
    }


def test_what_cannot_be_used_is_said_in_one_line(keras: Any) -> None:
    for callback, expected in _wrong(keras).items():
        workload = replace(SHORT, callbacks=partial(list, [callback]))
        with fails("workload-unsuitable", expected) as error:
            tell(workload, [4])
        assert "\n" not in str(error.value)


def test_a_callback_is_refused_before_data_and_model_are_built(tmp_path: Path) -> None:
    from syncswitch.trainers.cluster.local import load_local_workload

    (tmp_path / "stopping.py").write_text(
        """from keras.callbacks import EarlyStopping
from syncswitch import Workload

def never():
    raise AssertionError("built")

def callbacks():
    return [EarlyStopping()]

workload = Workload("stopping", never, never, "none", 8, 4, 0.1, 4, callbacks=callbacks)
"""
    )
    with fails("workload-unsuitable", "callback EarlyStopping cannot be used here"):
        load_local_workload(f"{tmp_path}/stopping.py:workload", 2)


@pytest.mark.parametrize("hook", ["on_test_end", "on_epoch_end", "on_train_end"])
def test_one_that_fails_later_costs_no_run(
    keras: Any, recording: Any, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no room for my log")

    failing = type("Failing", (keras.callbacks.Callback,), {hook: fail})()
    seen: list[Any] = []
    workload = replace(SHORT, callbacks=lambda: [failing, recording(seen)])
    assert [one.worker_step for one in tell(workload, (4, 8, 10))] == [4, 8, 10]
    assert seen[-1][0] == "train end"
    (said,) = caplog.messages
    assert f"Failing.{hook}() failed with OSError: no room for my log" in said


def test_without_callbacks_the_observer_is_the_same() -> None:
    from syncswitch.trainers.run.callbacks import keras_callbacks

    observer = RecordingObserver()
    with keras_callbacks(SHORT, spec_of(SHORT, 2, 50.0), observer) as watching:
        assert watching is observer
