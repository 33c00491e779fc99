"""A workload of a compiled model: what compile and fit would make of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.keras_parts import build_loss, build_metric, build_model, decided_by
from syncswitch.trainers.job.workload import Workload
from tests.trainers.jobs import dense_model, digits_data

From = Callable[..., Workload]


@pytest.fixture(scope="module")
def from_compiled(keras: Any) -> From:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    return from_compiled


def arrays(count: int = 100) -> dict[str, Any]:
    data = digits_data()
    return {
        "x": data.train_inputs[:count],
        "y": data.train_labels[:count],
        "validation_data": (data.test_inputs[:50], data.test_labels[:50]),
    }


def binary_model(keras: Any, **compiled: Any) -> Any:
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")], name="yes-or-no"
    )
    model.compile(**{"optimizer": "sgd", "loss": "binary_crossentropy", **compiled})
    return model


def binary_data(count: int = 64) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(count, 4)).astype("float32")
    return x, (x[:, 0] > 0).astype("int32")


def test_it_is_the_job_that_one_would_write_by_hand(keras: Any, from_compiled: From) -> None:
    model = dense_model()
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["acc"])
    made = from_compiled(model, **arrays(), batch_size=16, epochs=4, name="mine", data_set="some")
    by_hand = Workload(
        name="mine",
        model=dense_model,
        data=digits_data,
        data_set="some",
        total_worker_steps=28,
        batch_size=16,
        learning_rate=0.02,
        evaluation_interval_worker_steps=1,
        optimizer=keras.optimizers.Adam,
    )
    assert workload_identity(made, 4, "bsp", "asp") == workload_identity(by_hand, 4, "bsp", "asp")
    assert (made.load_data().train_inputs == arrays()["x"]).all()


def test_a_schedule_and_other_metrics_are_those_of_compile(keras: Any, from_compiled: From) -> None:
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 1000)
    compiled = {"optimizer": keras.optimizers.SGD(schedule), "metrics": [keras.metrics.AUC(50)]}
    x, y = binary_data()
    made = from_compiled(binary_model(keras, **compiled), x, y, validation_split=0.25)
    assert callable(made.learning_rate)
    assert made.learning_rate().get_config() == schedule.get_config()
    assert type(build_metric(made)) is keras.metrics.AUC
    assert build_metric(made).num_thresholds == 50
    data = made.load_data()
    assert (len(data.train_inputs), len(data.test_inputs)) == (48, 16)
    assert (data.test_labels == y[48:]).all()


@pytest.mark.parametrize("loss", ["binary_crossentropy", "mse", "object", "logits"])
@pytest.mark.parametrize("class_weight", [None, {0: 0.5, 1: 3.0}])
def test_the_loss_is_that_of_fit(
    keras: Any, from_compiled: From, loss: str, class_weight: dict[int, float] | None
) -> None:
    built = {
        "object": keras.losses.BinaryCrossentropy(label_smoothing=0.1),
        "logits": keras.losses.BinaryCrossentropy(from_logits=True),
    }.get(loss, loss)
    model = binary_model(keras, loss=built, run_eagerly=True)
    x, y = binary_data()
    made = from_compiled(model, x, y, validation_data=(x, y), class_weight=class_weight)
    mine = np.mean(build_loss(made)(y, model(x)))
    # Labels of shape [batch], outputs of shape [batch, 1]; before its step.
    of_keras = model.train_on_batch(x, y, class_weight=class_weight)
    assert mine == pytest.approx(of_keras, rel=1e-5)


def test_class_weights_are_part_of_the_job(keras: Any, from_compiled: From) -> None:
    x, y = binary_data()

    def fingerprint(weights: dict[int, float] | None) -> str:
        made = from_compiled(
            binary_model(keras), x, y, validation_data=(x, y), class_weight=weights
        )
        return workload_identity(made, 4, "bsp", "asp").fingerprint

    weights = [None, {1: 3.0}, {1: 4.0}]
    assert len({fingerprint(one) for one in weights}) == 3
    assert fingerprint({0: 1.0, 1: 3.0}) == fingerprint({1: 3.0, 0: 1.0})


def test_what_is_trained_is_drawn_anew_and_what_is_frozen_stays(
    keras: Any, from_compiled: From
) -> None:
    x, y = binary_data()
    frozen = keras.layers.Dense(3, trainable=False)
    model = keras.Sequential([keras.Input((4,)), frozen, keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy")
    made = from_compiled(model, x, y, validation_data=(x, y))
    one, other = build_model(made).get_weights(), build_model(made).get_weights()
    assert (one[0] == frozen.get_weights()[0]).all()
    assert (other[0] == one[0]).all()
    assert (other[2] != one[2]).any()
    kept = from_compiled(model, x, y, validation_data=(x, y), is_pretrained=True)
    for mine, value in zip(build_model(kept).get_weights(), model.get_weights(), strict=True):
        assert (mine == value).all()


def test_pipelines_are_batched_as_for_fit(keras: Any, from_compiled: From) -> None:
    import tensorflow as tf

    x, y = binary_data(40)
    train = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    made = from_compiled(binary_model(keras), train, validation_data=train, epochs=5)
    assert (made.batch_size, made.total_worker_steps, made.name) == (16, 15, "yes-or-no")
    assert (made.load_data().train_inputs == x).all()


def test_other_data_are_another_job(keras: Any, from_compiled: From) -> None:
    x, y = binary_data()
    names = [
        from_compiled(binary_model(keras), one, y, validation_data=(x, y)).data_set
        for one in (x, x.copy(), x + 1)
    ]
    assert names[0] == names[1] != names[2]


def two_outputs(keras: Any, **compiled: Any) -> Any:
    inputs = keras.Input((4,))
    kind = keras.layers.Dense(1, activation="sigmoid", name="kind")(inputs)
    size = keras.layers.Dense(1, name="size")(inputs)
    model = keras.Model(inputs, [kind, size])
    model.compile(loss=["binary_crossentropy", "mse"], **compiled)
    return model


@pytest.mark.parametrize(
    ("metrics", "output", "kind"),
    [
        (None, "kind", None),
        ({"size": ["mae"], "kind": ["accuracy"]}, "kind", None),
        ([[], ["mae"]], "size", "MeanAbsoluteError"),
        ({"size": "mae"}, "size", "MeanAbsoluteError"),
    ],
)
def test_of_several_outputs_the_first_metric_decides(
    keras: Any, from_compiled: From, metrics: Any, output: str, kind: str | None
) -> None:
    x, y = binary_data()
    model = two_outputs(keras, metrics=metrics, loss_weights=[1.0, 0.5])
    made = from_compiled(model, x, (y, x[:, :1]), validation_split=0.5)
    assert (made.metric_output, made.loss_weights) == (output, [1.0, 0.5])
    built = build_metric(made)
    assert (built and type(built).__name__) in (kind, "MeanMetricWrapper" if kind else None)
    data = made.load_data()
    assert data.train.examples == data.test.examples == 32
    assert (data.test_labels[1] == x[32:, :1]).all()


def test_metrics_of_ones_own_are_taken(keras: Any, from_compiled: From) -> None:
    def near(labels: Any, outputs: Any) -> Any:
        return keras.ops.cast(keras.ops.abs(labels - outputs) < 0.5, "float32")

    class Largest(keras.metrics.Mean):  # type: ignore[misc]
        """Nobody registers it."""

    x, y = binary_data()
    fingerprints = set()
    for metric, name in ((near, "near"), (Largest(name="top"), "Largest")):
        model = binary_model(keras, metrics=[metric])
        made = from_compiled(model, x, y, validation_data=(x, y))
        assert decided_by(made) == Metric(name)
        assert build_metric(made) is not build_metric(made)
        fingerprints.add(workload_identity(made, 2, "bsp", "asp").fingerprint)
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("units", "labels", "expected"),
    [
        (1, [0, 1], None),
        (1, [0.0, 1.0], None),
        (1, [3, 4], "loss"),
        (1, [0.5, 1.0], "loss"),
        (2, [0, 1], None),
        (2, [0.0, 1.0], None),
        (2, [0.5, 1.0], "loss"),
        (2, [[0, 1], [1, 0]], None),
        (2, [[1, 1], [1, 0]], "loss"),
        (2, [[0.5, 3.0], [1, 0]], "loss"),
    ],
)
def test_without_a_metric_classes_have_accuracy_and_values_the_loss(
    keras: Any, from_compiled: From, units: int, labels: Any, expected: str | None
) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    x, _ = binary_data(2)
    assert from_compiled(model, x, np.array(labels), validation_split=0.5).metric == expected


def test_weights_are_those_of_fit_and_of_weighted_metrics(keras: Any, from_compiled: From) -> None:
    x, y = binary_data()
    weights = np.linspace(0, 2, len(x))
    for compiled, expected in (({"metrics": ["auc"]}, None), ({"weighted_metrics": ["auc"]}, 64)):
        model = binary_model(keras, **compiled)
        made = from_compiled(model, x, y, sample_weight=weights, validation_data=(x, y, weights))
        data = made.load_data()
        assert (data.train_weights == weights).all()
        tested = data.test_weights
        assert (tested is None) if expected is None else len(tested) == expected
        assert type(build_metric(made)) is keras.metrics.AUC


def test_pipelines_may_be_nested_and_weighted(keras: Any, from_compiled: From) -> None:
    import tensorflow as tf

    x, y = binary_data(40)
    rows = ({"a": x, "b": x}, y, np.ones(40))
    train = tf.data.Dataset.from_tensor_slices(rows).batch(16)
    made = from_compiled(binary_model(keras), train, validation_data=train)
    data = made.load_data()
    assert (made.batch_size, made.total_worker_steps) == (16, 3)
    assert (data.train_inputs["b"] == x).all()
    assert len(data.train_weights) == 40
    assert data.test_weights is None


def test_data_that_are_made_already_are_taken(keras: Any, from_compiled: From) -> None:
    data = digits_data()
    model = dense_model()
    model.compile("sgd", "sparse_categorical_crossentropy")
    made = from_compiled(model, data, batch_size=100, epochs=2, name="made")
    assert made.load_data() is data
    assert (made.total_worker_steps, made.data_set) == (
        2 * -(-len(data.train_labels) // 100),
        "made",
    )


def test_the_name_of_text_is_the_same_in_every_process(keras: Any, from_compiled: From) -> None:
    _, y = binary_data()
    names = []
    for word in ("up", "up", "down"):
        texts = np.array([f"{word} {number}" for number in range(len(y))], object)
        made = from_compiled(binary_model(keras), texts, y, validation_data=(texts, y))
        names.append(made.data_set)
    assert names[0] == names[1] != names[2]


def test_callbacks_are_those_that_a_run_has_to_tell(keras: Any, from_compiled: From) -> None:
    x, y = binary_data()
    of = keras.callbacks

    def made(*callbacks: Any) -> Workload:
        return from_compiled(
            binary_model(keras), x, y, validation_split=0.5, callbacks=list(callbacks)
        )

    own = of.LambdaCallback(on_epoch_end=print)
    told = made(of.TerminateOnNaN(), own).callbacks
    assert told is not None
    assert told() == [own]
    assert made(of.TerminateOnNaN()).callbacks is None
    with pytest.raises(WorkloadError, match=r"^from_compiled: callback EarlyStopping cannot be"):
        made(of.EarlyStopping())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sample_weight": np.ones(64), "class_weight": {1: 2.0}}, "multiply them yourself"),
        ({"validation_data": (1, 2, 3, 4)}, "validation_data is a tuple; give a pair"),
        ({"validation_data": None}, "nothing to test with; give validation_data"),
        ({"validation_data": 3}, "validation_data is a int; give a pair"),
        ({"y": None}, "x is a ndarray, and there is no y; give arrays x and y"),
        ({"epochs": 0}, "epochs is 0; give a whole number"),
        ({"model": "mine"}, "the model is not compiled; call its compile"),
    ],
)
def test_what_does_not_fit(
    keras: Any, from_compiled: From, changes: dict[str, Any], expected: str
) -> None:
    x, y = binary_data()
    given = {"model": binary_model(keras), "x": x, "y": y, "validation_data": (x, y), **changes}
    with pytest.raises(WorkloadError, match=expected):
        from_compiled(given.pop("model"), given.pop("x"), given.pop("y"), **given)


def test_it_trains_on_a_cluster(keras: Any, from_compiled: From) -> None:
    from syncswitch.storage.records.trial import TrialSpec
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer

    x, y = binary_data(256)
    model = binary_model(keras, optimizer=keras.optimizers.SGD(0.2), metrics=["accuracy"])
    told: list[Any] = []
    telling = keras.callbacks.LambdaCallback(on_epoch_end=lambda *given: told.append(given))
    made = from_compiled(
        model,
        x,
        y,
        validation_data=(x, y),
        epochs=10,
        class_weight={1: 2.0},
        callbacks=[telling],
        evaluation_interval_worker_steps=20,
    )
    spec = TrialSpec(workload_identity(made, 2, "bsp", "asp"), 50.0, 1)
    with ClusterTrainer(made, 2) as trainer:
        record = trainer.train(spec)
    assert record.worker_steps == 80
    assert record.final_accuracy > 0.85
    expected = [
        (number, {"loss": one.training_loss, "val_accuracy": one.accuracy})
        for number, one in enumerate(record.evaluations)
    ]
    assert told == expected
    assert len(told) == 4
