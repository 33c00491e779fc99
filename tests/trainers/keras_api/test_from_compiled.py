"""A workload of a compiled model: what compile and fit would make of it, and nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.keras_parts import build_loss, build_metric, build_model, decided_by
from syncswitch.trainers.job.workload import Workload
from tests.trainers.jobs import dense_model, digits_data


@pytest.fixture(scope="module")
def from_compiled(keras: Any) -> Any:
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


def test_it_is_the_job_that_one_would_write_by_hand(keras: Any, from_compiled: Any) -> None:
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


def test_a_schedule_and_other_metrics_are_those_of_compile(keras: Any, from_compiled: Any) -> None:
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
    keras: Any, from_compiled: Any, loss: str, class_weight: dict[int, float] | None
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


def test_what_is_trained_is_drawn_anew_and_what_is_frozen_stays(
    keras: Any, from_compiled: Any
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
    keras: Any, from_compiled: Any, metrics: Any, output: str, kind: str | None
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


def test_metrics_of_ones_own_are_taken(keras: Any, from_compiled: Any) -> None:
    def near(labels: Any, outputs: Any) -> Any:
        return keras.ops.cast(keras.ops.abs(labels - outputs) < 0.5, "float32")

    class Largest(keras.metrics.Mean):  # type: ignore[misc]
        """Nobody registers it."""

    fingerprints = set()
    for metric, name in ((near, "near"), (Largest(name="top"), "Largest")):
        model = binary_model(keras, metrics=[metric])
        made = from_compiled(model, *binary_data(), validation_split=0.5)
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
    keras: Any, from_compiled: Any, units: int, labels: Any, expected: str | None
) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    x, _ = binary_data(2)
    assert from_compiled(model, x, np.array(labels), validation_split=0.5).metric == expected


def test_weights_are_those_of_fit_and_of_weighted_metrics(keras: Any, from_compiled: Any) -> None:
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


def test_data_that_are_made_already_are_taken(keras: Any, from_compiled: Any) -> None:
    data = digits_data()
    model = dense_model()
    model.compile("sgd", "sparse_categorical_crossentropy")
    made = from_compiled(model, data, batch_size=100, epochs=2, name="made")
    assert made.load_data() is data
    steps = 2 * -(-len(data.train_labels) // 100)
    assert (made.total_worker_steps, made.data_set) == (steps, "made")


def test_other_data_are_another_job(keras: Any, from_compiled: Any) -> None:
    """Also where they are texts, which lie elsewhere in every process."""
    x, y = binary_data()

    def texts(word: str) -> np.ndarray:
        return np.array([f"{word} {one}" for one in range(len(y))], object)

    for given in ((x, x.copy(), x + 1), (texts("up"), texts("up"), texts("on"))):
        names = [
            from_compiled(binary_model(keras), one, y, validation_data=(one, y)).data_set
            for one in given
        ]
        assert names[0] == names[1] != names[2]


def test_callbacks_are_those_that_a_run_has_to_tell(keras: Any) -> None:
    of = keras.callbacks
    own = of.LambdaCallback(on_epoch_end=print)
    told = made(keras, X, Y, validation_data=TEST, callbacks=[of.TerminateOnNaN(), own]).callbacks
    assert told is not None
    assert told() == [own]
    nothing = made(keras, X, Y, validation_data=TEST, callbacks=[of.TerminateOnNaN()])
    assert nothing.callbacks is None


X = np.arange(40, dtype="float32").reshape(20, 2)
Y = (np.arange(20) % 2).astype("int32")
TEST = (X[:4], Y[:4])


def pieces(keras: Any, *, has_weights: bool = False, batch: Any = None, length: int = 3) -> Any:
    """All examples in batches of 8, the last of 4."""

    class Pieces(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return length

        def __getitem__(self, number: int) -> Any:
            if batch is not None:
                return batch
            part = slice(number * 8, number * 8 + 8)
            found = ({"a": X[part, :1], "b": X[part, 1:]}, Y[part])
            return (*found, X[part, 0]) if has_weights else found

    return Pieces()


def dataset(batches: int = -1) -> Any:
    import tensorflow as tf

    whole = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    return whole.take(batches)


def made(keras: Any, x: Any, y: Any = None, model: Any = None, **given: Any) -> Workload:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    if model is None:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return from_compiled(model, x, y, **{"name": "here", "epochs": 2, **given})


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("kind", ["PyDataset", "Dataset"])
def test_batches_are_joined(keras: Any, kind: str, has_weights: bool) -> None:
    import tensorflow as tf

    x: Any = pieces(keras, has_weights=has_weights)
    if kind == "Dataset":
        rows = ({"a": X[:, :1], "b": X[:, 1:]}, Y, X[:, 0])
        x = tf.data.Dataset.from_tensor_slices(rows if has_weights else rows[:2]).batch(8)
    workload = made(keras, x, validation_data=dataset(1))
    assert (workload.batch_size, workload.total_worker_steps, workload.name) == (8, 6, "here")
    data = workload.load_data()
    assert (data.train_inputs["b"] == X[:, 1:]).all()
    assert (data.train_labels == Y).all()
    assert (data.test_inputs == X[:8]).all()
    assert (data.test_labels == Y[:8]).all()
    assert data.test_weights is None
    if has_weights:
        assert (data.train_weights == X[:, 0]).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"x": lambda _: itertools.repeat((X, Y))},
            r"x is a repeat, .*from_generator\(...\).take\(BATCHES\)",
        ),
        ({"x": lambda _: dataset().repeat()}, "x does not know how many batches it has"),
        ({"x": lambda _: dataset(), "validation_data": None}, "give validation_data, another"),
        ({"x": lambda _: dataset(), "validation_data": 3}, "validation_data is a int, and there"),
        ({"x": lambda of: pieces(of, batch=X)}, r"x does not yield \(inputs, labels\), or"),
        ({"x": lambda of: pieces(of, length=0)}, "x does not know how many batches it has"),
        ({}, "x is a ndarray, and there is no y; give arrays x and y"),
        ({"y": Y, "validation_data": None}, "nothing to test with; give validation_data"),
        ({"y": Y, "validation_data": 3}, "validation_data is a int; give a pair"),
        ({"y": Y, "validation_data": (1, 2, 3, 4)}, "validation_data is a tuple; give a pair"),
        ({"y": Y, "sample_weight": Y, "class_weight": {1: 2.0}}, "multiply them yourself"),
        ({"y": Y, "epochs": 0}, "epochs is 0; give a whole number"),
        (
            {"y": Y, "callbacks": lambda of: [of.callbacks.EarlyStopping()]},
            "^workload 'here': callback EarlyStopping cannot be",
        ),
        ({"y": Y, "model": "mine"}, "the model is not compiled; call its compile"),
    ],
)
def test_what_does_not_fit_is_said(keras: Any, given: dict[str, Any], expected: str) -> None:
    built = {name: one(keras) if callable(one) else one for name, one in given.items()}
    with pytest.raises(WorkloadError, match=expected) as error:
        made(keras, **{"x": X, "validation_data": TEST, **built})
    assert "\n" not in str(error.value)


def test_an_endless_pipeline_is_refused_when_it_is_read(keras: Any) -> None:
    workload = made(keras, dataset().repeat(), validation_data=TEST, steps_per_epoch=3)
    with pytest.raises(WorkloadError, match="the x pipeline is endless; leave out repeat"):
        workload.load_data()


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
    from syncswitch.trainers.keras_api.compiled import copies

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


def own_model(keras: Any) -> Any:
    """A model as people write them: it has variables once `fit` has seen a batch."""

    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self, units: int) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(units)

        def call(self, inputs: Any) -> Any:
            return self.layer(inputs)

    model = Own(1)
    model.compile("sgd", "mse")
    return model


def test_a_class_of_ones_own_is_given_as_a_function_that_builds_it(
    keras: Any, from_compiled: Any
) -> None:
    x = np.ones((8, 3), "float32")
    rest: Any = {"y": x[:, :1], "validation_split": 0.5, "name": "own"}
    words = "^Keras cannot copy model 'own.*', a Own [(].*give a function that builds and compiles"
    with pytest.raises(WorkloadError, match=words):
        from_compiled(own_model(keras), x, **rest)
    made = from_compiled(lambda: own_model(keras), x, **rest)
    one, other = made.model(), made.model()
    assert [tuple(value.shape) for value in one.weights] == [(3, 1), (1,)]
    assert not one.compiled
    assert (np.asarray(one.weights[0]) != np.asarray(other.weights[0])).any()
    with pytest.raises(WorkloadError, match="the model is not compiled"):
        from_compiled(lambda: 3, x, **rest)


def test_variables_that_wait_for_the_first_batch_are_made(keras: Any, from_compiled: Any) -> None:
    model = keras.Sequential([keras.layers.Dense(2, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    x = np.ones((8, 3), "float32")
    made = from_compiled(model, x, np.arange(8) % 2, validation_split=0.5)
    assert [tuple(one.shape) for one in made.model().weights] == [(3, 2), (2,)]


@pytest.mark.parametrize("name", ["train_step", "compute_loss"])
def test_a_training_of_ones_own_is_refused(keras: Any, from_compiled: Any, name: str) -> None:
    kind = type("Own", (keras.Model,), {name: lambda *_: {}})
    inputs = keras.Input((3,))
    model = kind(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    x = np.ones((8, 3), "float32")
    with pytest.raises(WorkloadError, match=f"a Own, has its own {name}, which no run would"):
        from_compiled(model, x, x[:, :1], validation_split=0.5)
