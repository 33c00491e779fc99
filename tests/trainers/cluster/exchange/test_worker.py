"""One worker: its steps, its replica, and its GPU, for which a logical CPU stands in."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.cluster.exchange import worker as workers
from syncswitch.trainers.cluster.exchange.parameter_server import ParameterServer
from syncswitch.trainers.cluster.exchange.plans import Hold
from syncswitch.trainers.cluster.exchange.worker import Worker, compiled_or, step_of
from syncswitch.trainers.cluster.members.cluster import Cluster, ThreadsCluster
from syncswitch.trainers.cluster.members.program import BESIDE_GPU, Program
from syncswitch.trainers.model.feed import HeldFeed, feed_of
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.protocols import Exchange
from tests.failing import fails
from tests.trainers.clicks import adam
from tests.trainers.cluster.members.cluster_contract import (
    NORMALIZED,
    WORKERS,
    broadcast_to,
    in_parallel,
    replica_of,
    replicas_that_differ,
    step,
)
from tests.trainers.jobs import CONSTANT, DENSE


@pytest.fixture
def cluster(threads_of: Callable[..., Cluster]) -> Cluster:
    """With a fresh state on its server and on each worker."""
    found = threads_of(NORMALIZED, WORKERS)
    found.load(broadcast_to(found))
    return found


class TestSharedParameters:
    def test_a_delay_is_between_its_gradient_and_its_push(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Updates meanwhile make the gradient stale."""
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            step(cluster, 1, len(slept))

        monkeypatch.setattr(workers.time, "sleep", sleep)
        push = step(cluster, 0, 9, hold=Hold(seconds=3.0))
        assert slept == [3.0]
        assert (push.pulled_updates, push.pushed_updates) == (0, 2)
        step(cluster, 0, 9, Exchange.ROUND, hold=Hold(slowdown=3.0))
        assert 0.0 < slept[1] < 100.0

    def test_who_waits_for_a_core_has_not_pulled(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (worker, *_), (server,), cores = cluster.members, cluster.servers, threading.Semaphore(1)
        monkeypatch.setattr(worker, "_computing", cores)
        with cores:
            thread = threading.Thread(target=step, args=(cluster, 0, 1))
            thread.start()
            thread.join(0.2)
            assert isinstance(server, ParameterServer)
            assert server._leases == {}
        thread.join(20)
        assert cluster.state().updates == 1


def test_an_average_is_the_mean_of_all_and_each_asks_for_the_pieces_that_it_needs_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = np.mean([one.parameters for one in replicas_that_differ(cluster)], axis=0)
    asked, fetch = list[int](), Worker.fetch

    def watched(worker: Worker, what: str, start: int, stop: int) -> Vector:
        asked.append(stop - start)
        return fetch(worker, what, start, stop)

    monkeypatch.setattr(Worker, "fetch", watched)
    assert cluster.average(range(WORKERS)) == []
    assert sum(asked) == (2 * WORKERS - 1) * cluster.program.sizes.model
    for worker in range(WORKERS):
        np.testing.assert_array_equal(replica_of(cluster, worker).parameters, mean)


def test_many_replicas_at_once_do_not_touch_one_another() -> None:
    """Keras' optimizers have internal state, so each replica has an optimizer of its own."""
    workload = replace(NORMALIZED, optimizer=adam)
    cluster = ThreadsCluster(Program(workload, workload.load_data()), WORKERS)

    def train(worker: int) -> Vector:
        for number in range(15):
            step(cluster, worker, WORKERS * number + worker, Exchange.REPLICA, 0.01)
        return replica_of(cluster, worker).parameters

    broadcast_to(cluster)
    together = in_parallel(*(partial(train, worker) for worker in range(WORKERS)))
    broadcast_to(cluster)
    np.testing.assert_array_equal(together, list(map(train, range(WORKERS))))
    assert not np.allclose(together[0], together[1])


def test_a_worker_that_sees_no_gpu_says_what_to_do() -> None:
    program = Program(CONSTANT, CONSTANT.load_data(), has_gpus=True)
    with fails("cluster-unusable"):
        step_of(program.worker_plan, HeldFeed(()))


def test_the_compiled_step_computes_the_same_on_batches_that_are_made_beside_the_gpu() -> None:
    program = Program(DENSE, DENSE.load_data(), has_gpus=True)
    plan = program.worker_plan
    made = {one.type: one.device for one in program.step.graph.get_operations()}
    assert made["RandomIndexShuffle"] == made["GatherV2"] == BESIDE_GPU
    assert made["MatMul"] == ""
    # As in the process of a worker, nothing is left of the function that was traced.
    gc.collect()
    plain = plan.step.restored()
    feed = feed_of(program.data.train, plan.batch_size)
    compiled = compiled_or(plain, plan, feed)
    assert compiled is not plain
    model = program.checkpoints.initial(3).parameters
    for number in range(3):
        arguments = model, *feed.rows(number, 1), np.array([number, 1])
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
