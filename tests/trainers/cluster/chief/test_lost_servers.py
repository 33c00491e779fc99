"""Real servers that are killed or hang while a run is under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.model.checkpoint import read_checkpoint
from tests.private_network import needs_private_network
from tests.trainers.cluster.aborted_chiefs import aborted_chiefs
from tests.trainers.cluster.processes.test_process_trainer import all_gone, family
from tests.trainers.jobs import CONSTANT, momentum_answer, spec_of

pytestmark = [pytest.mark.slow, needs_private_network()]

W = 800
# Without momentum each gradient moves the parameters by the same, whenever it comes.
COUNTING = replace(
    CONSTANT,
    name="counting",
    total_worker_steps=W,
    momentum=0.0,
    learning_rate=1e-3,
    evaluation_interval_worker_steps=100,
)
PERCENTS = tuple(range(20, 101, 20))


@pytest.fixture(scope="module")
def module_trainer() -> Iterator[ProcessTrainer]:
    trainer = ProcessTrainer(f"{__name__}:COUNTING", 2)
    yield trainer
    processes = family(trainer)
    trainer.close()
    assert all_gone(processes)


@pytest.fixture
def trainer(module_trainer: ProcessTrainer) -> ProcessTrainer:
    """With a cluster that is there: what the test before has killed may have ended it since."""
    if not family(module_trainer):
        module_trainer.close()
        module_trainer._start()
    return module_trainer


def train(
    trainer: ProcessTrainer, folder: Path, *injections: str, mechanism: str = "hot"
) -> TrialRecord:
    """A run in which each gradient has to be applied once, whatever is injected."""
    record = trainer.train(
        spec_of(
            COUNTING,
            2,
            50.0,
            conditions=RunConditions(switch_mechanism=mechanism, injections=injections),
            checkpoint_percents=PERCENTS,
            checkpoint_directory=folder,
        )
    )
    assert record.worker_steps == W
    steps = [phase.end_worker_step - phase.start_worker_step for phase in record.phases]
    assert sum(steps) == W
    # A round that a lost worker has cut short shifts the ends of those that follow.
    tested = [one.worker_step for one in record.evaluations]
    assert tested == pytest.approx(list(range(100, W + 1, 100)), abs=1)
    (parameters,) = read_checkpoint(record.checkpoints[100.0]).parameters.values()
    expected, _ = momentum_answer([COUNTING.learning_rate] * W, 0.0)
    np.testing.assert_allclose(parameters.ravel(), expected, rtol=1e-4)
    assert not list(folder.glob(".*")), "nothing half-written stays behind"
    return record


def kinds(record: TrialRecord) -> Counter[str]:
    return Counter(event.kind for event in record.events)


def injected(record: TrialRecord) -> set[str]:
    return {event.reason for event in record.events if event.kind == "injected"}


def test_killed_and_hung_workers_come_back(
    trainer: ProcessTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = family(trainer)
    injections = ("kill:worker=1,at=15%", "hang:worker=0,at=30%", "kill:worker=0,at=65%")
    record = train(trainer, tmp_path, *injections)
    found = kinds(record)
    assert injected(record) == set(injections)
    if aborts := aborted_chiefs(caplog):
        # Such a chief may take the loss along, and what happened after the checkpoint comes again.
        assert found["resumed"] <= aborts
        assert 0 <= found["lost"] - found["returned"] <= 2 * aborts
    else:
        assert found["lost"] == found["returned"] == 3
        assert found["resumed"] == 0
    assert len(family(trainer)) == len(before)
    assert all(process.status() != psutil.STATUS_ZOMBIE for process in family(trainer))


def test_a_lost_parameter_server_is_rebuilt_from_the_last_checkpoint(
    trainer: ProcessTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    injections = ("kill:ps,at=30%", "hang:ps,at=75%")
    record = train(trainer, tmp_path, *injections)
    assert injected(record) == set(injections)
    rebuilt = [event for event in record.events if event.kind == "rebuilt"]
    if aborts := aborted_chiefs(caplog):
        assert len(rebuilt) + aborts >= 2
        return
    assert [event.worker_step for event in rebuilt] == [0.2 * W, 0.6 * W]
    # What was lost is paid for.
    seconds = sum(phase.seconds for phase in record.phases)
    assert seconds == pytest.approx(record.training_seconds)
    assert record.training_seconds > sum(event.seconds or 0.0 for event in rebuilt)


def test_a_lost_chief_goes_on_elsewhere(
    trainer: ProcessTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    processes = family(trainer)
    record = train(trainer, tmp_path, "kill:chief,at=50%")
    assert all_gone(processes)
    (resumed,) = [event for event in record.events if event.kind == "resumed"]
    assert resumed.worker_step == 0.4 * W
    assert "the cluster of 2 workers died of SIGKILL; " in caplog.text
    assert aborted_chiefs(caplog) == 0, "it was not TensorFlow"
    assert not record.spec.resume, "the record says what was asked for"


def test_a_slow_network_slows_the_run(trainer: ProcessTrainer, tmp_path: Path) -> None:
    injection = "straggler:worker=1,at=10%,for=10%,delay=20ms,by=proxy"
    record = train(trainer, tmp_path, injection)
    assert kinds(record)["injected"] == 1
    # Each of the 40 rounds waits for several messages of the slow worker.
    assert record.phases[0].seconds > 40 * 0.02 * 2


def test_a_restart_at_the_switch_is_a_new_cluster(
    trainer: ProcessTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = {process.pid for process in family(trainer)}
    record = train(trainer, tmp_path, mechanism="restart")
    after = {process.pid for process in family(trainer)}
    if aborted_chiefs(caplog):
        assert not before & after
        return
    assert record.switch_overhead_seconds > 0.05
    assert len(before - after) == len(after - before) == 3, "parameter server and two workers"
