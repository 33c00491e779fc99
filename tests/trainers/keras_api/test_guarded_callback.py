"""A `fit` of one's own that fails after its switch: it goes back there, to the first protocol."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.guard import Band, BandPoint
from tests.storage.conftest import POLICY
from tests.trainers.jobs import CONSTANT_GRADIENT, dense_model, digits_data, mean_output
from tests.trainers.keras_api.conftest import ETA

N, W, SWITCH = 4, 40, 12
JOB = replace(POLICY, workers=N, total_worker_steps=W, switch_percent=30.0)
NOT_FINITE = "the training loss is no finite number"


def spoil(model: Any) -> None:
    """What the second protocol may do to a model."""
    model.set_weights([np.full((4, 1), math.nan)])


def fit(model: Any, *callbacks: Any, epochs: int = 30) -> None:
    inputs = np.tile(CONSTANT_GRADIENT, (32, 1))
    labels = np.zeros((32, 1), np.float32)
    model.fit(inputs, labels, batch_size=2, epochs=epochs, verbose=0, callbacks=list(callbacks))


def test_after_an_alarm_it_is_as_if_it_had_never_switched(
    keras: Any, own_model: Any, make: Callable[..., Any], rates: Any
) -> None:
    """Momentum included, to the last bit."""

    def trained(*callbacks: Any) -> np.ndarray:
        own_model.set_weights([np.ones((4, 1))])
        own_model.compile(keras.optimizers.SGD(ETA, momentum=0.9), mean_output)
        fit(own_model, *callbacks)
        return np.asarray(own_model.get_weights()[0])

    expected = trained(make(replace(JOB, switch_percent=100.0)))
    told: list[int] = []
    switch = make(JOB, at_switch=spoil, at_alarm=lambda _: told.append(switch.worker_step))
    assert (trained(switch, rates) == expected).all()
    assert rates.seen == [N * ETA] * 3 + [ETA] + [N * ETA] * 7
    assert (switch.alarm, switch.worker_step, switch.is_after_switch) == (NOT_FINITE, W, False)
    assert told == [SWITCH]
    assert float(own_model.optimizer.learning_rate) == ETA


def test_a_policy_for_guarded_trainings_says_so_where_there_is_no_guard(
    make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    guarded = replace(JOB, guarded=True, kept_share=0.86)
    make(guarded)
    make(JOB, guard=False)
    assert caplog.messages == []
    make(guarded, guard=False)
    assert caplog.messages == [guarded.bare_warning]


def test_without_its_guard_it_trains_on(model: Any, make: Callable[..., Any], rates: Any) -> None:
    switch = make(JOB, at_switch=spoil, guard=False)
    fit(model, switch, rates)
    assert rates.seen == [N * ETA] * 3 + [ETA] * 28
    assert switch.alarm is None
    assert np.isnan(model.get_weights()[0]).all()


def test_a_callback_that_begins_after_its_switch_has_none(
    model: Any, make: Callable[..., Any]
) -> None:
    switch = make(JOB, at_switch=spoil, initial_worker_step=SWITCH + 1)
    fit(model, switch)
    assert (switch.alarm, switch.worker_step) == (None, W)


@pytest.mark.parametrize("percent", [0.0, 30.0])
def test_where_a_fit_ends_at_the_switch_it_ends_at_an_alarm_too(
    model: Any, make: Callable[..., Any], rates: Any, percent: float
) -> None:
    switch = make(replace(JOB, switch_percent=percent), at_switch=spoil, stop_at_switch=percent > 0)
    ended = []
    while not switch.is_done:
        fit(model, switch, rates)
        ended.append((switch.worker_step, switch.is_after_switch))
    if percent:
        assert ended == [(SWITCH, True), (SWITCH, False), (W, False)]
    else:
        assert ended == [(W, False)]
    assert rates.seen == [N * ETA] * (3 if percent else 0) + [ETA] + [N * ETA] * (
        7 if percent else 10
    )


@pytest.mark.parametrize("is_undone", [True, False])
def test_a_model_that_was_compiled_anew(
    keras: Any, own_model: Any, make: Callable[..., Any], rates: Any, is_undone: bool
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


def digits_model(*measured: str) -> Any:
    model = dense_model()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=list(measured))
    return model


@pytest.fixture(scope="module")
def tested(keras: Any) -> Any:
    """Traced once; it learns too little to matter for who comes next."""
    return digits_model("accuracy", "sparse_categorical_crossentropy")


def digits_run(model: Any, switch: Any) -> None:
    data = digits_data()
    x, y = data.train_inputs[:64], data.train_labels[:64]
    model.fit(x, y, validation_data=(x, y), batch_size=8, epochs=30, verbose=0, callbacks=[switch])


ALWAYS_RIGHT = Band(1.0, 0.01, 3, tuple(BandPoint(step, 1.0, 0.0) for step in range(1, W + 1)))
DIGITS_JOB = replace(JOB, band=ALWAYS_RIGHT)


def test_validations_below_the_band_are_an_alarm(
    tested: Any, make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An epoch after the switch has 8 worker-steps."""
    switch = make(DIGITS_JOB)
    with caplog.at_level(logging.WARNING, "syncswitch"):
        digits_run(tested, switch)
    assert switch.alarm.startswith("3 tests in a row are below what the first protocol alone")
    assert (switch.worker_step, switch.is_after_switch) == (W, False)
    (record,) = caplog.records
    # 3 rounds and 5 worker-steps are the first epoch; its test is the first.
    assert (
        record.message
        == f"back to the switch from 33 worker-steps, and on with bsp: {switch.alarm}"
    )


LESS_IS_BETTER = {"metric_goal": "min", "metric_unit": None, "metric_highest": None}


@pytest.mark.parametrize("metric", ["SparseCategoricalCrossentropy", "loss"])
def test_of_an_error_validations_above_the_band_are_an_alarm(
    tested: Any, make: Callable[..., Any], metric: str
) -> None:
    """The callback knows what Keras calls it, and that less of it is better."""

    def alarm_of(error: float) -> str | None:
        curve = tuple(BandPoint(step, -error, 0.0) for step in range(1, W + 1))
        values = {"band": Band(-error, 0.01, 3, curve), "target_accuracy": -error}
        switch = make(replace(DIGITS_JOB, metric=metric, **LESS_IS_BETTER, **values))
        digits_run(tested, switch)
        alarm: str | None = switch.alarm
        return alarm

    assert alarm_of(1000.0) is None
    assert (alarm_of(0.0001) or "").startswith("3 tests in a row are above what the first")


def test_an_end_below_the_target_is_one(tested: Any, make: Callable[..., Any]) -> None:
    switch = make(replace(JOB, target_accuracy=1.0, threshold=0.01, band=None))
    digits_run(tested, switch)
    assert switch.alarm.startswith("it ends with ")
    assert (switch.worker_step, switch.is_after_switch) == (40, False)


def test_only_what_the_policy_calls_accuracy_is_looked_at(
    keras: Any, make: Callable[..., Any]
) -> None:
    model = digits_model("sparse_categorical_accuracy")
    switch = make(DIGITS_JOB)
    digits_run(model, switch)
    assert (switch.alarm, switch.worker_step) == (None, W)
    switch = make(DIGITS_JOB, monitor="val_sparse_categorical_accuracy")
    digits_run(model, switch)
    assert switch.alarm is not None
