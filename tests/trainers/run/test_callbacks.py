"""Callbacks of Keras are told of a run's tests, and refused where they want more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Verdict
from tests.trainers.jobs import CONSTANT, RecordingObserver, spec_of

# Tests after 4, 8 and 10 worker-steps.
SHORT = replace(CONSTANT, total_worker_steps=10, evaluation_interval_worker_steps=4, metric="mae")


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


def tell(workload: Workload, steps: Sequence[int]) -> list[Evaluation]:
    """Tells the callbacks of tests after these steps; returns what the observer is told."""
    from syncswitch.trainers.run.callbacks import told

    stops = {10: Verdict.STOP}
    observer = RecordingObserver(lambda one: stops.get(one.worker_step, Verdict.CONTINUE))
    with told(workload, spec_of(workload, 2, 50.0), observer) as watching:
        watching.on_progress(1)
        for step in steps:
            verdict = watching.on_evaluation(Evaluation(step, 0.5 * step, -3.0, 2.0))
            assert verdict is stops.get(step, Verdict.CONTINUE)
    assert observer.progress == [1]
    return observer.evaluations


def test_an_epoch_is_from_test_to_test(recording: Any) -> None:
    seen: list[Any] = []
    # The first came late, as it does where workers do not wait for each other.
    workload = replace(SHORT, callbacks=lambda: [recording(seen)])
    assert [one.worker_step for one in tell(workload, (5, 8, 10))] == [5, 8, 10]
    tested, logs = {"mae": 3.0}, {"loss": 2.0, "val_mae": 3.0}
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
    tell(replace(SHORT, callbacks=lambda: [recording(seen)], **fields), [4])
    assert list(seen[-1][1]) == ["loss", expected]


def test_what_it_is_told_is_its_own(keras: Any, recording: Any) -> None:
    seen: list[Any] = []
    clearing = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: logs.clear())
    tell(replace(SHORT, callbacks=lambda: [clearing, recording(seen)]), [4])
    assert ("end", 0, {"loss": 2.0, "val_mae": 3.0}) in seen


def _wrong(keras: Any) -> dict[str, Any]:
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
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["lr"] / 2

    return {
        "EarlyStopping": of.EarlyStopping(),
        "ModelCheckpoint": of.ModelCheckpoint("m.keras"),
        "ReduceLROnPlateau": of.ReduceLROnPlateau(),
        "LearningRateScheduler": of.LearningRateScheduler(lambda *_: 1),
        "Patient": Patient(),
        "Batches": Batches(),
        "lambda": of.LambdaCallback(on_train_batch_begin=print),
        "text": "early_stopping",
        "Stopping": Stopping(),
        "Looking": Looking(),
        "Failing": Failing(),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("EarlyStopping", "callback EarlyStopping cannot be used here; all runs of a search"),
        ("ModelCheckpoint", "give syncswitch-run --output or --checkpoint-every"),
        ("ReduceLROnPlateau", "set learning_rate_boundaries"),
        ("LearningRateScheduler", "give the optimizer a schedule"),
        ("Patient", "callback Patient cannot be used here; all runs"),
        ("Batches", "callback Batches has on_train_batch_end, which a run cannot call"),
        ("lambda", "callback LambdaCallback has on_train_batch_begin"),
        ("text", "str is not a callback"),
        ("Stopping", "callback Stopping uses self.model.stop_training, .*; use the logs"),
        ("Looking", "callback Looking uses self.model.predict"),
        ("Failing", r"Failing.on_epoch_end\(\) failed with KeyError"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(keras: Any, name: str, expected: str) -> None:
    workload = replace(SHORT, callbacks=lambda: [_wrong(keras)[name]])
    with pytest.raises(WorkloadError, match=expected) as error:
        tell(workload, [4])
    assert "\n" not in str(error.value)


def test_what_a_run_does_anyway_is_left_out(keras: Any) -> None:
    from syncswitch.trainers.run.callbacks import usable_callbacks

    of = keras.callbacks
    told = of.LambdaCallback(on_epoch_end=print)
    assert usable_callbacks([of.TerminateOnNaN(), of.History(), told], "here") == [told]


def test_a_loss_that_is_no_number_and_further_metrics_are_told_as_they_are(recording: Any) -> None:
    from syncswitch.trainers.run.callbacks import told

    seen: list[Any] = []
    workload = replace(SHORT, callbacks=lambda: [recording(seen)])
    with told(workload, spec_of(workload, 2, 50.0), RecordingObserver()) as watching:
        watching.on_evaluation(Evaluation(4, 1.0, -3.0, math.nan, (("r2_score", -8.0),)))
    assert math.isnan(seen[-1][1].pop("loss"))
    assert seen[-1][1] == {"val_mae": 3.0, "val_r2_score": -8.0}


def test_without_callbacks_the_observer_is_the_same() -> None:
    from syncswitch.trainers.run.callbacks import told

    observer = RecordingObserver()
    with told(SHORT, spec_of(SHORT, 2, 50.0), observer) as watching:
        assert watching is observer
