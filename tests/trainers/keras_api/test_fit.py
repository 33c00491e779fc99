"""Training a compiled model on the in-process cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.trainer import Verdict
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY
from tests.trainers.jobs import (
    CONSTANT_GRADIENT,
    RecordingObserver,
    constant_data,
    dense_model,
    digits_data,
    linear_model,
    mean_output,
)
from tests.trainers.policies import policy_file
from tests.trainers.streams import flat_data, flat_model, streamed
from tests.wording import Said

W = 240
JOB = changed(POLICY, workers=4, total_worker_steps=W, switch_percent=50.0)


def fit(model: Any, *data: Any, policy: Any = JOB, **options: Any) -> Any:
    from syncswitch.trainers.keras_api.fit import fit

    return fit(model, *data, policy=policy, **options)


def given(data: Data, batch_size: int) -> dict[str, Any]:
    return {
        "x": data.train_inputs[:100],
        "y": data.train_labels[:100],
        "validation_data": (data.test_inputs[:100], data.test_labels[:100]),
        "batch_size": batch_size,
    }


def constant() -> dict[str, Any]:
    return given(constant_data(64), 4)


def digits() -> dict[str, Any]:
    return given(digits_data(), 16)


def test_a_compiled_model_learns_the_digits(keras: Any) -> None:
    keras.utils.set_random_seed(1)
    model = dense_model()
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "sparse_categorical_crossentropy")
    record = fit(model, **digits())
    assert [(phase.protocol, phase.end_worker_step) for phase in record.phases] == [
        ("bsp", W // 2),
        ("asp", W),
    ]
    assert (record.worker_steps, record.checkpoints, record.spec.checkpoint_percents) == (W, {}, ())
    assert record.final_accuracy > 0.7
    # What the record says of the model is what the caller now holds.
    x, y = digits()["validation_data"]
    predicted = model.predict(x, verbose=0).argmax(axis=1)
    assert float(np.mean(predicted == y)) == pytest.approx(record.final_accuracy, abs=1e-6)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.02)


def test_data_in_files_train_as_those_in_memory(keras: Any, tmp_path: Path) -> None:
    data, found = flat_data(), []
    policy = changed(JOB, workers=2, total_worker_steps=20, switch_percent=100.0)
    arrays = {
        "x": data.train_inputs,
        "y": data.train_labels,
        "validation_data": (data.test_inputs, data.test_labels),
    }
    for examples in (arrays, {"x": streamed("numpy", tmp_path)}):
        keras.utils.set_random_seed(1)
        model = flat_model()
        model.compile(keras.optimizers.SGD(0.02), "sparse_categorical_crossentropy")
        record = fit(model, **examples, policy=policy, batch_size=16)
        found.append((record.final_accuracy, *(one.tolist() for one in model.get_weights())))
    assert found[0] == found[1]
    with pytest.raises(UserError, match="leave out y and validation_data"):
        fit(model, examples["x"], data.train_labels, policy=policy)
    with pytest.raises(UserError, match="there is nothing to test with"):
        fit(model, data.train_inputs, data.train_labels, policy=policy)


def test_a_metric_that_keras_does_not_know_has_a_goal_and_others_beside_it(keras: Any) -> None:
    class Wrong(keras.metrics.SparseCategoricalAccuracy):  # type: ignore[misc]
        def result(self) -> Any:
            return 1 - super().result()

    told: list[Any] = []
    telling = keras.callbacks.LambdaCallback(on_epoch_end=lambda *given: told.append(given))
    model = dense_model()
    model.compile(keras.optimizers.SGD(0.02), "sparse_categorical_crossentropy")
    record = fit(
        model,
        **digits(),
        epochs=2,
        workers=2,
        evaluation_interval_worker_steps=7,
        metric=Wrong,
        metric_goal="min",
        further_metrics=("accuracy",),
        callbacks=[telling],
    )
    assert record.spec.identity.decided_by == Metric("Wrong", "min", None, None, None)
    assert len(record.evaluations) == 2
    for one in record.evaluations:
        assert dict(one.further) == {"accuracy": pytest.approx(1 + one.accuracy)}
    assert [number for number, _ in told] == [0, 1]
    assert told[1][1]["loss"] == record.evaluations[1].training_loss


def test_present_values_optimizer_and_epochs_are_those_given(keras: Any) -> None:
    model = linear_model()
    model.set_weights([np.full((4, 1), 7.0)])
    model.compile(keras.optimizers.SGD(0.01), mean_output)
    record = fit(model, **constant(), epochs=2, workers=2)
    assert (record.worker_steps, record.spec.identity.workers) == (32, 2)
    assert record.phases[0].end_worker_step == 16
    # Each worker-step moves it by eta times the gradient, in rounds or alone.
    expected = 7.0 - 32 * 0.01 * CONSTANT_GRADIENT
    assert model.get_weights()[0][:, 0] == pytest.approx(expected, rel=1e-4)


def test_a_training_that_is_stopped_or_diverges_leaves_the_model_alone(keras: Any) -> None:
    model = linear_model()
    model.compile(keras.optimizers.SGD(0.01), mean_output)
    record = fit(model, **constant(), observer=RecordingObserver(lambda _: Verdict.STOP))
    assert record.stopped_early
    record = fit(model, **constant(), learning_rate=1e37)
    assert record.diverged
    assert (model.get_weights()[0] == 1.0).all()


def test_a_model_that_cannot_be_trained_is_refused(keras: Any, said: Said) -> None:
    of, model = keras.optimizers, linear_model()

    def refused(unfit: Any, **more: Any) -> None:
        said.refusal(UserError, fit, unfit, **constant(), **more)

    for unfit in (model, lambda: model):
        refused(unfit)
    model.compile("sgd", {"a": "mse"})
    refused(model)
    model.compile(of.LossScaleOptimizer(of.SGD()), "mse")
    refused(model)
    model.compile("sgd", "mse")
    refused(model, workers=0)


BAND = Band(0.9, 0.01, 2, (BandPoint(W, 0.9, 0.0),))


def test_it_is_guarded_where_the_policy_may_be_of_this_job(
    keras: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from syncswitch.trainers.job.fingerprint import workload_identity
    from syncswitch.trainers.job.workload import Workload

    model = linear_model()
    model.compile(keras.optimizers.SGD(0.01), mean_output)
    data = constant_data(64)
    found_for = Workload("lines", linear_model, lambda: data, "lines", 32, 4, 0.02, 8, loss="mse")
    path = tmp_path / "policy.json"

    def band_of(policy: Any, **values: Any) -> Band | None:
        given = {"epochs": 2, **values}
        found: Band | None = fit(model, **constant(), policy=policy, **given).spec.band
        return found

    def written(**changes: Any) -> Path:
        identity = changed(workload_identity(found_for, 4, "bsp", "asp"), **changes)
        return policy_file(path, identity, switch_percent=50.0, band=BAND)

    job = changed(JOB, total_worker_steps=32, band=BAND, guarded=True)
    assert band_of(job) == BAND
    assert str(unguarded_warning(job)) not in caplog.messages
    assert band_of(job, guard=False) is None
    assert caplog.messages.count(str(unguarded_warning(job))) == 1
    assert band_of(written()) == BAND
    assert band_of(written(model="another")) is None


def test_a_band_is_for_jobs_that_measure_the_same(keras: Any) -> None:
    from syncswitch.trainers.keras_api.fit import band_for

    policy = changed(
        JOB, workers=IDENTITY.workers, total_worker_steps=IDENTITY.total_worker_steps, band=BAND
    )
    same = changed(IDENTITY, learning_rate=0.5, name="another")
    assert band_for(policy, IDENTITY, same) == BAND
    for field, value in {
        "total_worker_steps": 48,
        "workers": 2,
        "model": "another",
        "batch_size": 8,
        "metric": "another",
    }.items():
        assert band_for(policy, IDENTITY, changed(IDENTITY, **{field: value})) is None, field


def test_without_a_policy_it_takes_the_gain_and_says_what_is_not_known(
    keras: Any, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    model = dense_model()
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "sparse_categorical_crossentropy")

    def trained(**options: Any) -> Any:
        given = {"epochs": 2, "workers": 2, "evaluation_interval_worker_steps": 7, **options}
        return fit(model, **digits(), policy=None, **given)

    record = trained()
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
    assert record.spec.switch_percent == 6.25
    assert record.spec.band == Band(None, 0.01)
    assert record.guard is not None
    said(*caplog.messages)
    caplog.clear()
    alone = trained(switch_at=100)
    assert [phase.protocol for phase in alone.phases] == ["bsp"]
    assert trained(momentum_after_switch="same", guard=False).spec.switch_percent == 50
    assert ["guarded runs" in one for one in caplog.messages] == [True]


def test_without_a_policy_it_needs_a_length_and_one_who_says_when(keras: Any) -> None:
    model = linear_model()
    model.compile("sgd", "mse")
    for options, words in (
        ({"policy": None}, "nothing says how long to train: give epochs, or a policy"),
        ({"switch_at": 100}, "policy and switch_at both say when to switch: leave out one"),
        ({"policy": None, "epochs": 1, "switch_at": -1}, "switch_at is -1: give a percent from 0"),
    ):
        with pytest.raises(UserError, match=words):
            fit(model, **constant(), **options)
