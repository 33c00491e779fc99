"""Replicas whose workers are lost and come back, with plain SGD and a known gradient."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from syncswitch.trainers.cluster.chief.coordinator import Coordinator, Notice
from syncswitch.trainers.cluster.chief.executor import ClusterExecutor
from syncswitch.trainers.cluster.exchange.plans import SERVER, WORKER
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError
from syncswitch.trainers.job.hyperparameters import Configuration, rate_function
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.protocols.steps import Group, Ticket
from tests.processes import until
from tests.trainers.clicks import of_keras
from tests.trainers.jobs import CONSTANT, CONSTANT_GRADIENT, spec_of

WORKERS, W = 4, 24
PLAIN = replace(CONSTANT, name="plain", momentum=0.0, learning_rate=2.0**-8, total_worker_steps=W)
PERIOD = 8
"""The worker-steps in a period of `local-sgd:2`, or two rounds of `ds-sync:2`."""


@pytest.fixture
def cluster(threads_of: Callable[..., Cluster]) -> Cluster:
    return threads_of(PLAIN, WORKERS)


def executor_of(cluster: Cluster, job: Workload, workers: int) -> ClusterExecutor:
    """Returns the executor of workers of which none is ever lost."""
    configuration = Configuration(job, spec_of(job, workers, 0.0), 64, rate_function(job))
    cluster.load(cluster.program.checkpoints.initial(1))
    return ClusterExecutor(cluster, configuration, 1, lambda: range(workers))


class Segment:
    """Plays a segment step by step, and computes how far each replica should have moved.

    A unit is the learning rate of one worker.
    """

    def __init__(self, cluster: Cluster, protocol: str, end_step: int = W) -> None:
        spec = spec_of(PLAIN, WORKERS, 0.0, protocols=("bsp", protocol))
        configuration = Configuration(PLAIN, spec, 64, rate_function(PLAIN))
        self.cluster = cluster
        self.notes: list[tuple[str, str]] = []
        self.executor = ClusterExecutor(
            cluster,
            configuration,
            1,
            lambda: self.coordinator.members,
            lambda kind, reason, *_: self.notes.append((kind, reason)),
        )
        self.coordinator = Coordinator(
            range(WORKERS), self._join, lambda done: None, prepare=self._prepare
        )
        self.units = dict.fromkeys(range(WORKERS), 0.0)
        self.out: dict[int, Ticket] = {}
        choice = choose_protocol(protocol)
        cluster.load(cluster.program.checkpoints.initial(1))
        assert self.executor.begin(choice.exchange, self.coordinator.members, 0) == []
        self.coordinator.begin(choice.machine, end_step)

    def waiting(self) -> list[int]:
        """Takes all tickets, and returns the workers that have one."""
        self.settle()
        for worker, inbox in self.coordinator.inboxes.items():
            try:
                found = inbox.get_nowait()
            except queue.Empty:
                continue
            if isinstance(found, Ticket):
                self.out[worker] = found
        return sorted(self.out)

    def step(self, worker: int) -> None:
        ticket = self.out.pop(worker)
        self.units[worker] += len(self.units)
        self.coordinator.acknowledge(worker, self.executor.step(ticket))

    def lose(self, worker: int) -> None:
        self.waiting()
        del self.units[worker]
        self.out.pop(worker, None)
        self.cluster.fence(worker)
        self.coordinator.lose(worker, is_applied=False)
        self.settle()

    def come_back(self, worker: int) -> None:
        self.cluster.revive(worker)
        self.coordinator.come_back(worker)

    def settle(self) -> None:
        """Waits until no group is being averaged."""
        until(lambda: not self.coordinator._averaging)

    def assert_exact(self) -> None:
        self.settle()
        expected = 1 - np.mean(list(self.units.values())) * PLAIN.learning_rate * CONSTANT_GRADIENT
        parameters, _ = self.executor.snapshot()
        np.testing.assert_allclose(np.asarray(parameters), expected, rtol=1e-5)

    def _join(self, group: Group, first_step: int) -> list[int]:
        mean = float(np.mean([self.units[worker] for worker in group.workers]))
        self.units.update(dict.fromkeys(group.workers, mean))
        return self.executor.join(group, first_step)

    def _prepare(self, workers: Sequence[int]) -> list[int]:
        if self.units:
            mean = float(np.mean(list(self.units.values())))
            for worker in workers:
                self.units.setdefault(worker, mean)
        return self.executor.prepare(workers)


@pytest.mark.parametrize("away_for", [0, 3, 1000])
@pytest.mark.parametrize("protocol", ["local-sgd:2", "ds-sync:2"])
def test_a_loss_at_every_moment_of_a_period(cluster: Cluster, protocol: str, away_for: int) -> None:
    for moment in range(PERIOD):
        random = Random(moment)
        segment = Segment(cluster, protocol, 2 * PERIOD)
        steps = 0
        while waiting := segment.waiting():
            if steps == moment:
                segment.lose(1)
            if steps == moment + away_for:
                segment.come_back(1)
            if steps >= moment:
                segment.assert_exact()
                waiting = segment.waiting()
            segment.step(random.choice(waiting))
            steps += 1
        assert segment.coordinator.done == 2 * PERIOD
        segment.executor.finish()
        segment.assert_exact()
        np.testing.assert_array_equal(
            cluster.state().parameters, np.asarray(segment.executor.snapshot()[0])
        )


def test_who_cannot_be_given_a_replica_gets_no_step(connected_of: Callable[..., Cluster]) -> None:
    cluster = connected_of(PLAIN, WORKERS)
    segment = Segment(cluster, "ds-sync:2")
    segment.waiting()
    segment.lose(1)
    cluster.revive(1)
    cluster.signal((WORKER, 1), signal.SIGKILL)
    segment.coordinator.come_back(1)
    segment.units.pop(1)
    assert segment.coordinator.lost == {1}
    assert segment.coordinator.inboxes[1].get_nowait() is Notice.LOST
    while waiting := segment.waiting():
        assert 1 not in waiting
        segment.step(waiting[-1])
        segment.assert_exact()
    assert segment.coordinator.done == W


def test_a_worker_that_rested_starts_with_what_the_others_know(cluster: Cluster) -> None:
    segment = Segment(cluster, "ds-sync:4")
    for worker in segment.waiting():
        segment.step(worker)
    segment.coordinator.resting.add(2)
    segment.executor.leave(2)
    segment.lose(2)
    for _ in range(2):
        for worker in segment.waiting():
            segment.step(worker)
    segment.coordinator.resting.clear()
    segment.coordinator.come_back(2)
    while waiting := segment.waiting():
        segment.step(waiting[0])
        segment.assert_exact()


def test_without_any_replica_nothing_is_known(cluster: Cluster) -> None:
    segment = Segment(cluster, "local-sgd:2")
    segment.step(segment.waiting()[0])
    for worker in range(WORKERS):
        segment.lose(worker)
    with pytest.raises(ServerLostError, match="all replicas are lost"):
        segment.coordinator.come_back(2)
    with pytest.raises(ServerLostError, match="all replicas are lost"):
        segment.executor.finish()


def test_a_parameter_server_lost_meanwhile_is_replaced_at_the_end(
    connected_of: Callable[..., Cluster],
) -> None:
    cluster = connected_of(PLAIN, WORKERS)
    segment = Segment(cluster, "local-sgd:2")
    for worker in segment.waiting():
        segment.step(worker)
    cluster.signal((SERVER, 0), signal.SIGKILL)
    segment.executor.finish()
    segment.assert_exact()
    assert segment.notes == [
        ("lost", "the parameter server is gone"),
        ("rebuilt", "another parameter server has the mean of the replicas"),
    ]


def test_before_the_first_step_the_parameter_server_knows_it_all(cluster: Cluster) -> None:
    segment = Segment(cluster, "local-sgd:2")
    segment.waiting()
    for worker in range(WORKERS):
        segment.lose(worker)
    segment.units = {2: 0.0}
    segment.coordinator.come_back(2)
    assert segment.waiting() == [2]
    segment.step(2)
    segment.assert_exact()


def test_workers_keep_slots_of_their_own_whose_mean_is_left(
    threads_of: Callable[..., Cluster],
) -> None:
    """In this order of steps, with a worker that is lost and begins anew."""
    job = replace(CONSTANT, name="own", learning_rate=2.0**-8)
    cluster = threads_of(job, 3)
    executor = executor_of(cluster, job, 3)
    assert executor.begin(Exchange.PUSH, range(3), 0) == []
    own, parameters = np.zeros((3, 4)), np.ones(4)
    for number, worker in enumerate([0, 0, 1, 2, 1, 0, -1, 1, 2, 1]):
        if worker < 0:
            cluster.fence(1)
            cluster.revive(1)
            assert executor.prepare([0, 1, 2]) == []
            own[1] = 0
            continue
        executor.step(Ticket(worker, number))
        own[worker] = 0.9 * own[worker] + CONSTANT_GRADIENT
        parameters = parameters - job.learning_rate * (0.9 * own[worker] + CONSTANT_GRADIENT)
    np.testing.assert_allclose(executor.snapshot()[0], parameters, rtol=1e-5)
    copied = executor.with_own_slots(cluster.state())
    executor.finish()
    left = cluster.state()
    for state in (copied, left):
        np.testing.assert_allclose(state.slots, own.mean(0), rtol=1e-5)
    # Where one momentum is shared again, it goes on from there.
    executor.begin(Exchange.PUSH, range(3), None)
    executor.step(Ticket(0, 10))
    accumulator = 0.9 * own.mean(0) + CONSTANT_GRADIENT
    expected = parameters - job.learning_rate * accumulator
    np.testing.assert_allclose(executor.snapshot()[0], expected, rtol=1e-5)


def test_without_any_worker_the_mean_of_slots_is_the_last_one_known(
    threads_of: Callable[..., Cluster],
) -> None:
    job = replace(CONSTANT, name="lost", learning_rate=2.0**-8)
    cluster = threads_of(job, 2)
    executor = executor_of(cluster, job, 2)
    start = cluster.program.checkpoints.initial(1)
    cluster.load(replace(start, slots=np.full_like(start.slots, 0.5)))

    def lose_all() -> None:
        for worker in range(2):
            cluster.fence(worker)

    executor.begin(Exchange.PUSH, range(2), 0)
    lose_all()
    at_switch = executor.with_own_slots(cluster.state())
    np.testing.assert_array_equal(at_switch.slots, np.full(4, 0.5, np.float32))
    executor.begin(Exchange.PUSH, range(2), 0)
    executor.step(Ticket(0, 0))
    copied = executor.with_own_slots(cluster.state())
    mean = (0.5 + 0.9 * 0.5 + np.asarray(CONSTANT_GRADIENT)) / 2
    np.testing.assert_allclose(copied.slots, mean, rtol=1e-6)
    executor.step(Ticket(1, 1))
    lose_all()
    np.testing.assert_array_equal(executor.with_own_slots(cluster.state()).slots, copied.slots)
    executor.finish()
    np.testing.assert_array_equal(cluster.state().slots, copied.slots)


def test_adam_knows_the_age_of_its_moments_after_a_pause(
    threads_of: Callable[..., Cluster],
) -> None:
    """Of a gradient that never changes each step is the rate, as long as they fit together.

    Beyond these the parameters are where each worker's next step without a gradient leads to.
    """
    optimizer = of_keras("Adam", learning_rate=0.01)
    # Without a limit of BSP's rate they would raise theirs.
    job = replace(CONSTANT, name="aged", optimizer=optimizer, largest_scaling=1)
    cluster = threads_of(job, 4)
    executor = executor_of(cluster, job, 4)
    steps = 0
    for pause in ("none", "copy", "drained"):
        if pause == "copy":
            cluster.load(executor.with_own_slots(cluster.state()))
        executor.begin(Exchange.PUSH, range(4), 0, steps)
        for _ in range(3):
            for worker in range(4):
                executor.step(Ticket(worker, steps))
                steps += 1
        first, second = (1 - beta ** (steps // 4 + np.arange(2)) for beta in (0.9, 0.999))
        ahead = 0.9 * first[0] / first[1] * np.sqrt(second[1] / second[0] / 0.999)
        expected = 1 - (steps + 4 * ahead) * job.learning_rate * np.sign(CONSTANT_GRADIENT)
        np.testing.assert_allclose(executor.snapshot()[0], expected, rtol=1e-4, err_msg=pause)
        if pause == "copy":
            executor.finish()


def test_a_worker_that_is_sent_to_rest_in_its_step_has_no_replica_any_more(
    threads_of: Callable[..., Cluster],
) -> None:
    """The decision comes from the thread of another worker, as the step is being counted."""
    cluster = threads_of(PLAIN, WORKERS)
    segment = Segment(cluster, "local-sgd:8")
    others = list[threading.Thread]()

    class Counts(dict[int, int]):
        def __getitem__(self, worker: int) -> int:
            others.append(threading.Thread(target=segment.executor.leave, args=(worker,)))
            others[-1].start()
            others[-1].join(0.3)
            return super().__getitem__(worker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "replicas", Counts(cluster.replicas))
        segment.step(segment.waiting()[0])
        for one in others:
            one.join()
        assert len(others) == 1
        assert set(cluster.replicas) == {1, 2, 3}
