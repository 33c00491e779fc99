"""The contract of clusters, wherever their parts run; the test of each kind inherits it.

The class of the test defines a fixture `make_cluster(workload, workers)`, which may return the same
cluster again for the same arguments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.cluster.exchange.plans import NO_HOLD, Hold, Push, Task
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.own_slots import OwnSlots
from syncswitch.trainers.model.updates import first_outer_state, outer_step, rejoin
from syncswitch.trainers.protocols import AfterAverage, Exchange
from syncswitch.trainers.protocols.steps import Group
from tests.trainers.clicks import of_keras
from tests.trainers.final import assert_bitwise_equal
from tests.trainers.jobs import BRIEF, CONSTANT, CONSTANT_GRADIENT, digits_data, normalized_model

MakeCluster = Callable[[Workload, int], Cluster]

WORKERS = 3
SEED = 5
NORMALIZED = replace(BRIEF, name="normalized", model=normalized_model)


def rows_data() -> Data:
    inputs = np.tile(np.eye(4, dtype=np.float32), (4, 1))
    labels = np.zeros((16, 1), np.float32)
    return Data(inputs, labels, inputs, labels)


# Of a batch the gradient is how often each row is in it, in quarters; sums of them are exact.
ROWS = replace(CONSTANT, name="rows", data=rows_data)
RATE = 2.0**-4


adam = of_keras("Adam", learning_rate=0.5)
ADAM = replace(CONSTANT, name="adam", optimizer=adam)


def transformed_data() -> Data:
    """The labels that a transform makes are not known before a step."""
    return replace(digits_data(), transform=lambda inputs, labels, _: (inputs, labels + 5))


TOO_FEW_OUTPUTS = replace(BRIEF, name="too few", data=transformed_data)


def task_of(
    cluster: Cluster,
    worker_step: int,
    exchange: Exchange = Exchange.PUSH,
    rate: float = RATE,
    momentum: float = 0.0,
    hold: Hold = NO_HOLD,
) -> Task:
    number = next(cluster.numbers)
    return Task(number, worker_step, SEED, exchange, rate, momentum, hold)


def taken_in(cluster: Cluster, task: Task) -> tuple[int, ...]:
    """Returns what `mark` returns once every server has received a task."""
    return (task.number,) * len(cluster.servers)


def step(cluster: Cluster, worker: int, worker_step: int, *arguments: Any, **fields: Any) -> Push:
    return cluster.step(worker, task_of(cluster, worker_step, *arguments, **fields))


def fresh(cluster: Cluster, seed: int = 1) -> ModelState:
    state = cluster.program.checkpoints.initial(seed)
    cluster.load(state)
    return state


def broadcast_to(cluster: Cluster, workers: Sequence[int] = range(WORKERS)) -> ModelState:
    """Gives the workers replicas of a fresh state."""
    state = cluster.program.checkpoints.initial(1)
    cluster.replicas.clear()
    assert cluster.broadcast(state, workers) == []
    return state


def batch_gradient(cluster: Cluster, worker_step: int) -> Vector:
    """Returns the gradient of a batch of `ROWS`."""
    import tensorflow as tf

    data = cluster.program.data
    arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)
    batch = cluster.program.function.batch(arrays, np.int64(worker_step), np.int64(SEED))
    return np.mean(batch[0].numpy(), axis=0)


def in_parallel(*bodies: Callable[[], Any]) -> list[Any]:
    """Calls the bodies at the same time, in threads; returns their results."""
    together = threading.Barrier(len(bodies))

    def run(body: Callable[[], Any]) -> Any:
        together.wait(30)
        return body()

    with ThreadPoolExecutor(len(bodies)) as pool:
        return [done.result(60) for done in [pool.submit(run, body) for body in bodies]]


def arrays_of(state: ModelState) -> tuple[Vector, Vector, Vector]:
    return state.parameters, state.slots, state.statistics


def replica_of(cluster: Cluster, worker: int) -> ModelState:
    return cluster.mean_replica([worker])


def replicas_that_differ(cluster: Cluster) -> list[ModelState]:
    """Has each worker begin a replica and take a step more than the one before it."""
    broadcast_to(cluster)
    for worker in range(WORKERS):
        for number in range(worker + 1):
            step(cluster, worker, 7 * worker + number, Exchange.REPLICA, momentum=0.9)
    return [replica_of(cluster, worker) for worker in range(WORKERS)]


def push_a_round(cluster: Cluster, first_step: int) -> list[Push]:
    """Has all workers push a gradient at the same time."""

    def body(worker: int) -> Callable[[], Push]:
        return lambda: step(cluster, worker, first_step + worker, Exchange.ROUND)

    return in_parallel(*map(body, range(WORKERS)))


class ClusterContract:
    @pytest.fixture
    def cluster(self, make_cluster: MakeCluster) -> Cluster:
        """A cluster whose model has moving averages."""
        return make_cluster(NORMALIZED, WORKERS)

    @pytest.fixture
    def rows(self, make_cluster: MakeCluster) -> Cluster:
        """A cluster whose gradients are known exactly."""
        return make_cluster(ROWS, WORKERS)

    def test_what_was_loaded_is_the_state_and_no_update_changes_what_was_copied(
        self, cluster: Cluster
    ) -> None:
        random, size = np.random.default_rng(0), cluster.program.sizes
        counts = (size.parameters, size.slots, size.statistics)
        loaded = ModelState(*(random.standard_normal(one, np.float32) for one in counts), 17)
        cluster.load(loaded)
        assert_bitwise_equal(cluster.state(), loaded)
        cluster.mark()
        copies = cluster.snapshot()
        for worker_step in range(5):
            step(cluster, 0, worker_step, momentum=0.9)
        assert_bitwise_equal(cluster.marked(), loaded)
        for copied, own, now in zip(
            copies, (loaded.parameters, loaded.statistics), cluster.snapshot(), strict=True
        ):
            np.testing.assert_array_equal(copied, own)
            assert not np.array_equal(now, own)

    def test_a_push_is_an_update(self, rows: Cluster) -> None:
        fresh(rows)
        parameters, accumulator = np.ones(4), np.zeros(4)
        for worker_step in range(6):
            task = task_of(rows, worker_step, momentum=0.5)
            push = rows.step(worker_step % WORKERS, task)
            assert push[:4] == (
                pytest.approx(parameters @ batch_gradient(rows, worker_step)),
                worker_step,
                worker_step + 1,
                0.0,
            )
            accumulator = 0.5 * accumulator + batch_gradient(rows, worker_step)
            parameters = parameters - RATE * accumulator
            assert rows.mark()[worker_step % WORKERS] == taken_in(rows, task)
        state = rows.state()
        np.testing.assert_array_equal(state.parameters, parameters)
        np.testing.assert_array_equal(state.slots, accumulator)
        assert state.updates == 6

    def test_what_computing_takes_is_told_apart_from_the_exchange(self, rows: Cluster) -> None:
        """A worker that is slowed down on purpose computes for longer, whatever it does."""
        fresh(rows)
        for exchange in (Exchange.PUSH, Exchange.ROUND, Exchange.REPLICA):
            if exchange is Exchange.REPLICA:
                broadcast_to(rows, [0])
            start = time.perf_counter()
            usual, slow = (
                step(rows, 0, number, exchange, hold=Hold(seconds)).compute_seconds
                for number, seconds in enumerate((0.0, 0.2))
            )
            took = time.perf_counter() - start
            assert 0 < usual < usual + slow < took
            assert slow >= 0.2

    def test_no_push_of_many_at_once_is_lost(self, rows: Cluster) -> None:
        fresh(rows)
        rounds = 40

        def body(worker: int) -> Callable[[], list[Push]]:
            steps = range(worker, rounds * WORKERS, WORKERS)
            return lambda: [step(rows, worker, one) for one in steps]

        pushes = [push for found in in_parallel(*map(body, range(WORKERS))) for push in found]
        gradients = [batch_gradient(rows, one) for one in range(rounds * WORKERS)]
        state = rows.state()
        np.testing.assert_array_equal(state.parameters, 1 - RATE * np.sum(gradients, axis=0))
        assert sorted(push.pushed_updates for push in pushes) == [*range(1, 1 + len(gradients))]
        assert all(push.pulled_updates < push.pushed_updates for push in pushes)
        assert state.updates == len(gradients)

    def test_a_round_is_an_update_with_the_mean_of_those_who_are_named(self, rows: Cluster) -> None:
        start = fresh(rows)
        for worker_step in range(0, 4 * WORKERS, WORKERS):
            pushes = push_a_round(rows, worker_step)
            assert {(push.pulled_updates, push.pushed_updates) for push in pushes} == {(0, 0)}
        assert_bitwise_equal(rows.state(), start)
        # The last of each counts, and of worker 1 none.
        rows.apply(Group((0, 2)), RATE, 0.0)
        gradients = [batch_gradient(rows, 3 * WORKERS + worker) for worker in (0, 2)]
        state = rows.state()
        np.testing.assert_array_equal(state.parameters, 1 - RATE * np.mean(gradients, axis=0))
        assert state.updates == 1

    def test_a_buffer_is_an_update_with_gradients_of_whoever_came(self, rows: Cluster) -> None:
        fresh(rows)
        for worker, worker_step in ((2, 5), (2, 6), (0, 7), (2, 8)):
            step(rows, worker, worker_step, Exchange.BUFFER)
        rows.apply(Group((), (7, 5, 6), (5,)), RATE, 0.0)
        gradients = [batch_gradient(rows, worker_step) for worker_step in (7, 6)]
        state = rows.state()
        np.testing.assert_allclose(
            state.parameters, 1 - RATE * np.sum(gradients, axis=0) / 3, rtol=1e-6
        )
        assert state.updates == 1
        rows.apply(Group((), (8,)), RATE, 0.0)
        assert not np.array_equal(rows.state().parameters, state.parameters)

    def test_a_load_leaves_nothing_of_the_trial_before_and_rounds_repeat_to_the_last_bit(
        self, cluster: Cluster
    ) -> None:
        def end() -> ModelState:
            fresh(cluster)
            for first in range(0, 4 * WORKERS, WORKERS):
                push_a_round(cluster, first)
                cluster.apply(Group(tuple(range(WORKERS))), 0.1, 0.9)
                step(cluster, 1, first, momentum=0.9)
            return cluster.state()

        assert_bitwise_equal(end(), end())

    def test_an_optimizer_of_keras_is_kerass(self, make_cluster: MakeCluster) -> None:
        import keras

        cluster = make_cluster(ADAM, 2)
        fresh(cluster)
        for worker_step in range(4):
            step(cluster, worker_step % 2, worker_step, Exchange.PUSH, 0.01)
        broadcast_to(cluster, [0])
        for worker_step in range(4):
            step(cluster, 0, worker_step, Exchange.REPLICA, 0.01)
        reference, variable = adam(), keras.Variable(np.ones((4, 1), np.float32))
        reference.learning_rate = 0.01
        for _ in range(4):
            reference.apply([keras.ops.convert_to_tensor(CONSTANT_GRADIENT[:, None])], [variable])
        for state in (cluster.state(), replica_of(cluster, 0)):
            np.testing.assert_allclose(state.parameters, variable.numpy().ravel(), rtol=1e-5)
            assert state.updates == 4

    def test_a_step_that_cannot_be_computed_is_the_workloads_fault(
        self, make_cluster: MakeCluster
    ) -> None:
        cluster = make_cluster(TOO_FEW_OUTPUTS, 1)
        state = fresh(cluster)
        for exchange in Exchange:
            broadcast_to(cluster, [0])
            with pytest.raises(WorkloadError) as error:
                step(cluster, 0, 0, exchange)
            text = str(error.value)
            assert text.startswith(
                "workload 'too few': a worker-step fails: InvalidArgumentError: "
            )
            assert "Received a label value of" in text[:110]
            assert "{" not in text
            assert "\n" not in text
        assert_bitwise_equal(cluster.state(), state)

    def test_a_fence_tells_what_was_taken_in_and_the_next_one_goes_on(self, rows: Cluster) -> None:
        fresh(rows)
        assert [rows.fence(1), rows.revive(1)] == [rows.mark()[1], None]
        for exchange, updates in ((Exchange.PUSH, 1), (Exchange.ROUND, 1), (Exchange.BUFFER, 1)):
            task = task_of(rows, 0, exchange)
            assert rows.step(1, task).pushed_updates == updates
            before = rows.state()
            assert rows.fence(1) == taken_in(rows, task)
            rows.revive(1)
            assert_bitwise_equal(rows.state(), before)
        assert step(rows, 1, 2).pushed_updates == 2
        assert step(rows, 0, 2).pushed_updates == 3

    # Replicas

    def test_a_replica_begins_as_it_is_told_and_forgets_what_was_before(
        self, cluster: Cluster
    ) -> None:
        broadcast_to(cluster)
        step(cluster, 0, 3, Exchange.REPLICA, momentum=0.9)
        state = replace(cluster.program.checkpoints.initial(6), updates=17)
        assert cluster.broadcast(state, range(WORKERS)) == []
        for worker in range(WORKERS):
            assert_bitwise_equal(replica_of(cluster, worker), state)

    def test_a_step_of_a_replica_is_that_of_the_parameter_server(self, cluster: Cluster) -> None:
        start = fresh(cluster)
        pushes = [step(cluster, 1, worker_step, momentum=0.9) for worker_step in range(4)]
        broadcast_to(cluster)
        losses = [
            step(cluster, 1, worker_step, Exchange.REPLICA, momentum=0.9).loss
            for worker_step in range(4)
        ]
        assert losses == pytest.approx([push.loss for push in pushes], rel=1e-5)
        for found, expected in zip(
            arrays_of(replica_of(cluster, 1)), arrays_of(cluster.state()), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert_bitwise_equal(replica_of(cluster, 0), start)

    def test_a_group_shares_parameters_and_statistics_but_no_slots(self, cluster: Cluster) -> None:
        before = replicas_that_differ(cluster)
        assert not np.allclose(before[0].parameters, before[2].parameters)
        assert cluster.average([0, 2]) == []
        after = [replica_of(cluster, worker) for worker in range(WORKERS)]
        assert_bitwise_equal(after[1], before[1])
        for kind in ("parameters", "statistics"):
            mean = np.mean([getattr(before[0], kind), getattr(before[2], kind)], axis=0)
            for worker in (0, 2):
                np.testing.assert_array_equal(getattr(after[worker], kind), mean)
                np.testing.assert_array_equal(after[worker].slots, before[worker].slots)
        assert cluster.average([1]) == []
        assert_bitwise_equal(replica_of(cluster, 1), before[1])

    def test_a_group_averages_its_slots_as_well_or_begins_with_none(self, cluster: Cluster) -> None:
        before = replicas_that_differ(cluster)
        assert cluster.average([0, 2], AfterAverage.AVERAGED) == []
        mean = np.mean([before[0].slots, before[2].slots], axis=0)
        for worker in (0, 2):
            np.testing.assert_array_equal(replica_of(cluster, worker).slots, mean)
        assert_bitwise_equal(replica_of(cluster, 1), before[1])
        assert cluster.average([0, 1], AfterAverage.ZEROED) == []
        for worker in (0, 1):
            left = replica_of(cluster, worker)
            np.testing.assert_array_equal(left.slots, np.zeros_like(mean))
            assert left.updates == 0
        np.testing.assert_array_equal(replica_of(cluster, 2).slots, mean)

    def test_an_outer_step_is_the_same_on_all_and_who_is_new_takes_part(
        self, cluster: Cluster
    ) -> None:
        start = broadcast_to(cluster)
        outer = first_outer_state(start.parameters)
        assert cluster.broadcast(start, [0, 1], outer) == []
        for first in (0, 8):
            for worker in (0, 1):
                step(cluster, worker, first + worker, Exchange.REPLICA, 0.1)
            mean = cluster.mean_replica([0, 1]).parameters.copy()
            assert cluster.average([0, 1], AfterAverage.NESTEROV) == []
            outer_step(outer, mean)
            rejoin(outer, mean)
            for worker in (0, 1):
                np.testing.assert_allclose(
                    replica_of(cluster, worker).parameters, mean, rtol=1e-5, atol=1e-6
                )
        found = cluster.outer_state([0, 1])
        np.testing.assert_allclose(found, outer, rtol=1e-5, atol=1e-6)
        assert cluster.broadcast(cluster.mean_replica([0]), [2], found) == []
        step(cluster, 2, 20, Exchange.REPLICA, 0.1)
        assert cluster.average([0, 1, 2], AfterAverage.NESTEROV) == []
        np.testing.assert_array_equal(cluster.outer_state([2]), cluster.outer_state([0]))

    def test_the_mean_of_replicas_has_their_slots_and_changes_nothing(
        self, cluster: Cluster
    ) -> None:
        replicas = replicas_that_differ(cluster)
        snapshot, state = cluster.replica_snapshot(range(WORKERS)), cluster.mean_replica([0, 1, 2])
        for name in ("parameters", "slots", "statistics"):
            expected = np.mean([getattr(replica, name) for replica in replicas], axis=0)
            np.testing.assert_array_equal(getattr(state, name), expected)
        assert state.updates == 3, "as many as the foremost has seen"
        for worker, replica in enumerate(replicas):
            assert_bitwise_equal(replica_of(cluster, worker), replica)
        step(cluster, 0, 50, Exchange.REPLICA)
        np.testing.assert_array_equal(snapshot[0], state.parameters)
        np.testing.assert_array_equal(snapshot[1], state.statistics)

    def test_who_holds_a_replica_is_known(self, rows: Cluster) -> None:
        broadcast_to(rows, [0, 2])
        assert set(rows.replicas) == {0, 2}
        rows.fence(2)
        assert set(rows.replicas) == {0}, "whoever takes its place has none"
        rows.revive(2)
        with pytest.raises(ServerLostError, match="all replicas are lost"):
            rows.mean_replica([])

    # Slots of their own

    @pytest.mark.parametrize("workload", [ROWS, ADAM], ids=["sgd", "adam"])
    def test_workers_with_slots_of_their_own_push_what_is_to_be_added(
        self, make_cluster: MakeCluster, workload: Workload
    ) -> None:
        """Each moves as the only worker with an optimizer would; the mean of slots is left."""
        cluster = make_cluster(workload, WORKERS)
        state = fresh(cluster)
        assert cluster.broadcast_slots(state.slots, 0, range(WORKERS)) == []
        expected = state.parameters.astype(np.float64)
        own = [OwnSlots(state.slots.copy(), 0, cluster.program.new_ahead()) for _ in range(WORKERS)]
        for worker_step, worker in enumerate([0, 1, 1, 2, 0, 1]):
            before, _ = cluster.snapshot()
            task = task_of(cluster, worker_step, momentum=0.5)
            push = cluster.step(worker, replace(task, own_workers=WORKERS))
            assert (push.pulled_updates, push.pushed_updates) == (worker_step, worker_step + 1)
            change = self._gradient_of(cluster, worker_step)
            own[worker].turn(before, change, RATE, 0.5)
            expected += change
        np.testing.assert_allclose(cluster.snapshot()[0], expected, rtol=1e-5)
        slots = cluster.mean_slots(range(WORKERS))
        np.testing.assert_allclose(slots, np.mean([one.slots for one in own], axis=0), rtol=1e-5)
        cluster.load_slots(slots)
        left = cluster.state()
        np.testing.assert_array_equal(left.slots, slots)
        assert left.updates == 6

    @staticmethod
    def _gradient_of(cluster: Cluster, worker_step: int) -> Vector:
        if cluster.program.workload.data is rows_data:
            return batch_gradient(cluster, worker_step).astype(np.float32)
        return np.array(CONSTANT_GRADIENT, np.float32)
