"""A workload of a compiled model: what compile and fit would make of it, and nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import ErrorCode
from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.keras_parts import build_metric, build_model, metric_of
from syncswitch.trainers.job.workload import Workload
from tests.failing import fails
from tests.trainers.jobs import dense_model, digits_data
from tests.wording import Said

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
TEST = (X[:4], Y[:4])


def made(model: Any, x: Any = X, y: Any = Y, **given: Any) -> Workload:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    return from_compiled(model, x, y, **{"validation_split": 0.25, **given})


def binary_model(keras: Any, **compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(**{"optimizer": "sgd", "loss": "binary_crossentropy", **compiled})
    return model


def test_it_is_the_job_that_one_would_write_by_hand(keras: Any) -> None:
    model, data = dense_model(), digits_data()
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["acc"])
    x, y = data.train_inputs[:100], data.train_labels[:100]
    given = {"batch_size": 16, "epochs": 4, "name": "mine", "data_set": "some"}
    found = made(model, x, y, validation_data=(x, y), **given)
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
    assert workload_identity(found, 4, "bsp", "asp") == workload_identity(by_hand, 4, "bsp", "asp")
    assert (found.load_data().train_inputs == x).all()


def test_a_schedule_and_other_metrics_are_those_of_compile(keras: Any) -> None:
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 1000)
    compiled = {"optimizer": keras.optimizers.SGD(schedule), "metrics": [keras.metrics.AUC(50)]}
    found = made(binary_model(keras, **compiled))
    assert callable(found.learning_rate)
    assert found.learning_rate().get_config() == schedule.get_config()
    assert type(build_metric(found)) is keras.metrics.AUC
    assert build_metric(found).num_thresholds == 50
    data = found.load_data()
    assert (len(data.train_inputs), len(data.test_inputs)) == (48, 16)
    assert (data.test_labels == Y[48:]).all()


def test_what_is_trained_is_drawn_anew_and_what_is_frozen_stays(keras: Any) -> None:
    frozen = keras.layers.Dense(3, trainable=False)
    model = keras.Sequential([keras.Input((4,)), frozen, keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy")
    found = made(model)
    one, other = build_model(found).get_weights(), build_model(found).get_weights()
    assert (one[0] == frozen.get_weights()[0]).all()
    assert (other[0] == one[0]).all()
    assert (other[2] != one[2]).any()
    kept = build_model(made(model, is_pretrained=True)).get_weights()
    for mine, value in zip(kept, model.get_weights(), strict=True):
        assert (mine == value).all()


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
    keras: Any, metrics: Any, output: str, kind: str | None
) -> None:
    inputs = keras.Input((4,))
    outputs = [
        keras.layers.Dense(1, activation="sigmoid", name="kind")(inputs),
        keras.layers.Dense(1, name="size")(inputs),
    ]
    model = keras.Model(inputs, outputs)
    losses = ["binary_crossentropy", "mse"]
    model.compile(loss=losses, metrics=metrics, loss_weights=[1.0, 0.5])
    found = made(model, X, (Y, X[:, :1]))
    assert (found.metric_output, found.loss_weights) == (output, [1.0, 0.5])
    built = build_metric(found)
    assert (built and type(built).__name__) in (kind, "MeanMetricWrapper" if kind else None)
    data = found.load_data()
    assert (data.train.examples, data.test.examples) == (48, 16)
    assert (data.test_labels[1] == X[48:, :1]).all()


def test_metrics_of_ones_own_are_taken(keras: Any) -> None:
    def near(labels: Any, outputs: Any) -> Any:
        return keras.ops.cast(keras.ops.abs(labels - outputs) < 0.5, "float32")

    class Largest(keras.metrics.Mean):  # type: ignore[misc]
        """Nobody registers it."""

    fingerprints = set()
    for metric, name in ((near, "near"), (Largest(name="top"), "Largest")):
        found = made(binary_model(keras, metrics=[metric]))
        assert metric_of(found) == Metric(name)
        assert build_metric(found) is not build_metric(found)
        fingerprints.add(workload_identity(found, 2, "bsp", "asp").fingerprint)
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
    keras: Any, units: int, labels: Any, expected: str | None
) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    assert made(model, X[:2], np.array(labels), validation_split=0.5).metric == expected


def test_weights_are_those_of_fit_and_of_weighted_metrics(keras: Any) -> None:
    weights = np.linspace(0, 2, len(X))
    for kind in ("metrics", "weighted_metrics"):
        model = binary_model(keras, **{kind: ["auc"]})
        found = made(model, sample_weight=weights, validation_data=(X, Y, weights))
        data = found.load_data()
        assert (data.train_weights == weights).all()
        assert (data.test_weights is None) is (kind == "metrics")
        assert type(build_metric(found)) is keras.metrics.AUC


def test_data_that_are_made_already_are_taken() -> None:
    data = digits_data()
    model = dense_model()
    model.compile("sgd", "sparse_categorical_crossentropy")
    found = made(model, data, None, batch_size=100, epochs=2, name="made")
    assert found.load_data() is data
    steps = 2 * -(-len(data.train_labels) // 100)
    assert (found.total_worker_steps, found.data_set) == (steps, "made")


def texts(word: str) -> np.ndarray:
    return np.array([f"{word} {one}" for one in range(len(Y))], object)


def test_other_data_are_another_job(keras: Any) -> None:
    """Also where they are texts, which lie elsewhere in every process."""
    for given in ((X, X.copy(), X + 1), (texts("up"), texts("up"), texts("on"))):
        one, same, other = (
            made(binary_model(keras), x, name="a", validation_data=(x, Y)).data_set for x in given
        )
        assert one == same != other


def test_callbacks_are_those_that_a_run_has_to_tell(keras: Any) -> None:
    nothing, own = keras.callbacks.TerminateOnNaN(), keras.callbacks.LambdaCallback()
    told = made(binary_model(keras), callbacks=[nothing, own]).callbacks
    assert told is not None
    assert told() == [own]
    assert made(binary_model(keras), callbacks=[nothing]).callbacks is None


def pieces(keras: Any, *, has_weights: bool = False, batch: Any = None, length: int = 8) -> Any:
    """All examples in batches of 9, the last of 1."""

    class Pieces(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return length

        def __getitem__(self, number: int) -> Any:
            if batch is not None:
                return batch
            part = slice(number * 9, number * 9 + 9)
            found = ({"a": X[part, :1], "b": X[part, 1:]}, Y[part])
            return (*found, np.abs(X[part, 0])) if has_weights else found

    return Pieces()


def dataset(*rows: Any) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(rows or (X, Y)).batch(9)


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("kind", ["PyDataset", "Dataset"])
def test_batches_are_joined(keras: Any, kind: str, has_weights: bool) -> None:
    x: Any = pieces(keras, has_weights=has_weights)
    if kind == "Dataset":
        x = dataset({"a": X[:, :1], "b": X[:, 1:]}, Y, *[np.abs(X[:, 0])] * has_weights)
    found = made(binary_model(keras), x, None, validation_data=dataset().take(1), epochs=2)
    assert (found.batch_size, found.total_worker_steps) == (9, 16)
    data = found.load_data()
    assert (data.train_inputs["b"] == X[:, 1:]).all()
    assert (data.train_labels == Y).all()
    assert (data.test_inputs == X[:9]).all()
    assert (data.test_labels == Y[:9]).all()
    assert data.test_weights is None
    if has_weights:
        assert (data.train_weights == np.abs(X[:, 0])).all()


def test_what_does_not_fit_is_said(keras: Any, said: Said) -> None:
    code: ErrorCode
    given: dict[str, Any]
    for code, given in (
        ("workload-unsuitable", {"x": lambda _: itertools.repeat((X, Y)), "y": None}),
        ("workload-unsuitable", {"x": lambda _: dataset().repeat(), "y": None}),
        ("parameter-missing", {"x": lambda _: dataset(), "y": None, "validation_data": None}),
        ("workload-unsuitable", {"x": lambda _: dataset(), "y": None, "validation_data": 3}),
        ("workload-unsuitable", {"x": lambda of: pieces(of, batch=X), "y": None}),
        ("workload-unsuitable", {"x": lambda of: pieces(of, length=0), "y": None}),
        ("workload-unsuitable", {"y": None}),
        ("parameter-missing", {"validation_data": None, "validation_split": 0}),
        ("workload-unsuitable", {"validation_data": 3}),
        ("workload-unsuitable", {"validation_data": (1, 2, 3, 4)}),
        ("parameters-conflict", {"sample_weight": Y, "class_weight": {1: 2.0}}),
        ("parameter-invalid", {"epochs": 0}),
        (
            "workload-unsuitable",
            {"callbacks": lambda of: [of.callbacks.EarlyStopping()], "name": "here"},
        ),
        ("workload-unsuitable", {"model": "mine"}),
        ("workload-unsuitable", {"model": lambda _: lambda: 3}),
    ):
        built = {name: one(keras) if callable(one) else one for name, one in given.items()}
        said.refusal(code, made, **{"model": binary_model(keras), "validation_data": TEST, **built})


def test_an_endless_pipeline_is_refused_when_it_is_read(keras: Any) -> None:
    endless = dataset().repeat()
    found = made(binary_model(keras), endless, None, validation_data=TEST, steps_per_epoch=3)
    with fails("workload-unsuitable", "the x pipeline is endless; leave out repeat"):
        found.load_data()


AGES = np.array([[20.0], [40.0], [60.0]], "float32")
TOWNS = np.array([["Bern"], ["Rom"], ["Bern"]], object)
WORDS = np.array(["good good film", "bad film", "good"], object)


def adapted(keras: Any) -> Any:
    """Numbers, categories and text, brought to one row that a layer of ones adds up."""
    of = keras.layers
    scaled, known, counted = (
        of.Normalization(),
        of.StringLookup(output_mode="one_hot"),
        of.TextVectorization(output_mode="tf_idf"),
    )
    for layer, values in ((scaled, AGES), (known, TOWNS), (counted, WORDS)):
        layer.adapt(values)
    age, town = keras.Input((1,)), keras.Input((1,), dtype="string")
    text = keras.Input((), dtype="string")
    row = of.concatenate([scaled(age), known(town), counted(text)])
    model = keras.Model([age, town, text], [row, of.Dense(1, kernel_initializer="ones")(row)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("is_fresh", [True, False])
def test_what_was_adapted_is_copied(keras: Any, is_fresh: bool) -> None:
    from syncswitch.trainers.keras_api.from_compiled import copies

    model = adapted(keras)
    inputs = [keras.ops.convert_to_tensor(one.tolist()) for one in (AGES, TOWNS, WORDS)]
    expected, total = model(inputs)
    assert np.asarray(expected)[:, 0] == pytest.approx([-1.2247, 0.0, 1.2247], abs=1e-3)
    build = copies(model, is_fresh=is_fresh)
    assert model.compiled
    for copy in (build(), build()):
        rows, sums = copy(inputs)
        assert (np.asarray(rows) == np.asarray(expected)).all()
        assert (np.asarray(sums) == np.asarray(total)).all()


def test_a_class_of_ones_own_is_given_as_a_function_that_builds_it(keras: Any) -> None:
    """A model as people write them: it has variables once `fit` has seen a batch."""

    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self, units: int) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(units)

        def call(self, inputs: Any) -> Any:
            return self.layer(inputs)

    def build() -> Any:
        model = Own(1)
        model.compile("sgd", "mse")
        return model

    words = "^Keras cannot copy model 'own.*', a Own [(].*give a function that builds and compiles"
    with fails("workload-unsuitable", words):
        made(build())
    one, other = (made(build).model() for _ in range(2))
    assert [tuple(value.shape) for value in one.weights] == [(4, 1), (1,)]
    assert not one.compiled
    assert (np.asarray(one.weights[0]) != np.asarray(other.weights[0])).any()


def test_variables_that_wait_for_the_first_batch_are_made(keras: Any) -> None:
    model = keras.Sequential([keras.layers.Dense(2, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert [tuple(one.shape) for one in made(model).model().weights] == [(4, 2), (2,)]


@pytest.mark.parametrize("name", ["train_step", "compute_loss"])
def test_a_training_of_ones_own_is_refused(keras: Any, name: str) -> None:
    kind = type("Own", (keras.Model,), {name: lambda *_: {}})
    inputs = keras.Input((4,))
    model = kind(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    with fails("workload-unsuitable", f"a Own, has its own {name}, which no run would"):
        made(model)
