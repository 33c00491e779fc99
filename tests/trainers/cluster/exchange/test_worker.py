"""One worker: its steps, its replica, and its GPU, for which a logical CPU stands in."""

from __future__ import annotations

import gc
import textwrap
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.exchange import worker as workers
from syncswitch.trainers.cluster.exchange.parameter_server import ParameterServer
from syncswitch.trainers.cluster.exchange.plans import Caller, Hold, Sizes, Task
from syncswitch.trainers.cluster.exchange.vectors import aligned, momentum_update
from syncswitch.trainers.cluster.exchange.worker import Worker, compiled_or, step_of
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.model.feed import HeldFeed, feed_of
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.protocols import Exchange
from tests.trainers.jobs import BRIEF, CONSTANT, DENSE, normalized_model
from tests.warm_program import run_code

NORMALIZED = replace(BRIEF, name="normalized", model=normalized_model)
SEED = 5


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(NORMALIZED, NORMALIZED.load_data())


def new_worker(program: Program, **fields: Any) -> Worker:
    return Worker(
        program.sizes,
        program.step,
        feed_of(program.data.train, program.function.batch_size),
        aligned(program.sizes.model),
        program.decay,
        program.new_update,
        **fields,
    )


@pytest.fixture
def server(program: Program) -> ParameterServer:
    sizes = program.sizes
    made = ParameterServer(
        sizes, 2, program.new_update(), program.decay, lambda: aligned(sizes.model)
    )
    made.load(program.form.initial(SEED))
    return made


def joined(program: Program, server: ParameterServer, number: int = 0, **fields: Any) -> Worker:
    made = new_worker(program, **fields)
    made.join(Caller(number, 0), server)
    return made


def task(number: int, exchange: Exchange, rate: float = 0.1, hold: Hold | None = None) -> Task:
    return Task(number, number, SEED, exchange, rate, 0.9, hold or Hold())


def model_of(worker: Worker, program: Program) -> Vector:
    return worker.fetch("model", 0, program.sizes.model)


class TestSharedParameters:
    def test_a_delay_is_between_its_gradient_and_its_push(
        self, program: Program, server: ParameterServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Updates meanwhile make the gradient stale."""
        worker, other = joined(program, server), joined(program, server, 1)
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            other.step(task(len(slept), Exchange.PUSH))

        monkeypatch.setattr(workers.time, "sleep", sleep)
        push = worker.step(task(9, Exchange.PUSH, hold=Hold(seconds=3.0)))
        assert slept == [3.0]
        assert (push.pulled_updates, push.pushed_updates) == (0, 2)
        worker.step(task(9, Exchange.ROUND, hold=Hold(slowdown=3.0)))
        assert 0.0 < slept[1] < 100.0

    def test_who_waits_for_a_core_has_not_pulled(
        self, program: Program, server: ParameterServer
    ) -> None:
        cores = threading.Semaphore(1)
        worker = joined(program, server, computing=cores)
        with cores:
            thread = threading.Thread(target=worker.step, args=(task(1, Exchange.PUSH),))
            thread.start()
            thread.join(0.2)
            assert server._leases == {}
        thread.join(20)
        assert server.mark() == [1, -1]


def plain_workers(models: Sequence[Vector], statistics: int) -> list[Worker]:
    """Returns workers that only hold these replicas."""
    size = models[0].size
    sizes = Sizes(size - statistics, statistics, 1)
    made = [
        Worker(sizes, _no_step, ([], []), aligned(size), np.zeros(0), lambda: momentum_update)
        for _ in models
    ]
    for worker, model in zip(made, models, strict=True):
        parameters, statistics_of = np.split(model, [sizes.parameters])
        worker.take(ModelState(parameters, np.full(1, model[0]), statistics_of))
    return made


def _no_step(*_: Any) -> Sequence[Any]:
    raise AssertionError


class TestAverage:
    @pytest.mark.parametrize(("count", "size"), [(2, 1), (3, 2), (3, 1000), (5, 4), (1, 3)])
    def test_is_the_mean_to_the_last_bit_and_the_same_for_all(self, count: int, size: int) -> None:
        random = np.random.default_rng(0)
        models = [random.standard_normal(size, np.float32) for _ in range(count)]
        group, asked = plain_workers(models, size // 2), list[int]()
        expected = np.mean(models, axis=0)

        class Peer:
            def __init__(self, worker: Worker) -> None:
                self._worker = worker

            def fetch(self, what: str, start: int, stop: int) -> Vector:
                asked.append(stop - start)
                return self._worker.fetch(what, start, stop)

        for call in ("reduce", "gather"):
            for position, worker in reversed(list(enumerate(group))):
                getattr(worker, call)(position, list(map(Peer, group)))
            for worker, model in zip(group, models, strict=True):
                np.testing.assert_array_equal(worker.fetch("model", 0, size), model)
        assert sum(asked) == (2 * count - 1) * size, "each asks for the pieces that it needs alone"
        for worker, model in zip(group, models, strict=True):
            worker.commit()
            np.testing.assert_array_equal(worker.fetch("model", 0, size), expected)
            assert worker.fetch("slots", 0, 1) == model[:1], "slots stay local"


def test_many_replicas_at_once_do_not_touch_one_another(keras: Any) -> None:
    """Keras' optimizers have internal state, so each replica has an optimizer of its own."""
    workload = replace(NORMALIZED, optimizer=lambda: keras.optimizers.Adam())
    program = Program(workload, workload.load_data())
    start, team = program.form.initial(SEED), [new_worker(program) for _ in range(3)]

    def train(number: int) -> Vector:
        team[number].take(start)
        for step in range(15):
            team[number].step(task(3 * step + number, Exchange.REPLICA, 0.01))
        return model_of(team[number], program)

    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(train, range(3)))
    np.testing.assert_array_equal(together, list(map(train, range(3))))
    assert not np.allclose(together[0], together[1])


def test_a_worker_that_sees_no_gpu_says_what_to_do() -> None:
    program = Program(CONSTANT, CONSTANT.load_data(), has_gpus=True)
    with pytest.raises(UserError, match="this worker sees no GPU; look at its driver"):
        step_of(program.worker_plan, HeldFeed(()))


def test_the_compiled_step_computes_the_same() -> None:
    program = Program(DENSE, DENSE.load_data(), has_gpus=True)
    plan = program.worker_plan
    # As in the process of a worker, nothing is left of the function that was traced.
    gc.collect()
    plain = plan.step.restored()
    feed = feed_of(program.data.train, plan.batch_size)
    compiled = compiled_or(plain, plan, feed)
    assert compiled is not plain
    model = program.form.initial(3).parameters
    for step in range(3):
        arguments = model, *feed.rows(step, 1), np.array([step, 1])
        for mine, yours in zip(plain(*arguments), compiled(*arguments), strict=True):
            np.testing.assert_allclose(mine, yours, rtol=1e-4, atol=1e-6)


def test_what_xla_cannot_compile_is_computed_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def loss() -> Any:
        import tensorflow as tf

        # Strings are no numbers, and XLA knows no others.
        return lambda labels, outputs: outputs * tf.strings.to_number(tf.strings.as_string(labels))

    program = Program(replace(CONSTANT, loss=loss), CONSTANT.load_data(), has_gpus=True)
    plan = program.worker_plan
    plain = plan.step.restored()
    assert compiled_or(plain, plan, feed_of(program.data.train, plan.batch_size)) is plain
    assert "the step is not compiled" in caplog.text


def test_batches_are_made_beside_the_gpu_and_that_changes_no_number() -> None:
    code = """
        import numpy as np, tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        from syncswitch.trainers.cluster.members.program import Program
        from tests.trainers.jobs import DENSE
        data = DENSE.load_data()
        found = []
        for has_gpus, device in ((False, "/CPU:0"), (True, "/CPU:1")):
            program = Program(DENSE, data, has_gpus=has_gpus)
            step = program.worker_plan.step.restored()
            model = program.form.initial(1).parameters
            with tf.device(device):
                outputs = step(model, data.train_inputs, data.train_labels, np.array([5, 1]))
            assert all(one.device.endswith(device[1:]) for one in outputs), outputs
            found.append([one.numpy() for one in outputs])
        made = {
            operation.type: operation.device for operation in program.step.graph.get_operations()
        }
        assert made["RandomIndexShuffle"] == made["GatherV2"] == "/device:CPU:0", made
        assert made["MatMul"] == "", made
        for mine, yours in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, yours)
        print("the same")
    """
    result = run_code(textwrap.dedent(code), folder=Path(__file__).parents[4])
    assert result.stdout.strip() == "the same", result.stderr
