"""Training a compiled model on the in-process cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import ErrorCode, UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.uses.store import uses
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.trainer import Verdict
from tests.failing import fails
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


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are recorded in the database of the current folder."""
    monkeypatch.chdir(tmp_path)


def fit(model: Any, *data: Any, policy: Any = JOB, **options: Any) -> Any:
    from syncswitch.searcher.training.fit import fit

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
    with fails("parameters-conflict", "leave out y and validation_data"):
        fit(model, examples["x"], data.train_labels, policy=policy)
    with fails("parameter-missing", "there is nothing to test with"):
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
    assert record.spec.identity.metric == Metric("Wrong", "min", None, None, None)
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

    def refused(unfit: Any, code: ErrorCode = "workload-unsuitable", **more: Any) -> None:
        said.refusal(code, fit, unfit, **constant(), **more)

    for unfit in (model, lambda: model):
        refused(unfit)
    model.compile("sgd", {"a": "mse"})
    refused(model)
    model.compile(of.LossScaleOptimizer(of.SGD()), "mse")
    refused(model)
    model.compile("sgd", "mse")
    for name, wrong in (
        ("workers", 0),
        ("workers", 2.5),
        ("epochs", 0),
        ("expected_runs", 0),
        ("seed", -1),
        ("seed", "a"),
        ("switch_at", "x"),
        ("observer", 3),
    ):
        refused(model, "parameter-invalid", **{"policy": None, name: wrong})


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
    assert band_of(job, guarded=False) is None
    assert caplog.messages.count(str(unguarded_warning(job))) == 1
    assert band_of(written()) == BAND
    assert band_of(written(model="another")) is None


def test_a_band_is_for_jobs_that_measure_the_same(keras: Any) -> None:
    from syncswitch.searcher.training.fit import band_for

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
    def build() -> Any:
        model = dense_model()
        model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "sparse_categorical_crossentropy")
        return model

    def trained(**options: Any) -> Any:
        given = {"epochs": 2, "workers": 2, "evaluation_interval_worker_steps": 7, **options}
        return fit(build, **digits(), policy=None, **given)

    record = trained()
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
    assert record.spec.switch_percent == 12.5  # of steps so few; of more it is 6.25
    assert record.spec.band == Band(None, 0.01)
    assert record.guard is not None
    *begun, ended = (one for one in caplog.messages if "is judged by" not in one)  # said once
    said(*begun, re.sub(r"\d+\.\d+", "N", ended))
    caplog.clear()
    alone = trained(switch_at=100)
    assert [phase.protocol for phase in alone.phases] == ["bsp"]
    assert trained(momentum_after_switch="same", guarded=False).spec.switch_percent == 50
    assert sum("found for guarded runs" in one for one in caplog.messages) == 1
    assert any(one.startswith("all steps were made in BSP; the") for one in caplog.messages)


def test_without_a_policy_it_needs_a_length_and_one_who_says_when(keras: Any) -> None:
    model = linear_model()
    model.compile("sgd", "mse")
    for options, words in (
        ({"policy": None}, "nothing says how long to train: give epochs, or a policy"),
        ({"switch_at": 100}, "policy and switch_at both say when to switch: leave out one"),
        (
            {"policy": None, "epochs": 1, "switch_at": -1},
            "switch_at is -1: Input should be greater than or equal to 0",
        ),
    ):
        with pytest.raises(UserError, match=words):
            fit(model, **constant(), **options)


def classifier(keras: Any) -> Any:
    model = dense_model()
    model.compile(
        keras.optimizers.SGD(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


SHORT = {"policy": None, "switch_at": 50, "guarded": False, "workers": 2}


def test_the_usual_callbacks_do_their_work_at_the_end_of_epochs(keras: Any, tmp_path: Path) -> None:
    of, seen = keras.callbacks, []

    class Looking(of.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            x, y = digits()["validation_data"]
            right = self.model.predict(x, verbose=0).argmax(axis=1) == y
            seen.append((epoch, float(np.mean(right)), logs["val_accuracy"]))

    best = tmp_path / "best.keras"
    record = fit(
        classifier(keras),
        **digits(),
        **SHORT,
        epochs=3,
        callbacks=[
            of.ModelCheckpoint(best, monitor="val_accuracy", save_best_only=True),
            of.CSVLogger(tmp_path / "log.csv"),
            of.TensorBoard(tmp_path / "logs", profile_batch=0),
            Looking(),
            of.TerminateOnNaN(),
        ],
    )
    # What a callback sees in the model is what its logs say.
    assert [epoch for epoch, *_ in seen] == [0, 1, 2]
    assert all(right == pytest.approx(logged, abs=1e-6) for _, right, logged in seen)
    x, y = digits()["validation_data"]
    right = keras.saving.load_model(best).predict(x, verbose=0).argmax(axis=1) == y
    assert float(np.mean(right)) == pytest.approx(max(logged for *_, logged in seen), abs=1e-6)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == ("epoch,loss,val_accuracy", 4)
    assert list((tmp_path / "logs" / "validation").iterdir())
    assert record.history["val_accuracy"][-1] == pytest.approx(seen[-1][2])


def test_early_stopping_ends_it_with_the_best_values(keras: Any) -> None:
    """It watches a loss, which is evaluated for it."""
    model, of = classifier(keras), keras.callbacks
    stopping = of.EarlyStopping(patience=2, start_from_epoch=1, restore_best_weights=True)
    stopping._is_improvement = lambda value, best: best is None
    record = fit(model, **digits(), **SHORT, epochs=20, callbacks=[stopping])
    assert record.stopped_early
    assert record.worker_steps < W
    x, y = digits()["validation_data"]
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(record.history["val_loss"][1], rel=0.5)


def test_a_schedule_by_epochs_is_one_by_worker_steps(keras: Any) -> None:
    def rates(epoch: int, rate: float) -> float:
        return rate / 2 if epoch == 2 else rate

    model = linear_model()
    model.compile(keras.optimizers.SGD(0.01), mean_output)
    callbacks = [keras.callbacks.LearningRateScheduler(rates)]
    fit(model, **constant(), **{**SHORT, "workers": 1}, epochs=4, callbacks=callbacks)
    expected = 1.0 - 16 * (2 * 0.01 + 2 * 0.005) * CONSTANT_GRADIENT
    assert model.get_weights()[0][:, 0] == pytest.approx(expected, rel=1e-4)


def test_a_function_that_builds_and_compiles_gives_its_model(keras: Any) -> None:
    record = fit(lambda: classifier(keras), **digits(), **SHORT, epochs=1)
    x, y = digits()["validation_data"]
    right = record.model.predict(x, verbose=0).argmax(axis=1) == y
    assert float(np.mean(right)) == pytest.approx(record.final_accuracy, abs=1e-6)
    assert list(record.history) == ["loss", "val_accuracy"]


def test_a_training_that_diverges_takes_back_what_callbacks_saw(keras: Any) -> None:
    model = linear_model()
    model.compile(keras.optimizers.SGD(0.01), mean_output)
    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None)]
    record = fit(model, **constant(), epochs=1, learning_rate=1e37, callbacks=callbacks)
    assert record.diverged
    assert (model.get_weights()[0] == 1.0).all()


def test_arguments_that_a_run_has_not_are_said_before_anything_is_built(
    keras: Any, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    of = keras.callbacks

    def never() -> Any:
        raise AssertionError("built")

    for options in (
        {"shuffle": False},
        {"initial_epoch": 2},
        {"validation_freq": [1, 3]},
        {"output": "o.keras"},
        {"tensorboard": "logs"},
        {"resume": True},
        {"checkpoint_every": 5},
        {"use_multiprocessing": True},
        {"learning_rat": 0.1},
    ):
        said.refusal("parameter-invalid", fit, never, **constant(), **SHORT, epochs=1, **options)
    for options in (
        {"callbacks": [of.BackupAndRestore("backup")]},
        {"callbacks": [of.ReduceLROnPlateau()]},
        {"callbacks": [of.ModelCheckpoint("m.keras", save_freq=10)]},
        {"callbacks": ["early_stopping"]},
    ):
        said.refusal("workload-unsuitable", fit, never, **constant(), **SHORT, epochs=1, **options)
    code: ErrorCode
    for code, options in (
        ("workload-unsuitable", {"callbacks": [of.EarlyStopping(monitor="accuracy")]}),
        ("parameter-invalid", {"validation_steps": 0}),
    ):
        said.refusal(code, fit, classifier(keras), **digits(), **SHORT, epochs=1, **options)
    assert caplog.messages == []


def test_arguments_of_keras_fit_have_their_meaning(keras: Any) -> None:
    given = {**digits(), "batch_size": 10, "verbose": 2, "shuffle": True, "initial_epoch": 0}
    given |= {"validation_freq": 2, "validation_steps": 2, "steps_per_epoch": 5}
    record = fit(classifier(keras), **given, **SHORT, epochs=4)
    assert [one.worker_step for one in record.evaluations] == [10, 20]
    # Two batches of ten are tested with.
    assert record.final_accuracy * 20 == pytest.approx(round(record.final_accuracy * 20))


def test_it_says_by_what_a_run_is_judged(keras: Any, said: Said) -> None:
    from syncswitch.trainers.keras_api.from_compiled import _judged_by

    of = keras.metrics
    for metrics, metric in (
        (None, None),
        (None, "loss"),
        ([of.FalseNegatives(), "accuracy"], of.FalseNegatives()),
        (["accuracy"], None),
    ):
        model = dense_model()
        model.compile("sgd", "mse", metrics=metrics)
        said(_judged_by(model, metrics and metrics[0], metric) or "nothing")


def test_it_says_first_what_becomes_of_an_adaptive_rate(
    keras: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = dense_model()
    model.compile(
        keras.optimizers.Adam(0.001), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    fit(model, **digits(), policy=None, epochs=1, workers=2, switch_at=50, largest_scaling=2)
    assert caplog.messages[0].startswith(
        "the learning rate, 0.001 as given, is 0.002 before the switch (times 2, the largest_"
    )


def recorded() -> list[tuple[str, float, int]]:
    """The job, switch and seed of each run in the database of this folder."""
    with open_database("sqlite:///syncswitch.db", create=False) as database:
        jobs = {one.policy.job for one in PolicyRegistry(database).entries()}
        return [
            (job.workload, use.switch_percent, use.seed or 0)
            for job in jobs
            for use in uses(database, job.fingerprint)
        ]


def test_runs_are_recorded_and_the_next_one_learns_from_them(keras: Any) -> None:
    """Also those at a switch of the user's own, of models that Keras numbers."""
    given = {**digits(), "policy": None, "epochs": 6, "workers": 2}
    alone = fit(classifier(keras), **given, switch_at=100)
    second = fit(classifier(keras), **given)
    assert second.spec.band is not None
    assert second.spec.band.target_accuracy == pytest.approx(alone.converged_accuracy, 1e-4)
    own = second.spec.switch_percent, second.spec.seed
    assert recorded() == [("sequential", 100.0, 0), ("sequential", *own)]
    assert own[1] != 0


def test_a_model_that_was_trained_before_is_another_job_each_time(
    keras: Any, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**digits(), "policy": None, "epochs": 1, "workers": 2}
    model, other = classifier(keras), classifier(keras)
    fit(model, **given)
    other.fit(given["x"], given["y"], verbose=0)
    caplog.clear()
    for trained in (model, other):
        fit(trained, **given)
        assert any(one.startswith("the model has been trained before") for one in caplog.messages)
        caplog.clear()
    assert len(recorded()) == 1


def test_a_policy_of_the_job_is_used_and_one_of_another_job_says_where(
    keras: Any, tmp_path: Path
) -> None:
    from syncswitch.storage.policies.file import write_policy

    given = {**digits(), "epochs": 6, "workers": 2}
    fit(classifier(keras), **given, policy=None, switch_at=100)
    with open_database("sqlite:///syncswitch.db", create=False) as database:
        (entry,) = PolicyRegistry(database).entries()
        registered = PolicyRegistry(database).workload(entry.policy.job.fingerprint)
    assert registered is not None
    write_policy(tmp_path / "own.json", entry.policy, registered)
    policies = (entry.policy, tmp_path / "own.json", "1", "current", changed(JOB, workers=2))
    found = [fit(classifier(keras), **given, policy=one).spec for one in policies]
    own = [entry.policy.switch_percent] * 4
    assert [one.switch_percent for one in found] == [*own, JOB.switch_percent]
    of_runs = [("sequential", one.switch_percent, one.seed) for one in found]
    assert recorded() == [("sequential", 100.0, 0), *of_runs]
