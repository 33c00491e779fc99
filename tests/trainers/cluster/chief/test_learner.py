"""Replicas whose workers are lost and come back: plain SGD with a gradient that is known."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.cluster.chief.coordinator import Coordinator, Notice
from syncswitch.trainers.cluster.chief.learner import ClusterLearner
from syncswitch.trainers.cluster.chief.recovery import ServerLostError
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.job.hyperparameters import Configuration, rate_function
from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.protocols.steps import Ticket
from tests.trainers.jobs import CONSTANT, CONSTANT_GRADIENT, first_workers, spec_of

WORKERS, W = 4, 24
PLAIN = replace(CONSTANT, name="plain", momentum=0.0, learning_rate=2.0**-8, total_worker_steps=W)
PERIOD = 8
"""Worker-steps of a period of `local-sgd:2`, and of two rounds of `ds-sync:2`."""


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(PLAIN, PLAIN.data(), first_workers(devices, WORKERS))


class Cluster:
    """Plays a segment step by step, and computes beside it how far each replica has moved.

    A unit is the learning rate of one worker.
    """

    def __init__(self, program: Program, protocol: str, end_step: int = W) -> None:
        spec = spec_of(PLAIN, WORKERS, 0.0, protocols=("bsp", protocol))
        configuration = Configuration(PLAIN, spec, 64, rate_function(PLAIN))
        self.program = program
        self.learner = ClusterLearner(program, configuration, 1, lambda: self.coordinator.members)
        self.coordinator = Coordinator(
            range(WORKERS), self._join, lambda done: None, prepare=self._prepare
        )
        self.units = dict.fromkeys(range(WORKERS), 0.0)
        self.out: dict[int, Ticket] = {}
        choice = choose_protocol(protocol)
        program.load(program.form.initial(1))
        assert self.learner.begin(choice.exchange, self.coordinator.members, 0) == []
        self.coordinator.begin(choice.machine, end_step)

    def waiting(self) -> list[int]:
        """Workers whose step is next; they take their tickets."""
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
        loss, _ = self.learner.step(worker, ticket.worker_step)
        self.coordinator.acknowledge(worker, loss, None)

    def lose(self, worker: int) -> None:
        self.waiting()
        del self.units[worker]
        self.out.pop(worker, None)
        self.coordinator.lose(worker, is_applied=False)

    def come_back(self, worker: int) -> None:
        self.program.place(worker)
        self.coordinator.come_back(worker)

    def assert_exact(self) -> None:
        expected = 1 - np.mean(list(self.units.values())) * PLAIN.learning_rate * CONSTANT_GRADIENT
        parameters, _ = self.learner.snapshot()
        np.testing.assert_allclose(np.asarray(parameters), expected, rtol=1e-5)

    def _join(self, workers: Sequence[int], first_step: int) -> list[int]:
        mean = float(np.mean([self.units[worker] for worker in workers]))
        self.units.update(dict.fromkeys(workers, mean))
        return self.learner.join(workers, first_step)

    def _prepare(self, workers: Sequence[int]) -> list[int]:
        if self.units:
            mean = float(np.mean(list(self.units.values())))
            for worker in workers:
                self.units.setdefault(worker, mean)
        return self.learner.prepare(workers)


@pytest.mark.parametrize("away_for", [0, 3, 1000])
@pytest.mark.parametrize("protocol", ["local-sgd:2", "ds-sync:2"])
def test_a_loss_at_every_moment_of_a_period(program: Program, protocol: str, away_for: int) -> None:
    for moment in range(PERIOD):
        random = Random(moment)
        cluster = Cluster(program, protocol, 2 * PERIOD)
        steps = 0
        while waiting := cluster.waiting():
            if steps == moment:
                cluster.lose(1)
            if steps == moment + away_for:
                cluster.come_back(1)
            if steps >= moment:
                cluster.assert_exact()
                waiting = cluster.waiting()
            cluster.step(random.choice(waiting))
            steps += 1
        assert cluster.coordinator.done == 2 * PERIOD
        cluster.learner.finish()
        cluster.assert_exact()
        np.testing.assert_array_equal(
            program.state().parameters, np.asarray(cluster.learner.snapshot()[0])
        )


@pytest.mark.parametrize("lost_at", range(0, W, WORKERS))
def test_in_step_no_worker_step_is_lost_with_a_replica(program: Program, lost_at: int) -> None:
    """All replicas are equally far: what the lost one knew, the others know as well."""
    cluster = Cluster(program, "local-sgd:2")
    for first in range(0, W, WORKERS):
        if first == lost_at:
            cluster.lose(3)
            cluster.come_back(3)
        for worker in cluster.waiting():
            cluster.step(worker)
    while waiting := cluster.waiting():
        for worker in waiting:
            cluster.step(worker)
    cluster.learner.finish()
    expected = 1 - W * PLAIN.learning_rate * CONSTANT_GRADIENT
    np.testing.assert_allclose(program.state().parameters, expected, rtol=1e-5)


def test_who_comes_back_in_the_last_period_is_left_out(program: Program) -> None:
    cluster = Cluster(program, "local-sgd:8")
    cluster.waiting()
    cluster.lose(3)
    cluster.come_back(3)
    while waiting := cluster.waiting():
        assert 3 not in waiting
        cluster.step(waiting[0])
        cluster.assert_exact()
    cluster.learner.finish()
    assert (program.state().parameters != 0).all()
    cluster.assert_exact()


def test_who_cannot_be_given_a_replica_gets_no_step(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    cluster = Cluster(program, "ds-sync:2")
    cluster.waiting()
    cluster.lose(1)
    write = program.replicas._write

    def lost(worker: int, *arguments: Any) -> None:
        if worker == 1:
            raise tf.errors.UnavailableError(None, None, "gone")
        write(worker, *arguments)

    monkeypatch.setattr(program.replicas, "_write", lost)
    cluster.come_back(1)
    del cluster.units[1]
    assert cluster.coordinator.lost == {1}
    assert cluster.coordinator.inboxes[1].get_nowait() is Notice.LOST
    while waiting := cluster.waiting():
        assert 1 not in waiting
        cluster.step(waiting[-1])
        cluster.assert_exact()
    assert cluster.coordinator.done == W


def test_a_worker_that_rested_starts_with_what_the_others_know(program: Program) -> None:
    cluster = Cluster(program, "ds-sync:4")
    for worker in cluster.waiting():
        cluster.step(worker)
    cluster.coordinator.resting.add(2)
    cluster.learner.leave(2)
    cluster.lose(2)
    for _ in range(2):
        for worker in cluster.waiting():
            cluster.step(worker)
    cluster.coordinator.resting.clear()
    cluster.coordinator.come_back(2)
    while waiting := cluster.waiting():
        cluster.step(waiting[0])
        cluster.assert_exact()


def test_without_any_replica_nothing_is_known(program: Program) -> None:
    cluster = Cluster(program, "local-sgd:2")
    cluster.step(cluster.waiting()[0])
    for worker in range(WORKERS):
        cluster.lose(worker)
        program.place(worker)
    with pytest.raises(ServerLostError, match="all replicas are lost"):
        cluster.coordinator.come_back(2)
    with pytest.raises(ServerLostError, match="all replicas are lost"):
        cluster.learner.finish()


def test_before_the_first_step_the_parameter_server_knows_it_all(program: Program) -> None:
    cluster = Cluster(program, "local-sgd:2")
    cluster.waiting()
    for worker in range(WORKERS):
        cluster.lose(worker)
        program.place(worker)
    cluster.units = {2: 0.0}
    cluster.coordinator.come_back(2)
    assert cluster.waiting() == [2]
    cluster.step(2)
    cluster.assert_exact()
