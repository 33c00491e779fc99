"""A training equals Keras' `fit`, or is refused in one line: a table of Keras' features.

One worker with BSP, a batch of all examples, from the same start; and four workers, whose batches
together are these examples, at a quarter of the rate.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.keras_parts import metric_of
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.keras_api.from_compiled import from_compiled
from syncswitch.trainers.model.state import read_checkpoint, restored_model
from syncswitch.trainers.simulated.trainer import SimulatedTrainer
from syncswitch.trainers.trainer import Trainer
from tests.failing import fails
from tests.records import changed
from tests.trainers.simulated.clusters import VARIED

N, STEPS, RATE = 64, 6, 0.05
WORKERS = 4
X = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
IDS = np.random.default_rng(1).integers(0, 5, (N, 7)).astype(np.int32)
WEIGHTS = np.linspace(0, 2, N).astype(np.float32)
PAGE = Path(__file__).parents[3] / "docs/howto/new_workload.md"


def layers() -> Any:
    from keras import layers as of_keras

    return of_keras


def optimizers() -> Any:
    from keras import optimizers as of_keras

    return of_keras


Make = Callable[[], Any]


def softmax(**named: Any) -> Any:
    return layers().Dense(2, activation="softmax", **named)


def net(*makers: Make, shape: tuple[int, ...] = (6,)) -> Make:
    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input(shape), *(make() for make in makers)])

    return build


def dense(**named: Any) -> Make:
    return lambda: net(partial(softmax, **named))()


def masked() -> Any:
    embedding = partial(layers().Embedding, 5, 4, mask_zero=True)
    return net(embedding, partial(layers().LSTM, 5, return_sequences=True), softmax, shape=(7,))()


def two_outputs() -> Any:
    import keras

    given = keras.Input((6,))
    kind = layers().Dense(2, activation="softmax", name="kind")(given)
    price = layers().Dense(1, name="price", kernel_regularizer="l2")(given)
    return keras.Model(given, {"kind": kind, "price": price})


@cache
def counting(kind: str) -> Any:
    import keras

    class Counting(keras.layers.Layer):
        """Lets more of its input through with each batch, once it has been told to begin."""

        def build(self, shape: Any) -> None:
            shape = (2,)
            self.count = self.add_weight(
                shape=shape, dtype=kind, initializer="zeros", trainable=False, name="count"
            )
            self.begun = self.add_weight(
                shape=(), dtype="bool", initializer="zeros", trainable=False, name="begun"
            )

        def call(self, x: Any, training: bool = False) -> Any:
            if training:
                step = keras.ops.cast([1, 3], kind) * keras.ops.cast(self.begun, kind)
                self.count.assign(self.count + step)
                self.begun.assign(True)
            return x * (1 + keras.ops.cast(self.count[0], "float32")) / 8

    return Counting


def made(kind: Callable[[str], Any], name: str) -> Any:
    return kind(name)()


@cache
def assigning(name: str) -> Any:
    import keras

    class Assigning(keras.layers.Layer):
        """Assigns a variable in its call, and computes with it."""

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(
                shape=(6,), initializer="ones", trainable=name == "trained", name="scale"
            )

        def call(self, x: Any, training: bool = False) -> Any:
            if training and name == "trained":
                self.scale.assign(self.scale / keras.ops.norm(self.scale))
            elif training:
                self.scale.assign(0.9 * self.scale + 0.1 * keras.ops.std(x, axis=0))
            return x / self.scale

    return Assigning


def reduced(reduction: str) -> Any:
    from keras import losses

    return losses.SparseCategoricalCrossentropy(reduction=reduction)


def squared(labels: Any, outputs: Any) -> Any:
    """A loss function, of labels that lack a dimension of the outputs."""
    return (labels - outputs) ** 2


@dataclass(frozen=True)
class Case:
    """A feature: its row in the documentation, and a job that has it.

    `four` is by how much the rate of `fit` has to be multiplied for what four workers do, where
    that is tried: one case of each kind of joining what they computed.
    """

    row: str
    model: Make = field(default_factory=lambda: dense())
    optimizer: Callable[..., Any] = lambda rate: optimizers().SGD(rate)
    loss: Any = "sparse_categorical_crossentropy"
    compile: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)
    x: Any = field(default_factory=lambda: X)
    y: Any = field(default_factory=lambda: Y)
    weights: Any = None  # of the tests
    metric: str | None = "loss"
    four: float | None = None
    tolerance: float = 1e-6

    def compiled(self, rate: float = RATE) -> Any:
        model = self.model()
        built = self.loss() if isinstance(self.loss, partial) else self.loss
        model.compile(self.optimizer(rate), built, **self.compile)
        return model


def of(name: str, **named: Any) -> Callable[..., Any]:
    return lambda rate: getattr(optimizers(), name)(rate, **named)


def excluding(given: str) -> Callable[..., Any]:
    def build(rate: float) -> Any:
        built = optimizers().AdamW(rate, weight_decay=0.5)
        built.exclude_from_weight_decay(var_names=[given])
        return built

    return build


SEQUENCE_LABELS = IDS % 2


def limited() -> Any:
    """A model with each constraint."""
    limits = ("non_neg", "unit_norm", "max_norm", "min_max_norm")
    each = (partial(layers().Dense, 6, kernel_constraint=limit) for limit in limits)
    return net(*each, softmax)()


def counters() -> Any:
    """A model with a counter of each type."""
    kinds = ("int32", "int64", "uint8", "float32", "bfloat16")
    return net(*(partial(made, counting, kind) for kind in kinds), softmax)()


EQUAL = {
    "momentum": Case("every optimizer", optimizer=of("SGD", momentum=0.9), four=4.0),
    **{
        f"optimizer {name} {named}": Case("every optimizer", optimizer=of(name, **named))
        for name, named in [
            ("SGD", {"momentum": 0.9, "nesterov": True}),
            ("RMSprop", {"momentum": 0.5, "centered": True}),
            ("Adam", {"amsgrad": True}),
            ("AdamW", {}),
            ("Adadelta", {}),
            ("Adagrad", {}),
            ("Adamax", {}),
            ("Adafactor", {}),
            ("Nadam", {}),
            ("Ftrl", {}),
            ("Lion", {}),
            ("Lamb", {}),
            ("Muon", {}),
            ("SGD", {"loss_scale_factor": 8.0}),
        ]
    },
    "constraints of momentum": Case("constraints", limited, of("SGD", momentum=0.9), four=4.0),
    "constraints of Adam": Case("constraints", limited, of("Adam")),
    "averages": Case("`use_ema`", optimizer=of("SGD", use_ema=True, ema_momentum=0.9)),
    "averages overwrite": Case(
        "`use_ema`",
        dense(kernel_constraint="non_neg"),
        of("SGD", momentum=0.9, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=4),
        four=4.0,
    ),
    "accumulated": Case(
        "`gradient_accumulation_steps`",
        optimizer=of("Adam", gradient_accumulation_steps=3),
        four=4.0,
    ),
    **{
        f"clipping {name}": Case("clipping", optimizer=of("SGD", **{name: 0.01}), four=four)
        for name, four in [("clipnorm", None), ("clipvalue", None), ("global_clipnorm", 4.0)]
    },
    "schedule": Case(
        "learning-rate schedules",
        optimizer=lambda rate: optimizers().Adam(
            optimizers().schedules.ExponentialDecay(rate, 2, 0.5)
        ),
    ),
    "excluded by name": Case("`exclude_from_weight_decay`", optimizer=excluding("bias")),
    "counters": Case("whole-number and bool state of layers", counters, four=4.0),
    "moving statistic that is read": Case(
        "state that a layer assigns and reads", net(partial(made, assigning, "statistic"), softmax)
    ),
    "batch normalization": Case(
        "BatchNorm", net(lambda: layers().BatchNormalization(momentum=0.7), softmax)
    ),
    "reduction none": Case("reductions of a loss", loss=partial(reduced, "none"), four=1.0),
    "weighted mean": Case(
        "reductions of a loss",
        loss=partial(reduced, "mean_with_sample_weight"),
        fit={"sample_weight": WEIGHTS},
        weights=WEIGHTS,
    ),
    **{
        f"class weights {name}": Case(
            "class and sample weights",
            loss=partial(reduced, name),
            fit={"class_weight": {0: 1.0, 1: 3.0}},
            four=four,
        )
        for name, four in [("sum", 1.0), ("mean_with_sample_weight", None)]
    },
    "class weights of one-hot labels": Case(
        "class and sample weights",
        loss="categorical_crossentropy",
        y=np.eye(2, dtype=np.float32)[Y],
        fit={"class_weight": {1: 3.0}},
    ),
    "weights of examples and tests": Case(
        "class and sample weights", fit={"sample_weight": WEIGHTS}, weights=WEIGHTS, four=4.0
    ),
    "masks and weights": Case(
        "masks",
        masked,
        x=IDS,
        y=SEQUENCE_LABELS,
        fit={"sample_weight": np.repeat(WEIGHTS[:, None], 7, axis=1)},
    ),
    "loss function": Case(
        "loss functions of your own", lambda: net(lambda: layers().Dense(1))(), loss=squared
    ),
    "regularizers": Case(
        "regularizers",
        dense(**{f"{name}_regularizer": "l2" for name in ("kernel", "bias", "activity")}),
        four=4.0,
    ),
    "mixed precision": Case(
        "`mixed_bfloat16`", dense(dtype="mixed_bfloat16"), metric=None, tolerance=1e-3
    ),
    "outputs": Case(
        "several outputs",
        two_outputs,
        loss={"kind": "sparse_categorical_crossentropy", "price": "mse"},
        compile={"loss_weights": {"kind": 1.0, "price": 0.3}},
        y={"kind": Y, "price": X[:, :1]},
        four=4.0,
    ),
    **{
        f"metric {name}": Case("metrics", compile={"metrics": [name]}, metric=None)
        for name in ("acc", "sparse_categorical_crossentropy")
    },
    "weighted metric": Case(
        "metrics", compile={"weighted_metrics": ["accuracy"]}, metric=None, weights=WEIGHTS
    ),
}


def our_run(case: Case, model: Any, workers: int) -> tuple[list[Any], float]:
    tests = (case.x, case.y) if case.weights is None else (case.x, case.y, case.weights)
    steps = STEPS * workers
    workload = from_compiled(
        model,
        case.x,
        case.y,
        validation_data=tests,
        batch_size=N // workers,
        total_worker_steps=steps,
        evaluation_interval_worker_steps=steps,
        is_pretrained=True,
        metric=case.metric,
        name="job",
        data_set="made up",
        **case.fit,
    )
    identity = workload_identity(workload, workers, "bsp", "asp")
    with tempfile.TemporaryDirectory() as folder, ClusterTrainer(workload, workers) as trainer:
        spec = TrialSpec(
            identity, 100.0, 0, checkpoint_percents=(100.0,), checkpoint_directory=Path(folder)
        )
        record = trainer.train(spec, None)
        trained = restored_model(workload, read_checkpoint(record.checkpoints[100.0]))
    return trained.get_weights(), metric_of(workload).value(record.final_accuracy)


def keras_run(case: Case, start: Sequence[Any], rate: float) -> tuple[list[Any], dict[str, float]]:
    model = case.compiled(rate)
    model.run_eagerly = True  # to trace a function takes longer than its few calls
    model.set_weights(start)
    model.fit(case.x, case.y, batch_size=N, epochs=STEPS, shuffle=False, verbose=0, **case.fit)
    tested = model.evaluate(
        case.x, case.y, sample_weight=case.weights, batch_size=N, verbose=0, return_dict=True
    )
    return model.get_weights(), tested


def assert_equal(one: Sequence[Any], other: Sequence[Any], tolerance: float) -> None:
    for mine, expected in zip(one, other, strict=True):
        assert mine.dtype == expected.dtype
        np.testing.assert_allclose(
            mine.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("name", EQUAL)
def test_workers_with_the_batch_of_all_are_fit(keras: Any, name: str) -> None:
    """Where several add nothing to what one shows, it is one."""
    case = EQUAL[name]
    workers, times, tolerance = 1, 1.0, case.tolerance
    if case.four:
        # Sums of four parts are rounded in another order.
        workers, times, tolerance = WORKERS, case.four, 5 * case.tolerance
    model = case.compiled()
    start = model.get_weights()
    mine, value = our_run(case, model, workers)
    expected, tested = keras_run(case, start, times * RATE)
    assert_equal(mine, expected, tolerance)
    names = [one for one in tested if one != "loss"]
    wanted = "loss" if case.metric else names[0] if names else None
    if wanted:
        # Each sees a part of the batch, and its sum is so much less.
        parts = workers if name == "class weights sum" else 1
        assert parts * value == pytest.approx(tested[wanted], abs=1e-6 * workers)


def cluster_of(workload: Workload) -> Trainer:
    return ClusterTrainer(workload, WORKERS)


def simulated(workload: Workload) -> Trainer:
    return SimulatedTrainer(workload, WORKERS, VARIED)


def both_halves(
    case: Case, kind: Callable[[Workload], Trainer], second: str, folder: Path
) -> tuple[Any, float]:
    """The model after BSP and another protocol with four workers, and the loss of its last test."""
    workload = from_compiled(
        case.compiled(),
        case.x,
        case.y,
        validation_data=(case.x, case.y),
        batch_size=N // WORKERS,
        total_worker_steps=10 * WORKERS,
        evaluation_interval_worker_steps=10 * WORKERS,
        metric="loss",
        name="job",
        data_set="made up",
    )
    identity = workload_identity(workload, WORKERS, "bsp", second)
    if kind is simulated:
        identity = changed(identity, simulated_cluster=VARIED.digest)
    with kind(workload) as trainer:
        spec = TrialSpec(
            identity, 50.0, 0, checkpoint_percents=(100.0,), checkpoint_directory=folder
        )
        record = trainer.train(spec, None)
    checkpoint = read_checkpoint(record.checkpoints[100.0])
    return restored_model(workload, checkpoint), metric_of(workload).value(record.final_accuracy)


@pytest.mark.parametrize("second", ["asp", "local-sgd:2"])
@pytest.mark.parametrize("kind", [cluster_of, simulated])
class TestSeveralWorkers:
    def test_constraints_hold_and_counters_count_updates(
        self, keras: Any, tmp_path: Path, kind: Any, second: str
    ) -> None:
        # The built-in SGD and optimizers of Keras are projected in different places.
        optimizer = of("SGD", momentum=0.9) if kind is cluster_of else of("Adam")
        limited = partial(softmax, kernel_constraint="unit_norm")
        case = Case("", net(partial(made, counting, "int32"), limited), optimizer)
        model, _ = both_halves(case, kind, second, tmp_path)
        kernel = model.layers[1].kernel.numpy()
        np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1, rtol=1e-4)
        once, thrice = model.layers[0].count.numpy()
        # 5 rounds of which the first only begins; then each push, or the 5 steps of a replica.
        assert once == (4 + (5 * WORKERS if second == "asp" else 5))
        assert thrice == 3 * once

    def test_what_is_tested_and_saved_are_the_averages(
        self, keras: Any, tmp_path: Path, kind: Any, second: str
    ) -> None:
        case = EQUAL["averages"]
        model, tested = both_halves(case, kind, second, tmp_path)
        model.compile(loss=case.loss)
        assert tested == pytest.approx(model.evaluate(case.x, case.y, verbose=0), abs=1e-5)


def recurrent() -> Any:
    import keras

    lstm = layers().LSTM(5, stateful=True)
    return keras.Sequential([keras.Input((7, 2), batch_size=N), lstm, softmax()])


def fixed_batch() -> Any:
    import keras

    return keras.Sequential([keras.Input((6,), batch_size=N), softmax()])


def normalized() -> Any:
    return net(lambda: layers().SpectralNormalization(layers().Dense(8)), softmax)()


def choosing(rate: float) -> Any:
    built = optimizers().AdamW(rate)
    built.exclude_from_weight_decay(var_list=[dense()().weights[0]])
    return built


def scaled(rate: float) -> Any:
    return optimizers().LossScaleOptimizer(optimizers().SGD(rate))


def idle() -> Any:
    import keras

    given = keras.Input((6,))
    of_all = layers().Dense(2, activation="softmax", name="kind")(given)
    return keras.Model(given, {"kind": of_all, "idle": layers().Dense(2, name="idle")(given)})


def divided(rate: float) -> Any:
    of_all = optimizers()
    return of_all.MultiOptimizer(of_all.OptimizerMap(of_all.SGD(rate)))


def forgetful(rate: float) -> Any:
    class Forgetful(optimizers().SGD):  # type: ignore[misc]  # Keras has no types
        """Has a setting that its configuration lacks."""

        def __init__(self, *given: Any, power: float = 1.0, **named: Any) -> None:
            super().__init__(*given, **named)
            self.power = power

    return Forgetful(rate, power=2.0)


ASSIGNED = "layers that assign what they train"
REFUSED = {
    "spectral": (Case(ASSIGNED, normalized), "kernel' in its call, which is a trained variable"),
    "custom": (
        Case(ASSIGNED, net(partial(made, assigning, "trained"), softmax)),
        "scale' in its call, which is a trained variable",
    ),
    "stateful": (Case("stateful layers", recurrent), "'lstm.*' is stateful"),
    "fixed batch": (Case("fixed batches", fixed_batch), "has a fixed batch of 64"),
    "scaled": (Case("float16, `LossScaleOptimizer`", optimizer=scaled), "loss is not scaled"),
    "float16": (
        Case("float16, `LossScaleOptimizer`", dense(dtype="mixed_float16")),
        "computes in float16",
    ),
    "divided": (Case("`MultiOptimizer`", optimizer=divided), "learning rates of their own"),
    "lambda": (
        Case(
            "learning rates that are functions", optimizer=lambda _: optimizers().SGD(lambda: 1.0)
        ),
        "whose learning rate is a function; give a number or a Keras schedule",
    ),
    "of another model": (
        Case("`exclude_from_weight_decay`", optimizer=choosing),
        "excludes variables from weight decay that the model does not train",
    ),
    "idle": (
        Case(
            "trained variables without a part in the loss",
            idle,
            of("AdamW"),
            {"kind": "sparse_categorical_crossentropy", "idle": None},
            y={"kind": Y, "idle": Y},
            metric=None,
        ),
        "'idle/kernel' has no part in the loss",
    ),
    "forgetful": (
        Case("settings beside an optimizer's `get_config()`", optimizer=forgetful),
        r"has power 2.0, and get_config\(\) builds one with 1.0",
    ),
    "copies": (
        Case("`ScheduleFreeAdamW`", optimizer=of("ScheduleFreeAdamW")),
        "begins with copies of the values that it trains",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_be_fit_is_refused_in_one_line(keras: Any, name: str) -> None:
    case, expected = REFUSED[name]
    with fails("workload-unsuitable", expected) as error:
        our_run(
            replace(case, x=np.zeros((N, 7, 2))) if "stateful" in case.row else case,
            case.compiled(),
            1,
        )
    assert "\n" not in str(error.value)


def test_the_page_has_the_same_features() -> None:
    rows = re.findall(r"^\| (.+?) \| (equal|refused)", PAGE.read_text(), re.MULTILINE)
    known = {(case.row, "equal") for case in EQUAL.values()}
    refused = {(case.row, "refused") for case, _ in REFUSED.values()}
    # What is equal but for a variant says so behind it.
    assert set(rows) == known | {one for one in refused if (one[0], "equal") not in known}
