from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.cluster.chief.program import Program
from syncswitch.trainers.cluster.chief.replicas import Replicas
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import ModelState
from tests.trainers.cluster.chief.test_program import in_parallel
from tests.trainers.jobs import DENSE, first_workers, idle_model, normalized_model

MakeProgram = Callable[..., Program]

NORMALIZED = replace(DENSE, name="normalized", model=normalized_model)


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(NORMALIZED, NORMALIZED.data(), first_workers(devices, 3))


@pytest.fixture
def replicas(program: Program) -> Replicas:
    """Three, with one state for all."""
    program.replicas.scatter(program.form.initial(5), range(3))
    return program.replicas


def one_of(replicas: Replicas, worker: int) -> list[np.ndarray]:
    """Parameters, statistics and slots of a worker."""
    return np.split(replicas._variables[worker].numpy(), np.cumsum(replicas._sizes)[:-1])


def assert_equal(one: ModelState, other: ModelState) -> None:
    for group in ("parameters", "slots", "statistics"):
        np.testing.assert_array_equal(getattr(one, group), getattr(other, group))
    assert one.updates == other.updates


def test_what_is_scattered_is_the_mean_and_nothing_of_before_is_left(
    program: Program, replicas: Replicas
) -> None:
    replicas.step(0, 3, 5, 0.1, 0.9)
    state = replace(program.form.initial(6), updates=17)
    replicas.scatter(state, range(3))
    found = replicas.mean(range(3))
    np.testing.assert_allclose(found.parameters, state.parameters, rtol=1e-6)
    np.testing.assert_array_equal(found.slots, 0)
    assert found.updates == 17


def test_a_step_is_that_of_the_parameter_server(program: Program, replicas: Replicas) -> None:
    start = program.form.initial(5)
    program.load(start)
    for step in range(4):
        push = program.push_update(1, step, 5, 0.1, 0.9)
        assert replicas.step(1, step, 5, 0.1, 0.9) == pytest.approx(push.loss, rel=1e-5)
    state = program.state()
    parameters, statistics, slots = one_of(replicas, 1)
    np.testing.assert_allclose(parameters, state.parameters, atol=1e-5)
    np.testing.assert_allclose(statistics, state.statistics, atol=1e-5)
    np.testing.assert_allclose(slots, state.slots, atol=1e-4)
    # The others are as they were.
    np.testing.assert_array_equal(one_of(replicas, 0)[0], start.parameters)


def test_a_group_shares_parameters_and_statistics_but_no_slots(replicas: Replicas) -> None:
    for worker in range(3):
        replicas.step(worker, worker, 5, 0.1, 0.9)
    before = [one_of(replicas, worker) for worker in range(3)]
    replicas.average([0, 2])
    after = [one_of(replicas, worker) for worker in range(3)]
    for part in (0, 1):
        mean = (before[0][part] + before[2][part]) / 2
        assert not np.allclose(before[0][part], before[2][part])
        for worker in (0, 2):
            np.testing.assert_allclose(after[worker][part], mean, rtol=1e-6, atol=1e-7)
    for worker in range(3):
        np.testing.assert_array_equal(after[worker][2], before[worker][2])
    for part in range(3):
        np.testing.assert_array_equal(after[1][part], before[1][part])


def test_the_mean_and_a_snapshot_are_of_all_and_change_nothing(replicas: Replicas) -> None:
    for worker in range(3):
        for step in range(worker + 1):
            replicas.step(worker, 7 * worker + step, 5, 0.1, 0.9)
    parts = [
        np.mean(part, 0)
        for part in zip(*(one_of(replicas, worker) for worker in range(3)), strict=True)
    ]
    snapshot = replicas.snapshot(range(3))
    state = replicas.mean(range(3))
    for found, expected in zip(
        (state.parameters, state.statistics, state.slots), parts, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    # As many updates as the foremost has seen.
    assert state.updates == 3
    replicas.step(0, 50, 5, 0.1, 0.9)
    np.testing.assert_allclose(snapshot[0], parts[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(snapshot[1], parts[1], rtol=1e-6, atol=1e-7)


def test_many_at_once_do_not_touch_one_another(keras: Any) -> None:
    """Keras optimizers keep a state of their own while they work: each replica has its own."""
    workload: Workload = replace(DENSE, model=idle_model, optimizer=lambda: keras.optimizers.Adam())
    program = Program(workload, workload.data(), first_workers(devices, 3))
    start, replicas = program.form.initial(5), program.replicas

    def body(worker: int) -> Callable[[], None]:
        def steps() -> None:
            for step in range(15):
                replicas.step(worker, 3 * step + worker, 5, 0.01, 0.0)

        return steps

    replicas.scatter(start, range(3))
    in_parallel(*(body(worker) for worker in range(3)))
    together = [one_of(replicas, worker) for worker in range(3)]
    assert replicas.mean(range(3)).updates == 15
    replicas.scatter(start, range(3))
    for worker in range(3):
        body(worker)()
        for found, expected in zip(together[worker], one_of(replicas, worker), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert not np.allclose(together[0][0], together[1][0])


def test_a_loss_of_a_step_is_that_before_it(replicas: Replicas) -> None:
    first = replicas.step(0, 4, 5, 0.0, 0.0)
    assert replicas.step(1, 4, 5, 0.1, 0.0) == pytest.approx(first)
    assert replicas.step(1, 4, 5, 0.0, 0.0) != pytest.approx(first)
