from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.cluster.chief.program import Program, Push
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import ModelState
from tests.trainers.jobs import (
    CONSTANT,
    CONSTANT_GRADIENT,
    DENSE,
    BatchLog,
    Gate,
    averaging_model,
    constant_data,
    digits_data,
    first_workers,
    momentum_answer,
    normalized_model,
)

MakeProgram = Callable[..., Program]


@pytest.fixture
def make_program() -> MakeProgram:
    def make(workload: Workload, workers: int = 4, data: Data | None = None) -> Program:
        return Program(workload, data or workload.data(), first_workers(devices, workers))

    return make


def in_parallel(*bodies: Callable[[], Any]) -> list[Any]:
    """Runs each body in a thread and an executor of its own, started together."""
    from syncswitch.trainers.model.tensorflow_api import own_executor

    results: list[Any] = [None] * len(bodies)
    together = threading.Barrier(len(bodies))

    def run(index: int, body: Callable[[], Any]) -> None:
        with own_executor():
            together.wait(30)
            results[index] = body()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def push_concurrently(
    program: Program, workers: int, pushes: int, rate: float = 0.01, momentum: float = 0.9
) -> None:
    """As ASP workers do, without anything between two pushes."""

    def body(worker: int) -> Callable[[], None]:
        def push() -> None:
            for index in range(pushes):
                program.push_update(worker, worker + workers * index, 0, rate, momentum)

        return push

    in_parallel(*(body(worker) for worker in range(workers)))


def fresh(program: Program, seed: int = 0) -> ModelState:
    state = program.form.initial(seed)
    program.load(state)
    return state


def wide_model() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [Input((4 * REPEATS,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )


def wide_data() -> Data:
    data = constant_data(8)
    inputs = np.tile(data.train_inputs, (1, REPEATS))
    return Data(inputs, data.train_labels, inputs, data.test_labels)


# So many parameters that an update takes a while: with four of them two updates hardly ever meet.
REPEATS = 50_000
WIDE = replace(CONSTANT, name="wide", model=wide_model, data=wide_data)


def assert_repeated(values: np.ndarray, expected: np.ndarray) -> None:
    """Every group of four values is `expected`."""
    np.testing.assert_allclose(
        values.reshape(-1, 4), np.broadcast_to(expected, (REPEATS, 4)), rtol=1e-4
    )


class TestNoUpdateIsLost:
    PUSHES = 30

    def test_of_momentum(self, make_program: MakeProgram) -> None:
        program = make_program(WIDE)
        fresh(program)
        push_concurrently(program, 4, self.PUSHES)
        state = program.state()
        parameters, accumulator = momentum_answer([0.01] * (4 * self.PUSHES), 0.9)
        assert state.updates == 4 * self.PUSHES
        assert_repeated(state.parameters, parameters)
        assert_repeated(state.slots, accumulator)

    @pytest.mark.parametrize("name", ["Adam", "AdamW", "Nesterov"])
    def test_of_a_keras_optimizer(self, keras: Any, make_program: MakeProgram, name: str) -> None:
        import tensorflow as tf

        def optimizer() -> Any:
            if name == "Nesterov":
                return keras.optimizers.SGD(0.5, momentum=0.9, nesterov=True)
            return getattr(keras.optimizers, name)(0.5)

        program = make_program(replace(WIDE, optimizer=optimizer))
        fresh(program)
        push_concurrently(program, 4, self.PUSHES)
        state = program.state()

        reference = optimizer()
        reference.learning_rate = 0.01
        variable = keras.Variable(np.ones((4, 1), np.float32))
        gradient = keras.ops.convert_to_tensor(CONSTANT_GRADIENT.reshape(4, 1))
        reference.build([variable])
        apply = tf.function(lambda: reference.apply([gradient], [variable]), autograph=False)
        for _ in range(4 * self.PUSHES):
            apply()
        assert state.updates == 4 * self.PUSHES
        assert program.state().updates == 4 * self.PUSHES
        assert_repeated(state.parameters, variable.numpy().ravel())
        slots = [
            slot.numpy().ravel()
            for slot in reference.variables
            if slot is not reference.iterations and slot is not reference.learning_rate
        ]
        for index, slot in enumerate(slots):
            size = 4 * REPEATS
            assert_repeated(state.slots[index * size : (index + 1) * size], slot)

    def test_of_moving_averages(self, make_program: MakeProgram) -> None:
        """Of one and the same batch k pushes leave m^k of the start, however stale each was."""
        program = make_program(replace(CONSTANT, model=lambda: averaging_model(0.99)))
        fresh(program)
        push_concurrently(program, 4, self.PUSHES, rate=0.0)
        left = 0.99 ** (4 * self.PUSHES)
        expected = [*(1 - left) * CONSTANT_GRADIENT, *[left] * 4]
        np.testing.assert_allclose(program.state().statistics, expected, rtol=1e-3, atol=1e-6)

    def test_and_a_late_push_moves_what_is_there_when_it_arrives(
        self, make_program: MakeProgram
    ) -> None:
        gate = Gate(worker_step=500)
        inputs = np.repeat(np.eye(4, dtype=np.float32), 4, axis=0)
        labels = np.zeros((16, 1), np.float32)
        data = Data(inputs, labels, inputs, labels, transform=gate.transform)
        workload = replace(CONSTANT, model=lambda: averaging_model(0.5))
        program = make_program(workload, 2, data)
        means = []
        for step in (500, *range(8)):
            gate.open.set()
            fresh(program)
            program.push_update(1, step, 0, 0.0, 0.0)
            means.append(2 * program.state().statistics[:4])
        gate.open.clear()
        gate.entered.clear()
        fresh(program)

        def others() -> None:
            assert gate.entered.wait(30)
            for step in range(8):
                program.push_update(1, step, 0, 0.0, 0.0)
            gate.open.set()

        in_parallel(lambda: program.push_update(0, 500, 0, 0.0, 0.0), others)
        expected = np.zeros(4)
        for mean in [*means[1:], means[0]]:
            expected = 0.5 * expected + 0.5 * mean
        np.testing.assert_allclose(program.state().statistics[:4], expected, atol=1e-6)

    def test_of_statistics(self, keras: Any, make_program: MakeProgram) -> None:
        """A layer that counts its calls: each push moves the statistic by 1, exactly."""
        program = make_program(replace(CONSTANT, model=lambda: counting_model(keras)))
        fresh(program)
        push_concurrently(program, 4, self.PUSHES)
        assert program.state().statistics == pytest.approx(4 * self.PUSHES)

    def test_and_a_round_moves_statistics_by_the_mean(
        self, keras: Any, make_program: MakeProgram
    ) -> None:
        program = make_program(replace(CONSTANT, model=lambda: counting_model(keras)))
        fresh(program)
        for index in range(5):
            in_parallel(
                *(
                    lambda worker=worker, first=4 * index: program.push_gradient(
                        worker, first + worker, 0
                    )
                    for worker in range(4)
                )
            )
            program.apply_round(range(4), 0.1, 0.9)
        assert program.state().statistics == pytest.approx(5)


def counting_model(keras: Any) -> Any:
    class Counter(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.calls.assign(self.calls + 1.0)
            return inputs

    return keras.Sequential(
        [
            keras.Input((4,)),
            Counter(),
            keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
        ]
    )


class TestRounds:
    def test_the_mean_is_taken_over_those_who_pushed(self, make_program: MakeProgram) -> None:
        """A stale gradient in the slot of a worker that left must not count."""
        inputs = np.repeat(np.eye(4, dtype=np.float32), 4, axis=0)
        data = Data(inputs, np.zeros((16, 1), np.float32), inputs, np.zeros((16, 1), np.float32))
        program = make_program(CONSTANT, data=data)
        fresh(program)
        gradients = []
        for worker in range(4):
            before = program.state().parameters
            program.push_gradient(worker, worker, 0)
            program.apply_round([worker], 1.0, 0.0)
            gradients.append(before - program.state().parameters)
        assert not np.allclose(gradients[0], gradients[3]), "the batches must differ"
        for worker in range(4):
            program.push_gradient(worker, worker, 0)
        before = program.state().parameters
        program.apply_round([0, 2, 3], 1.0, 0.0)
        change = before - program.state().parameters
        np.testing.assert_allclose(change, np.mean([gradients[w] for w in (0, 2, 3)], 0), atol=1e-6)

    def test_a_push_into_a_slot_changes_nothing_yet(self, make_program: MakeProgram) -> None:
        program = make_program(DENSE)
        state = fresh(program)
        for worker in range(4):
            program.push_gradient(worker, worker, 0)
        after = program.state()
        np.testing.assert_array_equal(after.parameters, state.parameters)
        assert after.updates == 0

    def test_loading_a_state_leaves_nothing_of_the_trial_before(
        self, keras: Any, make_program: MakeProgram
    ) -> None:
        program = make_program(
            replace(DENSE, model=normalized_model, optimizer=lambda: keras.optimizers.Adam()), 1
        )
        start = fresh(program, seed=5)

        def train() -> ModelState:
            for step in range(3):
                program.push_update(0, step, 5, 0.01, 0.0)
            return program.state()

        first = train()
        program.load(start)
        second = train()
        for group in ("parameters", "slots", "statistics"):
            np.testing.assert_array_equal(getattr(first, group), getattr(second, group))
        assert first.updates == second.updates == 3


class TestStaleness:
    def test_of_a_single_worker_is_none(self, make_program: MakeProgram) -> None:
        program = make_program(CONSTANT, 1)
        fresh(program)
        for step in range(5):
            push = program.push_update(0, step, 0, 0.01, 0.9)
            assert (push.pulled_updates, push.pushed_updates) == (step, step + 1)

    def test_of_a_held_worker_is_what_the_others_did_meanwhile(
        self, make_program: MakeProgram
    ) -> None:
        gate = Gate(worker_step=500)
        program = make_program(CONSTANT, 2, replace(constant_data(), transform=gate.transform))
        fresh(program)
        for step in range(3):
            program.push_update(1, step, 0, 0.01, 0.9)

        def others() -> None:
            assert gate.entered.wait(30)
            # The pull is not ordered before the gate; it is there within far less than this.
            threading.Event().wait(0.3)
            for step in range(3, 20):
                program.push_update(1, step, 0, 0.01, 0.9)
            gate.open.set()

        held, _ = in_parallel(lambda: program.push_update(0, 500, 0, 0.01, 0.9), others)
        assert held == Push(held.loss, pulled_updates=3, pushed_updates=21)

    def test_of_a_worker_held_up_between_pull_and_push_is_what_the_others_did(
        self, make_program: MakeProgram
    ) -> None:
        """Its gradient is that of what it pulled, and its update of what is there by then."""
        program = make_program(replace(CONSTANT, model=lambda: averaging_model(0.5)), 2)
        state = fresh(program)
        told: list[float] = []

        def others(busy_seconds: float) -> None:
            told.append(busy_seconds)
            for step in range(7):
                program.push_update(1, step, 0, 0.01, 0.9)

        push = program.push_update(0, 50, 0, 0.01, 0.9, others)
        assert (push.pulled_updates, push.pushed_updates) == (0, 8)
        assert program.state().updates == 8
        left = 0.5**8
        mean = (1 - left) * CONSTANT_GRADIENT
        np.testing.assert_allclose(program.state().statistics, [*mean, *[left] * 4], rtol=1e-5)

        program.load(state)
        push = program.push_gradient(0, 50, 0, others)
        assert (push.pulled_updates, push.pushed_updates) == (0, 7)
        assert min(told) > 0
        assert len(told) == 2

    def test_and_its_gradient_is_the_same_as_of_others(self, make_program: MakeProgram) -> None:
        program = make_program(DENSE, 2)
        ends, losses = [], []
        for hold_up in (None, lambda _: None):
            fresh(program, 5)
            losses.append(program.push_update(0, 3, 5, 0.1, 0.9, hold_up).loss)
            losses.append(program.push_gradient(1, 4, 5, hold_up).loss)
            program.apply_round([1], 0.1, 0.9)
            ends.append(program.state())
        assert losses[:2] == pytest.approx(losses[2:], rel=1e-6)
        np.testing.assert_allclose(ends[0].parameters, ends[1].parameters, atol=1e-6)
        np.testing.assert_allclose(ends[0].slots, ends[1].slots, atol=1e-5)

    def test_of_a_gradient_for_a_round_counts_no_update_of_its_own(
        self, make_program: MakeProgram
    ) -> None:
        program = make_program(CONSTANT, 2)
        fresh(program)
        for index in range(3):
            for worker in range(2):
                push = program.push_gradient(worker, 2 * index + worker, 0)
                assert (push.pulled_updates, push.pushed_updates) == (index, index)
            assert program.apply_round([0, 1], 0.01, 0.9) == index + 1

    def test_a_push_returns_only_after_its_update(self, make_program: MakeProgram) -> None:
        program = make_program(CONSTANT, 2)
        fresh(program)
        for step in range(20):
            push = program.push_update(step % 2, step, 0, 0.01, 0.9)
            assert program.state().updates == push.pushed_updates == step + 1


class TestOrderOfTheData:
    """Inputs are the numbers of the examples."""

    @staticmethod
    def batches(examples: int, batch_size: int, steps: int, seed: int = 3) -> list[list[int]]:
        import tensorflow as tf

        numbers = np.arange(examples, dtype=np.float32).reshape(-1, 1) * np.ones((1, 4), np.float32)
        data = Data(numbers, numbers[:, :1], numbers[:1], numbers[:1, :1])
        function = ModelFunction(replace(CONSTANT, batch_size=batch_size), data)
        arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)
        result = []
        for step in range(steps):
            inputs, labels, _ = function.batch(*arrays, np.int64(step), np.int64(seed))
            np.testing.assert_array_equal(inputs[:, :1], labels)
            result.append([int(value) for value in inputs[:, 0]])
        return result

    @pytest.mark.parametrize(("examples", "batch_size"), [(60, 12), (50, 12), (7, 16), (1, 2)])
    def test_each_epoch_holds_each_example_once(self, examples: int, batch_size: int) -> None:
        epochs = 4
        steps = -(-epochs * examples // batch_size)
        row = list(chain(*self.batches(examples, batch_size, steps)))
        for epoch in range(epochs):
            part = row[epoch * examples : (epoch + 1) * examples]
            assert Counter(part) == Counter(range(examples))

    def test_epochs_and_seeds_have_orders_of_their_own(self) -> None:
        row = self.batches(60, 60, 3)
        assert row[0] != row[1] != row[2] != row[0]
        assert row[0] != self.batches(60, 60, 1, seed=4)[0]
        assert row[0] != sorted(row[0])

    def test_the_same_batches_reach_any_number_of_workers(self, make_program: MakeProgram) -> None:
        numbers = np.arange(60, dtype=np.float32).reshape(-1, 1) * np.ones((1, 4), np.float32)
        logs = []
        for workers in (1, 3):
            log = BatchLog()
            data = Data(
                numbers, numbers[:, :1], numbers[:1], numbers[:1, :1], transform=log.transform
            )
            program = make_program(CONSTANT, workers, data)
            fresh(program)
            log.batches.clear()

            def body(program: Program, worker: int, workers: int) -> Callable[[], None]:
                return lambda: [
                    program.push_update(worker, step, 9, 0.0, 0.0)
                    for step in range(worker, 30, workers)
                ]

            in_parallel(*(body(program, worker, workers) for worker in range(workers)))
            logs.append(log.batches)
        assert logs[0] == logs[1]
        assert Counter(chain(*logs[0].values())) == Counter(dict.fromkeys(range(60), 2))

    def test_the_seed_of_a_transform_is_that_of_the_batch(self) -> None:
        import tensorflow as tf

        def noise(inputs: Any, labels: Any, seed: Any) -> Any:
            return inputs + tf.random.stateless_normal(tf.shape(inputs), seed), labels

        data = replace(constant_data(), transform=noise)
        function = ModelFunction(CONSTANT, data)
        arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)

        def batch(step: int, seed: int) -> Any:
            return function.batch(*arrays, np.int64(step), np.int64(seed))[0].numpy()

        np.testing.assert_array_equal(batch(5, 1), batch(5, 1))
        assert not np.allclose(batch(5, 1), batch(6, 1))
        assert not np.allclose(batch(5, 1), batch(5, 2))


class TestModels:
    def test_regularizers_add_to_the_gradient(self, keras: Any, make_program: MakeProgram) -> None:
        def model() -> Any:
            return keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dense(
                        1,
                        use_bias=False,
                        kernel_initializer="ones",
                        kernel_regularizer=keras.regularizers.L2(0.25),
                    ),
                ]
            )

        program = make_program(replace(CONSTANT, model=model), 2)
        gradient = CONSTANT_GRADIENT + 2 * 0.25 * np.ones(4)
        fresh(program)
        push = program.push_update(0, 0, 0, 0.5, 0.0)
        assert push.loss == pytest.approx(CONSTANT_GRADIENT.sum() + 0.25 * 4)
        np.testing.assert_allclose(program.state().parameters, 1 - 0.5 * gradient, rtol=1e-6)
        fresh(program)
        for worker in range(2):
            program.push_gradient(worker, worker, 0)
        program.apply_round([0, 1], 0.5, 0.0)
        np.testing.assert_allclose(program.state().parameters, 1 - 0.5 * gradient, rtol=1e-6)

    def test_dropout_differs_between_batches_and_repeats_with_a_step(
        self, keras: Any, make_program: MakeProgram
    ) -> None:
        def model() -> Any:
            return keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dropout(0.5),
                    keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
                ]
            )

        program = make_program(replace(CONSTANT, model=model, batch_size=16), 2)
        fresh(program)
        losses = [program.push_gradient(0, step, 1).loss for step in range(8)]
        assert len(set(losses)) > 4
        assert [program.push_gradient(1, step, 1).loss for step in range(8)] == losses
        assert [program.push_gradient(0, step, 2).loss for step in range(8)] != losses
        outputs = program.function.predict(*program.snapshot(), CONSTANT_GRADIENT.reshape(1, 4))
        assert float(outputs[0, 0]) == pytest.approx(CONSTANT_GRADIENT.sum())

    def test_a_functional_model_with_branches_trains(
        self, keras: Any, make_program: MakeProgram
    ) -> None:
        def model() -> Any:
            inputs = keras.Input((4,))
            left = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(inputs)
            right = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs)
            return keras.Model(inputs, keras.layers.Add()([left, right]))

        program = make_program(replace(CONSTANT, model=model), 1)
        fresh(program)
        program.push_update(0, 0, 0, 1.0, 0.0)
        expected = np.concatenate([1 - CONSTANT_GRADIENT, -CONSTANT_GRADIENT])
        np.testing.assert_allclose(program.state().parameters, expected, rtol=1e-6)

    @pytest.mark.parametrize("has_mode", [True, False])
    def test_a_subclassed_model_trains(
        self, keras: Any, make_program: MakeProgram, has_mode: bool
    ) -> None:
        class Plain(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

            def call(self, inputs: Any) -> Any:
                return 2.0 * self.dense(inputs)

        class Doubled(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

            def call(self, inputs: Any, training: bool = False) -> Any:
                return 2.0 * self.dense(inputs)

        def model() -> Any:
            built = Doubled() if has_mode else Plain()
            built(np.zeros((1, 4), np.float32))
            return built

        program = make_program(replace(CONSTANT, model=model), 1)
        fresh(program)
        program.push_update(0, 0, 0, 1.0, 0.0)
        np.testing.assert_allclose(program.state().parameters, 1 - 2 * CONSTANT_GRADIENT)

    def test_frozen_layers_stay_as_they_are(self, keras: Any, make_program: MakeProgram) -> None:
        def model() -> Any:
            built = keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dense(4, use_bias=False, kernel_initializer="identity"),
                    keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
                ]
            )
            built.layers[0].trainable = False
            return built

        program = make_program(replace(CONSTANT, model=model), 1)
        fresh(program)
        program.push_update(0, 0, 0, 1.0, 0.0)
        np.testing.assert_array_equal(program.state().statistics, np.eye(4).ravel())
        np.testing.assert_allclose(program.state().parameters, 1 - CONSTANT_GRADIENT)

    def test_mixed_precision_keeps_float32_parameters(
        self, keras: Any, make_program: MakeProgram
    ) -> None:
        def model() -> Any:
            return keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dense(
                        1, use_bias=False, kernel_initializer="ones", dtype="mixed_bfloat16"
                    ),
                ]
            )

        program = make_program(replace(CONSTANT, model=model), 1)
        fresh(program)
        program.push_update(0, 0, 0, 1.0, 0.0)
        np.testing.assert_allclose(program.state().parameters, 1 - CONSTANT_GRADIENT, rtol=1e-2)


def five_outputs(keras: Any) -> Any:
    return keras.Sequential(
        [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(5, "softmax")]
    )


def double_precision(keras: Any) -> Any:
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Conv2D(2, 3, dtype="float64")])


def built_in_name_alone(keras: Any) -> Any:
    class Mine(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(10)

        def build(self, shape: Any) -> None:
            self.built = True

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    model = Mine()
    model.build((None, 8, 8, 1))
    return model


def two_inputs(keras: Any) -> Any:
    inputs = [keras.Input((8, 8, 1)), keras.Input((8, 8, 1))]
    flat = keras.layers.Flatten()(keras.layers.Add()(inputs))
    return keras.Model(inputs, keras.layers.Dense(10, activation="softmax")(flat))


def unbuilt(keras: Any) -> Any:
    return keras.Sequential([keras.layers.Dense(10)])


def other_input(keras: Any) -> Any:
    return keras.Sequential([keras.Input((3, 8)), keras.layers.Dense(10, "softmax")])


class TestWhatDoesNotFit:
    @staticmethod
    def message(make_program: MakeProgram, **changes: Any) -> str:
        with pytest.raises(WorkloadError) as error:
            make_program(replace(DENSE, **changes), 1)
        text = str(error.value)
        assert "\n" not in text
        return text

    @pytest.mark.parametrize(
        ("model", "words"),
        [
            (double_precision, "float64"),
            (unbuilt, "Input"),
            (built_in_name_alone, "call it once on a batch before you return it"),
            (two_inputs, "the model has 2 inputs; give it one Input"),
            (other_input, "do not fit together"),
            pytest.param(
                five_outputs,
                "do not fit together",
            ),
        ],
    )
    def test_a_model_is_refused(
        self, keras: Any, make_program: MakeProgram, model: Any, words: str
    ) -> None:
        assert words in self.message(make_program, model=lambda: model(keras))

    def test_batches_for_examples_are_refused(self, make_program: MakeProgram) -> None:
        data = digits_data()
        inputs, labels = data.train_inputs[:128], data.train_labels[:128]
        arrays = inputs.reshape(4, 32, 8, 8, 1), labels.reshape(4, 32)
        message = self.message(make_program, data=lambda: Data(*arrays, *arrays))
        assert (
            "an example of data() has the shape (32, 8, 8, 1), and the model takes (8, 8, 1): it is"
            " a batch of 32; leave out batch()" in message
        )

    @pytest.mark.parametrize("loss", ["categorical_crossentropy", "mse"])
    def test_a_loss_for_other_labels_is_refused(self, make_program: MakeProgram, loss: str) -> None:
        assert "do not fit together" in self.message(make_program, loss=loss)

    def test_an_unknown_loss_is_refused(self, make_program: MakeProgram) -> None:
        assert "'nonsense'" in self.message(make_program, loss="nonsense")

    def test_a_loss_given_for_the_function_that_builds_it_is_refused(
        self, keras: Any, make_program: MakeProgram
    ) -> None:
        loss = keras.losses.sparse_categorical_crossentropy
        assert "loss" in self.message(make_program, loss=loss)

    def test_what_is_no_model_is_refused(self, make_program: MakeProgram) -> None:
        assert "model" in self.message(make_program, model=lambda: None)

    def test_what_is_no_optimizer_is_refused(self, make_program: MakeProgram) -> None:
        assert "str" in self.message(make_program, optimizer=lambda: "adam")

    def test_a_schedule_of_the_optimizer_is_refused(
        self, keras: Any, make_program: MakeProgram
    ) -> None:
        schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
        text = self.message(make_program, optimizer=lambda: keras.optimizers.Adam(schedule))
        assert "learning_rate that is a function" in text
