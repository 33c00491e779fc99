"""A policy in a `fit` of one's own: real Keras training, with a known answer where that helps."""

from __future__ import annotations

import logging
import math
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import ErrorCode
from syncswitch.storage.policies.unguarded import unguarded_warning
from tests.failing import fails
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY
from tests.trainers.jobs import (
    CONSTANT_GRADIENT,
    dense_model,
    digits_data,
    linear_model,
    mean_output,
)
from tests.trainers.policies import level_band, policy_file
from tests.warm_program import run_code
from tests.wording import Said

ETA, N, W = 0.25, 4, 40
JOB = changed(POLICY, workers=N, total_worker_steps=W, switch_percent=30.0)
SWITCH = 12


@pytest.fixture(scope="module")
def compiled(keras: Any) -> Any:
    """Traced once for most tests."""
    model = linear_model()
    model.compile(keras.optimizers.SGD(ETA), mean_output)
    return model


@pytest.fixture
def model(compiled: Any) -> Any:
    """Its gradient is always `CONSTANT_GRADIENT`, so its parameters tell the sum of the rates."""
    compiled.set_weights([np.ones((4, 1))])
    compiled.optimizer.learning_rate = ETA
    return compiled


@pytest.fixture
def own_model(keras: Any) -> Any:
    """The same, to be compiled by the test."""
    return linear_model()


def noting_rates(keras: Any) -> Any:
    """A callback that notes the learning rate of each batch."""

    class Rates(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            rate = self.model.optimizer.learning_rate
            self.seen.append(float(keras.ops.convert_to_numpy(rate)))

    return Rates()


@pytest.fixture
def rates(keras: Any) -> Any:
    return noting_rates(keras)


def make(policy: Any, **options: Any) -> Any:
    from syncswitch.trainers.keras_api.callback import PolicyCallback

    return PolicyCallback(policy, **options)


def fit(model: Any, *callbacks: Any, batches: int = 16, epochs: int = 30) -> None:
    inputs = np.tile(CONSTANT_GRADIENT, (2 * batches, 1))
    labels = np.zeros((2 * batches, 1), np.float32)
    model.fit(inputs, labels, batch_size=2, epochs=epochs, verbose=0, callbacks=list(callbacks))


def moved(model: Any) -> float:
    """Sum of the rates of all updates."""
    change = (1.0 - model.get_weights()[0][:, 0]) / CONSTANT_GRADIENT
    assert np.ptp(change) < 1e-4
    return float(change[0])


@pytest.mark.parametrize(
    ("changes", "options", "expected", "told"),
    [
        ({}, {}, [N * ETA] * 3 + [ETA] * 28, [SWITCH]),
        ({"switch_percent": 0.0}, {}, [ETA] * W, [0]),
        ({"switch_percent": 1.0}, {}, [N * ETA] + [ETA] * 36, [N]),
        ({"switch_percent": 100.0}, {}, [N * ETA] * 10, []),
        (
            {"first_protocol": "asp", "second_protocol": "bsp", "switch_percent": 32.5},
            {},
            [ETA] * 13 + [N * ETA] * 7,
            [13],
        ),
        ({"first_protocol": "ddp", "second_protocol": "post"}, {}, [ETA] * W, [SWITCH]),
        # Each of n processes has a callback.
        ({}, {"worker_steps_per_batch": (N, N)}, [N * ETA] * 3 + [ETA] * 7, [SWITCH]),
        ({}, {"workers": 2, "scale_learning_rate": False}, [ETA] * (6 + 28), [SWITCH]),
        # A resumed job does what is left.
        ({}, {"initial_worker_step": 8}, [N * ETA] + [ETA] * 28, [SWITCH]),
        ({}, {"initial_worker_step": SWITCH}, [ETA] * 28, [SWITCH]),
        ({}, {"initial_worker_step": 33}, [ETA] * 7, [33]),
    ],
)
def test_the_job_has_its_worker_steps_at_the_rate_of_each_protocol(
    model: Any,
    rates: Any,
    changes: dict[str, Any],
    options: dict[str, Any],
    expected: list[float],
    told: list[int],
) -> None:
    seen = []
    switch = make(
        changed(JOB, **changes),
        at_switch=lambda given: seen.append((given, switch.worker_step)),
        **options,
    )
    fit(model, switch, rates)
    assert rates.seen == expected
    assert moved(model) == pytest.approx(sum(expected), rel=1e-5)
    assert seen == [(model, step) for step in told]
    assert W <= switch.worker_step < W + N, "batches are not cut"
    assert float(model.optimizer.learning_rate) == ETA


def test_it_goes_on_from_one_fit_to_the_next(model: Any, rates: Any) -> None:
    switch = make(JOB, stop_at_switch=True)
    fit(model, switch, rates, epochs=1, batches=2)
    assert (switch.worker_step, switch.is_after_switch) == (2 * N, False)
    assert float(model.optimizer.learning_rate) == ETA
    fit(model, switch, rates)
    assert (switch.worker_step, switch.is_after_switch) == (SWITCH, True)
    fit(model, switch, rates)
    assert switch.worker_step == W
    assert rates.seen == [N * ETA] * 3 + [ETA] * 28
    with fails("input-invalid", r"all 40 worker-steps of the policy are done \(at 40\)"):
        fit(model, switch)


def test_what_others_do_to_the_rate_is_kept(keras: Any, model: Any, rates: Any) -> None:
    def halve(epoch: int, logs: Any) -> None:
        model.optimizer.learning_rate = float(model.optimizer.learning_rate) / 2

    halving = keras.callbacks.LambdaCallback(on_epoch_end=halve)
    fit(model, make(JOB), rates, halving, batches=2, epochs=3)
    assert rates.seen == [1.0, 1.0, 0.5, 0.125, 0.0625, 0.0625]
    assert float(model.optimizer.learning_rate) == 0.03125


def test_an_interrupted_fit_goes_on_without_another_scaling(
    keras: Any, model: Any, rates: Any
) -> None:
    def interrupt(batch: int, logs: Any) -> None:
        raise KeyboardInterrupt

    switch = make(JOB)
    with pytest.raises(KeyboardInterrupt):
        fit(model, switch, keras.callbacks.LambdaCallback(on_train_batch_end=interrupt))
    assert float(model.optimizer.learning_rate) == N * ETA
    fit(model, switch, rates)
    assert rates.seen == [N * ETA] * 2 + [ETA] * 28


def test_executions_of_several_batches_are_counted_whole(
    keras: Any, own_model: Any, rates: Any
) -> None:
    own_model.compile(keras.optimizers.SGD(ETA), mean_output, steps_per_execution=2)
    switch = make(JOB)
    fit(own_model, switch, rates, batches=7, epochs=1)
    # 2 + 2 rounds, 2 + 1 batches: the last execution of an epoch is short.
    assert rates.seen == [N * ETA] * 2 + [ETA] * 2
    assert switch.worker_step == 4 * N + 3
    assert moved(own_model) == pytest.approx((4 * N + 3) * ETA)


def test_it_says_once_what_becomes_of_the_compiled_rate(
    model: Any, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    switch = make(JOB, guarded=False)
    for _ in range(2):
        fit(model, switch, epochs=1, batches=2)
    said(*[one for one in caplog.messages if "learning rate" in one])
    caplog.clear()
    fit(model, make(JOB, guarded=False, scale_learning_rate=False), epochs=1, batches=2)
    assert not [one for one in caplog.messages if "learning rate" in one]


class _Batches:
    """Makes data of 10 batches an epoch, whose number Keras does not know, or gets wrong."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def data(self) -> Any:
        import keras
        import tensorflow as tf

        x, y = np.tile(CONSTANT_GRADIENT, (40, 1)), np.zeros((40, 1), np.float32)
        known = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
        if self.kind == "endless":
            return known.repeat()
        if self.kind == "filtered":
            return known.filter(lambda *_: True)

        class Unknown(keras.utils.PyDataset):  # type: ignore[misc]
            num_batches = None

            def __getitem__(self, index: int) -> Any:
                return x[:4], y[:4]

        return Unknown()


@pytest.mark.parametrize("kind", ["filtered", "endless", "without length"])
@pytest.mark.parametrize("steps", [3, 4])
def test_an_execution_counts_the_updates_that_it_made(
    keras: Any, own_model: Any, kind: str, steps: int
) -> None:
    own_model.compile(keras.optimizers.SGD(ETA), mean_output, steps_per_execution=steps)
    total = 50
    switch = make(None, total_worker_steps=total, workers=1, switch_at=100, guarded=False)
    length = {} if kind == "filtered" else {"steps_per_epoch": 10}
    own_model.fit(_Batches(kind).data(), epochs=20, verbose=0, callbacks=[switch], **length)
    assert total <= switch.worker_step < total + steps
    assert moved(own_model) == pytest.approx(switch.worker_step * ETA)


def test_a_mirrored_strategy_is_scaled_on_each_replica() -> None:
    """In a process of its own: two devices have to be there before TensorFlow is used."""
    code = """
        import tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        import keras
        from tests.trainers.keras_api.test_callback import *
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = linear_model()
            model.compile(keras.optimizers.SGD(ETA), mean_output)
        noting = noting_rates(keras)
        fit(model, make(changed(JOB, total_worker_steps=16), workers=2), noting)
        print(noting.seen == [2 * ETA] * 2 + [ETA] * 12, moved(model) / ETA)
    """
    result = run_code(textwrap.dedent(code), folder=Path(__file__).parents[3])
    assert result.stdout.split()[:1] == ["True"], result.stderr
    assert float(result.stdout.split()[1]) == pytest.approx(16.0)


def test_a_schedule_is_refused_where_it_would_have_to_be_scaled(keras: Any, own_model: Any) -> None:
    schedule = keras.optimizers.schedules.CosineDecay(ETA, 100)
    own_model.compile(keras.optimizers.SGD(schedule), mean_output)
    with fails("input-invalid", "the learning rate of SGD is a schedule"):
        fit(own_model, make(JOB))
    switch = make(JOB, scale_learning_rate=False)
    fit(own_model, switch)
    assert switch.worker_step == W


def test_a_policy_file_and_a_line_in_the_log(
    model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = changed(IDENTITY, workers=N, total_worker_steps=W)
    path = policy_file(tmp_path / "policy.json", identity, switch_percent=30.0)
    with caplog.at_level(logging.INFO, "syncswitch"):
        fit(model, make(path, scale_learning_rate=False))
    # What fit lacks is said once in a process, here or in another test.
    assert caplog.messages[0] == "switched from bsp to asp after 12 of 40 worker-steps"
    with fails("file-unusable", "cannot read the policy file"):
        make(str(tmp_path / "other.json"))


NOT_FINITE = "the training loss is not a finite number"


def spoil(model: Any) -> None:
    """What the second protocol may do to a model."""
    model.set_weights([np.full((4, 1), math.nan)])


def test_after_an_alarm_it_is_as_if_it_had_never_switched(
    keras: Any, own_model: Any, rates: Any
) -> None:
    """Momentum included, to the last bit."""

    def trained(*callbacks: Any) -> np.ndarray:
        own_model.set_weights([np.ones((4, 1))])
        own_model.compile(keras.optimizers.SGD(ETA, momentum=0.9), mean_output)
        fit(own_model, *callbacks)
        return np.asarray(own_model.get_weights()[0])

    expected = trained(make(changed(JOB, switch_percent=100.0)))
    told: list[int] = []
    switch = make(JOB, at_switch=spoil, at_alarm=lambda _: told.append(switch.worker_step))
    assert (trained(switch, rates) == expected).all()
    assert rates.seen == [N * ETA] * 3 + [ETA] + [N * ETA] * 7
    assert (switch.alarm, switch.worker_step, switch.is_after_switch) == (NOT_FINITE, W, False)
    assert told == [SWITCH]
    assert float(own_model.optimizer.learning_rate) == ETA


def test_without_a_guard_it_trains_on(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    guarded = changed(JOB, guarded=True, kept_share=0.86)
    make(guarded)
    make(JOB, guarded=False)
    assert caplog.messages == []
    for policy, options in ((guarded, {"guarded": False}), (JOB, {"initial_worker_step": 13})):
        switch = make(policy, at_switch=spoil, scale_learning_rate=False, **options)
        fit(model, switch)
        assert (switch.alarm, switch.worker_step) == (None, W)
        assert np.isnan(model.get_weights()[0]).all()
    assert caplog.messages == [str(unguarded_warning(guarded))]


@pytest.mark.parametrize(
    ("percent", "ends", "expected"),
    [
        (0.0, [(W, False)], [ETA] + [N * ETA] * 10),
        (
            30.0,
            [(SWITCH, True), (SWITCH, False), (W, False)],
            [N * ETA] * 3 + [ETA] + [N * ETA] * 7,
        ),
    ],
)
def test_a_fit_that_ends_at_the_switch_ends_at_an_alarm_too(
    model: Any, rates: Any, percent: float, ends: Any, expected: Any
) -> None:
    switch = make(changed(JOB, switch_percent=percent), at_switch=spoil, stop_at_switch=percent > 0)
    ended = []
    while not switch.is_done:
        fit(model, switch, rates)
        ended.append((switch.worker_step, switch.is_after_switch))
    assert ended == ends
    assert rates.seen == expected


@pytest.mark.parametrize("is_undone", [True, False])
def test_a_model_that_was_compiled_anew(
    keras: Any, own_model: Any, rates: Any, is_undone: bool
) -> None:
    """Its caller compiles it again; an optimizer of another kind starts with its own rate."""
    adam, sgd = keras.optimizers.Adam(0.5), keras.optimizers.SGD(ETA)

    def at_switch(model: Any) -> None:
        model.compile(adam, mean_output)
        spoil(model)

    def at_alarm(model: Any) -> None:
        model.compile(sgd, mean_output)

    own_model.compile(sgd, mean_output)
    fit(own_model, make(JOB, at_switch=at_switch, at_alarm=at_alarm if is_undone else None), rates)
    rate = ETA if is_undone else 0.5
    assert rates.seen == [N * ETA] * 3 + [0.5] + [N * rate] * 7
    assert np.isfinite(own_model.get_weights()[0]).all()
    assert float(own_model.optimizer.learning_rate) == rate


@pytest.fixture(scope="module")
def tested(keras: Any) -> Any:
    """Traced once; it learns too little to matter for who comes next."""
    model = dense_model()
    measured = ["accuracy", "sparse_categorical_crossentropy"]
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=measured)
    return model


def band(value: float) -> Any:
    return level_band(value, range(1, W + 1))


def of_error(metric: str, value: float) -> dict[str, Any]:
    """The callback knows what Keras calls it, and that less of it is better."""
    kind = {"metric": metric, "metric_goal": "min", "metric_unit": None, "metric_highest": None}
    return {**kind, "band": band(-value), "target_accuracy": -value}


BELOW, ABOVE = (
    # 3 rounds and 5 worker-steps are the first epoch, whose test is the first; later ones have 8.
    f"from 33 worker-steps, and on with bsp: 3 evaluations in a row are {side} those of runs"
    for side in ("below", "above")
)


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        ({"band": band(1.0)}, {}, BELOW),
        (of_error("SparseCategoricalCrossentropy", 0.0001), {}, ABOVE),
        (of_error("SparseCategoricalCrossentropy", 1000.0), {}, None),
        (of_error("loss", 0.0001), {}, ABOVE),
        (of_error("loss", 1000.0), {}, None),
        (
            {"target_accuracy": 1.0, "threshold": 0.01, "band": None},
            {},
            "from 40 worker-steps, and on with bsp: it ends with ",
        ),
        ({"band": band(1.0), "metric": "Own"}, {"monitor": "val_accuracy"}, BELOW),
    ],
)
def test_validations_below_the_band_are_an_alarm(
    tested: Any,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    options: dict[str, Any],
    told: str | None,
) -> None:
    switch = make(changed(JOB, **changes), **options)
    data = digits_data()
    x, y = data.train_inputs[:64], data.train_labels[:64]
    tested.fit(x, y, validation_data=(x, y), batch_size=8, epochs=30, verbose=0, callbacks=[switch])
    assert (switch.alarm is None, switch.worker_step) == (told is None, W)
    assert switch.is_after_switch is (told is None)
    back = [line for line in caplog.messages if line.startswith(f"back to the switch {told}")]
    assert len(back) == (told is not None)


@pytest.mark.parametrize(
    ("metrics", "metric", "expected"),
    [
        (["acc"], "accuracy", "val_acc"),
        (["sparse_categorical_accuracy"], "accuracy", "val_sparse_categorical_accuracy"),
        (["mse"], "MeanSquaredError", "val_mse"),
        (["mse"], "accuracy", None),
        (["accuracy"], "Own", None),
    ],
)
def test_a_metric_of_another_name_is_found_or_refused(
    keras: Any, metrics: list[str], metric: str, expected: str | None
) -> None:
    model = dense_model()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=metrics)
    switch = make(changed(JOB, metric=metric))
    logs = {"loss": 1.0, "val_loss": 1.0, **{f"val_{one}": 0.5 for one in metrics}}
    if expected is not None:
        switch.on_epoch_end(0, logs)
        assert switch._monitor == expected
        return
    with fails("result-invalid", r"validations measure val_loss, .* give .* monitor="):
        switch.on_epoch_end(0, logs)


def test_without_a_policy_it_switches_at_the_half_and_says_what_is_not_known(
    model: Any, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    switch = make(None, total_worker_steps=W, workers=N)
    assert (switch.workers, switch.total_worker_steps, switch.switch_worker_step) == (N, W, W // 2)
    alone = make(None, total_worker_steps=W, workers=N, switch_at=100)
    assert alone.switch_worker_step == W
    said(*caplog.messages)


def test_without_a_policy_its_own_validations_send_it_back(keras: Any, own_model: Any) -> None:
    class Validations(keras.callbacks.Callback):  # type: ignore[misc]
        """The accuracy falls after the switch."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["val_accuracy"] = 0.2 if switch.is_after_switch else 0.9

    own_model.compile(keras.optimizers.SGD(1e-3), mean_output)
    switch = make(None, total_worker_steps=20 * N, workers=N)
    x, y = np.ones((N, 4), "float32"), np.ones((N, 1), "float32")
    own_model.fit(x, y, batch_size=N, epochs=90, verbose=0, callbacks=[Validations(), switch])
    assert "has not recovered" in str(switch.alarm)
    assert switch.is_done
    of_loss = make(None, total_worker_steps=W, workers=N, monitor="val_loss", metric_goal="min")
    assert of_loss.switch_worker_step == 32  # 75 %, in whole rounds


def test_what_cannot_be_and_what_is_missing_without_a_policy_is_one_line(said: Said) -> None:
    given: dict[str, Any] = {"total_worker_steps": W, "workers": N}
    code: ErrorCode
    for code, policy, options in (
        ("parameter-invalid", JOB, {"workers": 0}),
        ("parameter-invalid", JOB, {"initial_worker_step": -1}),
        ("parameter-invalid", JOB, {"worker_steps_per_batch": (4, 0)}),
        ("parameter-missing", None, {"workers": N}),
        ("parameter-missing", None, {**given, "monitor": "val_mae"}),
        ("parameter-invalid", None, {**given, "total_worker_steps": 1}),
        ("parameter-invalid", None, {**given, "switch_at": 200}),
        ("parameters-conflict", JOB, {"total_worker_steps": W}),
        ("parameters-conflict", JOB, {"switch_at": 100}),
    ):
        said.refusal(code, make, policy, **options)
