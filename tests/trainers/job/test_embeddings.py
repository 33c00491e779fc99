from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.embeddings import Lookups, embeddings_of, thin_embeddings, thin_layers
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.keras_parts import build_model
from tests.failing import fails
from tests.trainers.clicks import CLICKS, ITEMS, USERS, WHOLE, WIDTH, clicks_model
from tests.wording import Said


def shapes(model: Any) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in model.trainable_variables]


def test_large_embeddings_alone_are_not_built(keras: Any) -> None:
    model = build_model(CLICKS)
    assert [(one.name, one.layer, one.rows, one.width) for one in embeddings_of(model)] == [
        ("000-embeddings", "user", USERS, WIDTH),
        ("001-embeddings", "item", ITEMS, WIDTH),
    ]
    assert shapes(model)[:2] == [(1, WIDTH)] * 2
    assert model.get_layer("user").get_config()["input_dim"] == USERS
    # Afterwards Keras is as it was.
    whole = build_model(replace(CLICKS, least_embedding_values=None))
    assert embeddings_of(whole) == ()
    assert shapes(whole) == shapes(clicks_model())
    some = build_model(replace(CLICKS, least_embedding_values=ITEMS * WIDTH + 1))
    assert [one.layer for one in embeddings_of(some)] == ["user"]
    assert shapes(some)[1] == (ITEMS, WIDTH)


def test_the_job_stays_the_same_job() -> None:
    assert workload_identity(CLICKS, 2, "bsp", "asp") == workload_identity(WHOLE, 2, "bsp", "asp")


def test_rows_come_from_elsewhere(keras: Any) -> None:
    model = build_model(CLICKS)
    embeddings = [
        np.random.default_rng(0).random((one.rows, WIDTH)) for one in embeddings_of(model)
    ]
    lookups = Lookups(thin_layers(model))

    def find(table: int, ids: Any) -> Any:
        assert (np.asarray(ids) >= 0).all(), "counted from the start"
        return keras.ops.take(embeddings[table], ids, axis=0)

    inputs = np.array([[3, 0], [-1, 40], [3, 2]])
    with lookups.by(find):
        user = model.get_layer("user")(inputs[:, 0].astype(np.float32))
        item = model.get_layer("item")(inputs[:, 1])
    np.testing.assert_array_equal(user, embeddings[0][inputs[:, 0]].astype(np.float32))
    np.testing.assert_array_equal(item, embeddings[1][inputs[:, 1]].astype(np.float32))


def model_with(**named: Any) -> Any:
    from keras import Input, Model, layers

    inputs = Input((3,), dtype="int64")
    table = layers.Embedding(USERS, WIDTH, name="table", **named)
    return Model(inputs, layers.Dense(2)(layers.Flatten()(table(inputs))))


def tied_model() -> Any:
    from keras import Input, Model, layers, ops

    inputs = Input((1,), dtype="int64")
    table = layers.Embedding(USERS, WIDTH, name="table")
    hidden = layers.Dense(WIDTH)(layers.Flatten()(table(inputs)))
    scores = layers.Lambda(lambda one: ops.matmul(one, ops.transpose(table.embeddings)), (USERS,))
    built = Model(inputs, scores(hidden))
    built(np.zeros((1, 1)))
    return built


def frozen_model() -> Any:
    model = model_with()
    model.get_layer("table").trainable = False
    return model


def filled_model(how: str) -> Any:
    """A model that brings values for its table, in the ways in which users do it."""
    values = np.random.default_rng(1).normal(size=(USERS, WIDTH)).astype("float32")
    if how == "weights":
        return model_with(weights=[values])
    model = model_with()
    table = model.get_layer("table")
    if how == "set_weights":
        table.set_weights([values])
    elif how == "all weights":
        model.set_weights([values, *model.get_weights()[1:]])
    elif how == "_embeddings":
        table._embeddings.assign(values)
    return model


UNCUT = {
    **{how: partial(filled_model, how) for how in ("weights", "set_weights", "all weights")},
    "assigned": partial(filled_model, "_embeddings"),
    "tied": tied_model,
    "frozen": frozen_model,
    "regularized": lambda: model_with(embeddings_regularizer="l2"),
    "constrained": lambda: model_with(embeddings_constraint="non_neg"),
    "lora": lambda: model_with(lora_rank=2),
    "untrained": lambda: model_with(trainable=False),
    "initializer": lambda: model_with(embeddings_initializer="glorot_uniform"),
}


def test_only_the_table_with_values_is_moved_whole(
    keras: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is found among others, also where a file is read that may have another shape."""
    layers, path = keras.layers, tmp_path / "some.weights.h5"

    def two(how: str) -> Any:
        inputs = keras.Input((3,), dtype="int64")
        one, other = layers.Embedding(USERS, WIDTH), layers.Embedding(USERS, WIDTH, name="other")
        both = layers.Add()([one(inputs), other(inputs)])
        model = keras.Model(inputs, layers.Dense(2)(layers.Flatten()(both)))
        if how == "set":
            other.set_weights([np.ones((USERS, WIDTH))])
        elif how == "loaded":
            model.load_weights(path, skip_mismatch=True)
        elif how == "wrong":
            raise ValueError("of another kind")
        return model

    def built(how: str) -> Any:
        return build_model(replace(CLICKS, name=how, model=lambda: two(how)))

    two("as it is").save_weights(path)
    (thin,) = embeddings_of(built("set"))
    assert thin.layer != "other"
    assert embeddings_of(built("loaded")) == ()
    with fails("workload-unsuitable", r"model\(\) failed with ValueError: of another kind"):
        built("wrong")


def test_what_cannot_be_cut_into_rows_stays_whole(
    keras: Any, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    with caplog.at_level(logging.WARNING):
        for name, model in UNCUT.items():
            workload = replace(CLICKS, name=name, model=model)
            for built in (build_model(workload), build_model(workload)):  # it is told once
                assert embeddings_of(built) == ()
                assert (USERS, WIDTH) in [tuple(one.shape) for one in built.variables]
    said(*caplog.messages)


def test_builds_at_once_leave_the_class_as_it_was(keras: Any) -> None:
    before = dict(vars(keras.layers.Embedding))
    first, second = thin_embeddings(1, set()), thin_embeddings(2, set())
    inside, may_leave = threading.Event(), threading.Event()

    def build() -> None:
        with first:
            inside.set()
            may_leave.wait(10)

    def build_as_well() -> None:
        with second:
            pass

    threads = [threading.Thread(target=one) for one in (build, build_as_well)]
    threads[0].start()
    inside.wait(10)
    threads[1].start()
    threads[1].join(0.2)  # it waits for the first one
    may_leave.set()
    for thread in threads:
        thread.join(10)
    assert dict(vars(keras.layers.Embedding)) == before
