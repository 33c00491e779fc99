from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import FatalError, RetryableError
from syncswitch.storage.records.guard import Band, GuardOutcome
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.cluster.chief.coordinator import Coordinator
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.exchange.parameter_server import ParameterServer
from syncswitch.trainers.cluster.exchange.plans import Caller, Task
from syncswitch.trainers.cluster.exchange.worker import Worker
from syncswitch.trainers.cluster.members.cluster import (
    Cluster,
    ServerLostError,
    ThreadsCluster,
    WorkerLostError,
)
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.trainer import Verdict
from tests.failing import fails
from tests.trainers.batch_contract import BatchContract
from tests.trainers.clicks import adam
from tests.trainers.cluster.members.cluster_contract import NORMALIZED
from tests.trainers.final import assert_bitwise_equal, final_state, train_to_end
from tests.trainers.guard_contract import GUARDED, GuardContract
from tests.trainers.jobs import (
    BRIEF,
    CONSTANT,
    RecordingObserver,
    digits_model,
    momentum_answer,
    spec_of,
)
from tests.trainers.reference import assert_close, plain_bsp
from tests.trainers.trainer_contract import LONG, ForkContract

MakeTrainer = Callable[[Workload, int], ClusterTrainer]


class TestClusterTrainer(ForkContract):
    """Threads of this process."""


class TestGuardedRuns(GuardContract):
    """Threads of this process."""

    spec_of = staticmethod(spec_of)


class TestBatchAfterTheSwitch(BatchContract):
    """Threads of this process."""

    spec_of = staticmethod(spec_of)


def test_asp_is_left_for_bsp_where_each_of_its_pushes_takes_long(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = ParameterServer.push

    def slow(server: ParameterServer, caller: Caller, task: Task, *content: Any) -> int:
        if task.exchange is Exchange.PUSH:
            time.sleep(0.1)
        return push(server, caller, task, *content)

    monkeypatch.setattr(ParameterServer, "push", slow)
    job = replace(GUARDED, total_worker_steps=1000, evaluation_interval_worker_steps=200)
    spec = replace(spec_of(job, 4, 6.25, band=Band(None, 0.01)), leaves_slow=True)
    record = make_trainer(job, 4).train(spec)
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp", "bsp"]
    begin, end = record.phases[1].start_worker_step, record.phases[1].end_worker_step
    assert (begin, end <= 200) == (64, True)
    assert sum(one.end_worker_step - one.start_worker_step for one in record.phases) == 1000
    assert record.guard == GuardOutcome(6.25)
    events = [(one.kind, one.worker_step) for one in record.events]
    assert events[:2] == [("switched", 64), ("tried", end)]
    assert events[2][0] == "chosen"
    assert record.events[2].reason.startswith("BSP does the rest, as ASP is slower by now: ")


def test_bsp_is_sequential_sgd_with_batch_normalization_per_worker(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    """Like a plain loop without workers; the last round has 3 batches, at 3 times the rate."""
    state = final_state(make_trainer(NORMALIZED, 4), spec_of(NORMALIZED, 4, 100.0), tmp_path)
    assert state.updates == 41
    assert_close(state, plain_bsp(NORMALIZED, 4, seed=1), 1e-4)


@pytest.mark.parametrize("pair", [("bsp", "asp"), ("asp", "bsp")])
def test_rates_follow_worker_steps_and_the_size_of_the_round(
    make_trainer: MakeTrainer, tmp_path: Path, pair: tuple[str, str]
) -> None:
    """Without momentum each gradient counts with its own rate, in any order."""
    boundaries = ((30, 0.1), (80, 0.01))
    workload = replace(
        CONSTANT, total_worker_steps=103, momentum=0.0, learning_rate_boundaries=boundaries
    )
    trainer = make_trainer(workload, 4)
    spec = spec_of(workload, 4, 50.0, protocols=pair)
    record, state = train_to_end(trainer, spec, tmp_path)
    bsp = next(phase for phase in record.phases if phase.protocol == "bsp")
    factors = np.repeat([1.0, 0.1, 0.01], [30, 50, 23])
    for first in range(bsp.start_worker_step, bsp.end_worker_step, 4):
        # A round has the rate of its first step.
        factors[first : min(first + 4, bsp.end_worker_step)] = factors[first]
    expected, _ = momentum_answer(0.01 * factors, 0.0)
    np.testing.assert_allclose(state.parameters, expected, rtol=1e-4)


def test_forks_of_bsp_end_bitwise_where_the_whole_run_does(
    keras: Any, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    """With an optimizer of Keras and dropout too; another seed is another run."""

    def model() -> Any:
        layers = keras.layers
        return digits_model(layers.Dropout(0.3), layers.BatchNormalization())

    workload = replace(BRIEF, model=model, optimizer=adam, learning_rate=0.002)
    trainer, spec = make_trainer(workload, 4), spec_of(workload, 4, 100.0)
    percents = (10.0, 93.0)
    whole, plain = train_to_end(trainer, replace(spec, checkpoint_percents=percents), tmp_path)
    for percent in percents:
        fork = replace(spec, fork_from=whole.checkpoints[percent])
        assert_bitwise_equal(final_state(trainer, fork, tmp_path / f"{percent}"), plain)
    other = final_state(trainer, replace(spec, seed=2), tmp_path)
    assert not np.allclose(other.parameters, plain.parameters)


class TestErrors:
    def test_a_signal_stops_the_run(self, make_trainer: MakeTrainer) -> None:
        """Control-C arrives in the main thread, whichever thread caused it."""

        def interrupt(evaluation: Evaluation) -> Verdict:
            if len(observer.evaluations) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return Verdict.CONTINUE

        observer = RecordingObserver(interrupt)
        with pytest.raises(KeyboardInterrupt):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 50.0), observer)
        assert observer.evaluations[-1].worker_step < LONG.total_worker_steps

    def test_a_signal_that_comes_between_two_locks_stops_the_run(
        self, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Python's conditions do not notice that they do not hold their lock again."""

        def interrupted(*_: Any) -> Any:
            try:
                raise KeyboardInterrupt
            finally:
                threading.Lock().release()

        monkeypatch.setattr(Coordinator, "wait_until_drained", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 50.0))

    @pytest.mark.parametrize("pair", [("bsp", "asp"), ("asp", "bsp")])
    def test_a_parameter_server_that_is_lost_again_and_again_may_be_tried_again(
        self, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str]
    ) -> None:
        """It is lost in a push or before a round is applied, and once as soon as it is replaced."""

        def lost_worker(*_: Any) -> Any:
            raise WorkerLostError("worker 1 is gone")

        def lost_server(*_: Any) -> Any:
            raise ServerLostError("connection reset")

        if pair[0] == "asp":
            monkeypatch.setattr(Cluster, "step", lost_worker)
            monkeypatch.setattr(ThreadsCluster, "fence", lost_server)
        else:
            monkeypatch.setattr(Cluster, "apply", lost_server)
        starts = []

        def restart(cluster: ThreadsCluster) -> None:
            starts.append(1)
            if len(starts) == 2:
                raise ServerLostError("connection reset")
            cluster.renew()

        monkeypatch.setattr(ThreadsCluster, "restart_servers", restart)
        observer = RecordingObserver()
        message = r"^the parameter server was lost 11 times \(connection reset\)$"
        with fails("cluster-lost", message):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 50.0, protocols=pair), observer)
        assert len(starts) == 10
        assert Counter(event.kind for event in observer.events)["rebuilt"] == 9

    @pytest.mark.parametrize(
        ("broken", "error", "raised", "words"),
        [
            ((ThreadsCluster, "repair"), ServerLostError("reset"), RetryableError, r"^reset$"),
            ((Worker, "step"), ZeroDivisionError("by 0"), FatalError, r"ZeroDivisionError.*by 0"),
        ],
        ids=["a server lost between two runs", "a defect"],
    )
    def test_the_class_of_an_error_says_what_to_do(
        self,
        make_trainer: MakeTrainer,
        monkeypatch: pytest.MonkeyPatch,
        broken: tuple[type, str],
        error: Exception,
        raised: type[Exception],
        words: str,
    ) -> None:
        def fail(*_: Any) -> Any:
            raise error

        monkeypatch.setattr(*broken, fail)
        with pytest.raises(raised, match=words):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 0.0))
