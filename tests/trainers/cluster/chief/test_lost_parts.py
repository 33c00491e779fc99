"""Real processes that are killed or hang while a run is under way; its chief is this process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import RunEvent, TrialRecord
from syncswitch.trainers.cluster.chief import recovery, run
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.exchange.handshake import Part
from syncswitch.trainers.cluster.exchange.plans import PARAMETER_SERVER, WORKER
from syncswitch.trainers.cluster.members import connected
from syncswitch.trainers.cluster.members.connected import ConnectedCluster
from syncswitch.trainers.cluster.processes.engine import LocalEngine
from syncswitch.trainers.model.checkpoint import read_checkpoint
from tests.trainers.cluster.engines import new_engine, processes_of
from tests.trainers.final import train_to_end
from tests.trainers.jobs import (
    CONSTANT,
    CONSTANT_GRADIENT,
    RecordingObserver,
    pace,
    phases_answer,
    spec_of,
)

W = 240
# Without momentum each gradient moves the parameters by the same, exactly, whenever it comes.
COUNTING = replace(
    CONSTANT,
    name="counting",
    total_worker_steps=W,
    momentum=0.0,
    learning_rate=2.0**-10,
    evaluation_interval_worker_steps=40,
)
PERCENTS = tuple(range(20, 101, 20))
PAIRS = [("bsp", "asp"), ("ssp:2", "gba:1000")]


class Trained:
    """A trainer with a cluster of two workers on this machine."""

    def __init__(self, folder: Path, servers: int = 1) -> None:
        self.engine = new_engine(folder, 2)
        self.trainer = ClusterTrainer(
            COUNTING,
            2,
            lambda program, workers: ConnectedCluster(program, workers, self.engine, servers),
        )

    @property
    def processes(self) -> dict[Part, psutil.Process]:
        return processes_of(self.engine)

    def train(
        self,
        folder: Path,
        *injections: str,
        pair: tuple[str, str] = ("bsp", "asp"),
        mechanism: str = "hot",
        percents: tuple[float, ...] = (),
        band: Band | None = None,
        retry_percents: tuple[float, ...] = (),
        observer: RecordingObserver | None = None,
    ) -> TrialRecord:
        """A run in which each gradient has to be applied once, whatever is injected."""
        injections += pace(2)
        record, state = train_to_end(
            self.trainer,
            spec_of(
                COUNTING,
                2,
                50.0,
                protocols=pair,
                conditions=RunConditions(switch_mechanism=mechanism, injections=injections),
                checkpoint_percents=percents,
                checkpoint_directory=folder,
                band=band,
                retry_percents=retry_percents,
            ),
            folder,
            observer,
        )
        assert record.worker_steps == W
        steps = [phase.end_worker_step - phase.start_worker_step for phase in record.phases]
        assert sum(steps) == W
        # A round that a lost worker has cut short shifts the ends of those that follow.
        tested = [one.worker_step for one in record.evaluations]
        assert tested == pytest.approx(list(range(40, W + 1, 40)), abs=1)
        expected = 1 - W * COUNTING.learning_rate * CONSTANT_GRADIENT  # type: ignore[operator]
        np.testing.assert_array_equal(state.parameters, expected)
        assert not list(folder.glob(".*")), "nothing half-written stays behind"
        assert injected(record) == set(injections)
        assert all(one.status() != psutil.STATUS_ZOMBIE for one in self.processes.values())
        return record


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    trained = Trained(tmp_path_factory.mktemp("parts"))
    yield trained
    trained.trainer.close()


@pytest.fixture
def trained(shared: Trained, monkeypatch: pytest.MonkeyPatch) -> Trained:
    # What hangs is given up sooner.
    monkeypatch.setattr(connected, "_STOPPED_SECONDS", 1.0)
    # What is due is injected soon.
    monkeypatch.setattr(run, "_PROGRESS_SECONDS", 0.01)
    shared.trainer._cluster.repair()
    return shared


def kinds(record: TrialRecord) -> Counter[str]:
    """Of events, those aside that say that its pace was set."""
    return Counter(event.kind for event in record.events if event.reason not in pace(2))


def injected(record: TrialRecord) -> set[str]:
    return {event.reason for event in record.events if event.kind == "injected"}


def others(trained: Trained, before: dict[Part, psutil.Process]) -> set[Part]:
    """Parts that are another process now."""
    return {part for part, process in trained.processes.items() if process != before[part]}


def assert_each_step_is_in_them_once(checkpoints: Mapping[float, Path]) -> None:
    """Of all that come before."""
    assert len(checkpoints) == len(PERCENTS)
    for percent, path in checkpoints.items():
        (parameters,) = read_checkpoint(path).parameters.values()
        moved = percent / 100 * W * 2.0**-10
        np.testing.assert_array_equal(parameters.ravel(), 1 - moved * CONSTANT_GRADIENT)


class TestWorkers:
    @pytest.mark.parametrize("pair", PAIRS, ids=",".join)
    def test_killed_and_hung_come_back(
        self, trained: Trained, tmp_path: Path, pair: tuple[str, str]
    ) -> None:
        before = trained.processes
        injections = ("kill:worker=1,at=15%", "hang:worker=0,at=30%", "kill:worker=1,at=65%")
        record = trained.train(tmp_path, *injections, pair=pair)
        lost = [event for event in record.events if event.kind == "lost"]
        # The one that hangs is found after a second, in which the other may train on to its end.
        assert Counter(event.worker for event in lost) == {1: 2, 0: 1}, lost
        # Nobody waits for them: on a busy machine a later one may be there first.
        returned = Counter(event.worker for event in record.events if event.kind == "returned")
        assert returned == {1: 2, 0: 1}
        assert all("\n" not in event.reason for event in lost)
        assert kinds(record) == {"injected": 3, "lost": 3, "returned": 3, "switched": 1}
        assert others(trained, before) == {(WORKER, 0), (WORKER, 1)}

    def test_that_do_not_come_back_are_done_without(
        self, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = LocalEngine.start

        def fail(engine: LocalEngine, part: Part, chief: Any) -> None:
            if part == (WORKER, 1):
                raise RetryableError("no room")
            start(engine, part, chief)

        monkeypatch.setattr(LocalEngine, "start", fail)
        monkeypatch.setattr(recovery, "_PAUSE_SECONDS", 0.0)
        record = trained.train(tmp_path, "kill:worker=1,at=30%")
        reasons = [event.reason for event in record.events if event.kind == "lost"]
        assert len(reasons) == 2
        assert reasons[1] == "worker 1 stays away: RetryableError: no room"

    def test_without_any_the_run_may_be_tried_again(
        self, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(engine: LocalEngine, part: Part, chief: Any) -> None:
            raise RetryableError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(LocalEngine, "start", fail)
            with pytest.raises(RetryableError, match=r"^no worker is left: worker \d stays away: "):
                trained.train(tmp_path, "kill:worker=1,at=30%", "kill:worker=0,at=30%")
        trained.train(tmp_path)

    def test_killed_with_a_replica_are_done_without_until_they_are_back(
        self, trained: Trained, tmp_path: Path
    ) -> None:
        injections = ("kill:worker=1,at=20%", "kill:worker=0,at=70%", *pace(2))
        conditions = RunConditions(injections=injections)
        pair = ("local-sgd:4", "ds-sync:2")
        spec = spec_of(COUNTING, 2, 50.0, protocols=pair, conditions=conditions)
        record, state = train_to_end(trained.trainer, spec, tmp_path)
        assert record.worker_steps == W
        assert kinds(record) == {"injected": 2, "lost": 2, "returned": 2, "switched": 1}
        # What a replica learned since it was averaged is lost with it.
        moved = (1 - state.parameters) / CONSTANT_GRADIENT / 2.0**-10
        np.testing.assert_allclose(moved, W, rtol=0.1)


class TestTheParameterServer:
    def test_is_replaced_and_the_run_goes_on_from_the_last_checkpoint_at_the_latest(
        self, trained: Trained, tmp_path: Path
    ) -> None:
        before = trained.processes
        injections = ("kill:ps,at=30%", "hang:ps,at=75%")
        record = trained.train(tmp_path, *injections, percents=PERCENTS)
        assert kinds(record) == {"injected": 2, "lost": 2, "rebuilt": 2, "switched": 1}
        lost = [event for event in record.events if event.kind == "lost"]
        rebuilt = [event for event in record.events if event.kind == "rebuilt"]
        assert all(event.reason == "the parameter server is gone" for event in lost)
        for event, least in zip(rebuilt, (0.2, 0.6), strict=True):
            assert event.worker_step >= least * W
        assert others(trained, before) == {PARAMETER_SERVER}
        # What was lost is paid for.
        seconds = sum(phase.seconds for phase in record.phases)
        assert seconds == pytest.approx(record.training_seconds)
        assert record.training_seconds > sum(event.seconds or 0.0 for event in rebuilt)
        assert_each_step_is_in_them_once(record.checkpoints)

    @pytest.mark.parametrize("pair", PAIRS, ids=",".join)
    def test_is_replaced_by_a_copy_from_the_middle_of_the_training(
        self,
        trained: Trained,
        tmp_path: Path,
        pair: tuple[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Some workers' steps are in it and some are not, whichever were acknowledged."""
        monkeypatch.setattr(run, "_PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(run, "_SHARE", 0.0)
        record = trained.train(tmp_path, "kill:ps,at=30%", "kill:ps,at=80%", pair=pair)
        assert kinds(record) == {"injected": 2, "lost": 2, "rebuilt": 2, "switched": 1}
        steps = [event.worker_step for event in record.events if event.kind == "rebuilt"]
        assert steps == sorted(steps)
        assert steps[0] > 0, "there was a copy"
        assert steps[-1] > 0.5 * W

    def test_together_with_all_workers(self, trained: Trained, tmp_path: Path) -> None:
        before = trained.processes
        injections = ("kill:ps,at=40%", "kill:worker=0,at=40%", "kill:worker=1,at=40%")
        record = trained.train(tmp_path, *injections, percents=PERCENTS)
        assert kinds(record)["rebuilt"] == 1
        assert others(trained, before) == set(before)

    def test_is_replaced_with_the_mean_once_replicas_have_trained(
        self, trained: Trained, tmp_path: Path
    ) -> None:
        injections, pair = ("kill:ps,at=20%", "kill:ps,at=70%"), ("local-sgd:4", "ds-sync:2")
        record = trained.train(tmp_path, *injections, pair=pair)
        assert kinds(record) == {"injected": 2, "lost": 2, "rebuilt": 2, "switched": 1}

    @pytest.mark.parametrize("when", ["before the alarm", "after it"])
    def test_is_replaced_in_a_run_that_goes_back_to_its_switch(
        self, trained: Trained, tmp_path: Path, when: str
    ) -> None:
        class Killing(RecordingObserver):
            def on_event(self, event: RunEvent) -> None:
                super().on_event(event)
                if event.kind == "alarmed" and when == "after it":
                    trained.processes[PARAMETER_SERVER].kill()

        is_before = when == "before the alarm"
        injections = ("kill:ps,at=20%", "kill:ps,at=70%") if is_before else ()
        record = trained.train(
            tmp_path,
            *injections,
            mechanism="restart" if is_before else "hot",
            band=Band(2.0, 0.01),
            retry_percents=(60.0,),
            observer=Killing(),
        )
        # What it goes on from may be from before the switch, which is then made again.
        found = [event.kind for event in record.events if event.reason not in pace(2)]
        found = [kind for kind in found if kind != "switched"]
        lost = ["injected", "lost", "rebuilt"] * 2 if is_before else ["lost", "rebuilt"] * 2
        assert sorted(found) == sorted(["alarmed", "alarmed", *lost]), record.events
        assert found[-1 if is_before else 0] == "alarmed"
        assert [phase.protocol for phase in record.phases] == ["bsp"]
        assert record.guard is not None
        assert [one.worker_step for one in record.guard.failed] == [W, W]
        seconds = [one.elapsed_seconds for one in record.evaluations]
        assert seconds == sorted(seconds)

    def test_with_momentum_and_the_global_batch_nothing_is_lost_either(
        self, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run, "_PAUSE_SECONDS", 0.0)
        workload = replace(
            COUNTING,
            name="momentum",
            momentum=0.5,
            momentum_after_switch="zero",
            batch_after_switch="global",
        )
        engine = new_engine(tmp_path, 2)
        with ClusterTrainer(
            workload, 2, lambda program, workers: ConnectedCluster(program, workers, engine)
        ) as trainer:
            injections = ("kill:ps,at=30%", "kill:worker=1,at=52%", "kill:ps,at=60%", *pace(2))
            spec = spec_of(workload, 2, 50.0, conditions=RunConditions(injections=injections))
            record, state = train_to_end(trainer, spec, tmp_path)
        assert kinds(record)["rebuilt"] == 2, record.events
        np.testing.assert_allclose(state.parameters, phases_answer(workload, record), rtol=1e-5)


def test_what_was_killed_between_two_runs_is_there_again(trained: Trained, tmp_path: Path) -> None:
    before, killed = trained.processes, {PARAMETER_SERVER, (WORKER, 1)}
    for part in killed:
        before[part].kill()
        while before[part].status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
    record = trained.train(tmp_path)
    assert kinds(record) == {"switched": 1}
    assert others(trained, before) == killed
