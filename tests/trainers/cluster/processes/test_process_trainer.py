"""Real TensorFlow servers, one process each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import pytest

from syncswitch.storage.errors import FatalError, RetryableError, UserError, WorkloadError
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Verdict
from tests.private_network import needs_private_network, run_in_the_last
from tests.trainers import jobs, trainer_contract
from tests.trainers.cluster.aborted_chiefs import aborted_chiefs
from tests.trainers.jobs import BRIEF, RecordingObserver, spec_of
from tests.trainers.trainer_contract import LONG, ForkContract, MakeTrainer

pytestmark = [pytest.mark.slow, needs_private_network()]

BROKEN_METRIC = replace(BRIEF, name="broken metric", metric=lambda: 3)


def reference_of(workload: Workload) -> str:
    """What the chief can load a workload of the tests by."""
    for module in (jobs, trainer_contract, sys.modules[__name__]):
        for name, value in vars(module).items():
            if isinstance(value, Workload) and value == workload:
                return f"{module.__name__}:{name}"
    raise AssertionError(f"{workload.name} is in no module")


@pytest.fixture(scope="module")
def make_trainer() -> Iterator[MakeTrainer]:
    """Three clusters at most: to start one takes many seconds, and its idle servers take memory."""
    made: dict[tuple[str, int], ProcessTrainer] = {}

    def make(workload: Workload, workers: int) -> ProcessTrainer:
        key = (reference_of(workload), workers)
        if key not in made:
            made[key] = ProcessTrainer(*key)
            assert len(made) <= 3
        return made[key]

    yield make
    for trainer in made.values():
        trainer.close()


# A run on servers takes seconds, and its chief is the cluster of one process, which keeps to the
# whole contract: here stands what passes between the processes.
KEPT = {
    "test_the_record_says_what_when_and_with_what",
    "test_the_observer_is_told_what_the_record_says",
    "test_stop_is_obeyed",
    "test_a_run_that_explodes_is_a_result",
    "test_an_observer_that_fails_stops_the_run",
    "test_a_trial_of_another_job_is_refused",
    "test_a_fork_of_bsp_measures_what_the_whole_run_did",
    "test_a_damaged_checkpoint_is_refused",
}


class TestProcessTrainer(ForkContract, only=KEPT):
    workers = 2

    # After each such run the cluster starts anew; the other error is that of an interrupt.
    @pytest.mark.parametrize("error", [UserError("disk full")])
    def test_an_observer_that_fails_stops_the_run(
        self, make_trainer: MakeTrainer, error: BaseException
    ) -> None:
        super().test_an_observer_that_fails_stops_the_run(make_trainer, error)


def family(trainer: ProcessTrainer) -> list[psutil.Process]:
    """The cluster's processes: zygote, parameter server, workers, chief; none once it has died."""
    if trainer._process is None or trainer._process.poll() is not None:
        return []
    zygote = psutil.Process(trainer._process.pid)
    return [zygote, *zygote.children(recursive=True)]


def all_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=15)
    return not alive


class StrikeAtStep(RecordingObserver):
    """Calls `strike` once, in the middle of the run."""

    def __init__(self, strike: Any) -> None:
        super().__init__()
        self._strike = strike

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        strike, self._strike = self._strike, None
        if strike is not None:
            strike()
        return super().on_evaluation(evaluation)


def test_replicas_train_on_servers(make_trainer: MakeTrainer) -> None:
    spec = spec_of(BRIEF, 2, 50.0, protocols=("ds-sync:2", "asp"))
    record = make_trainer(BRIEF, 2).train(spec)
    assert record.worker_steps == BRIEF.total_worker_steps
    assert [phase.protocol for phase in record.phases] == ["ds-sync:2", "asp"]
    assert record.final_accuracy > 0.8
    first, second = record.phases
    assert (first.mean_staleness, first.max_staleness) == (None, None)
    assert second.mean_staleness is not None


def test_a_killed_chief_fails_a_run_without_checkpoints_but_not_the_trainer(
    make_trainer: MakeTrainer,
) -> None:
    trainer = make_trainer(BRIEF, 2)
    trainer.train(spec_of(BRIEF, 2, 50.0))
    assert isinstance(trainer, ProcessTrainer)
    processes = family(trainer)
    assert len(processes) == 5
    chief = 4  # forked last
    abort = partial(processes[chief].send_signal, signal.SIGABRT)
    with pytest.raises(RetryableError, match="2 workers died of SIGABRT; ") as error:
        trainer.train(spec_of(BRIEF, 2, 0.0), StrikeAtStep(abort))
    assert "\n" not in str(error.value)
    assert aborted_chiefs(str(error.value)) == 1
    assert all_gone(processes)
    assert trainer.train(spec_of(BRIEF, 2, 50.0)).worker_steps == BRIEF.total_worker_steps


def test_killed_itself_it_leaves_no_process_behind() -> None:
    code = f"""
import psutil, sys
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
trainer = ProcessTrainer({reference_of(LONG)!r}, 2)
print([p.pid for p in psutil.Process().children(recursive=True)], flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    processes = [psutil.Process(pid) for pid in json.loads(process.stdout.readline())]
    assert len(processes) == 5
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all_gone(processes)


def test_the_servers_cannot_be_reached_from_outside(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(BRIEF, 2)
    trainer.train(spec_of(BRIEF, 2, 100.0))
    assert isinstance(trainer, ProcessTrainer)
    own = psutil.Process().net_connections()
    listening = {
        connection.laddr.port for connection in own if connection.status == psutil.CONN_LISTEN
    }
    # /proc shows a process the sockets of its own network alone.
    assert not listening & set(range(20000, 20010))
    zygote = family(trainer)[0]
    with open(f"/proc/{zygote.pid}/net/tcp") as table:
        ports = {int(line.split()[1].split(":")[1], 16) for line in table.readlines()[1:]}
    with open(f"/proc/{zygote.pid}/net/tcp6") as table:
        ports |= {int(line.split()[1].split(":")[1], 16) for line in table.readlines()[1:]}
    assert {20001, 20002, 20003} <= ports


def test_a_workload_that_cannot_be_loaded_is_refused_in_one_line() -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(WorkloadError, match="no_such_name") as error:
        ProcessTrainer("tests.trainers.jobs:no_such_name", 2)
    assert "\n" not in str(error.value)
    with pytest.raises((WorkloadError, FatalError), match="metric"):
        ProcessTrainer(f"{__name__}:BROKEN_METRIC", 2)
    deadline = time.monotonic() + 10
    while set(psutil.Process().children(recursive=True)) - before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_close_leaves_no_process_behind_and_may_come_twice(make_trainer: MakeTrainer) -> None:
    # The last one: those before it use this cluster.
    trainer = make_trainer(BRIEF, 2)
    assert isinstance(trainer, ProcessTrainer)
    processes = family(trainer)
    assert len(processes) == 5
    trainer.close()
    assert all_gone(processes)
    trainer.close()


def test_whoever_asks_for_an_open_network_has_one() -> None:
    program = """
import logging
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
logging.basicConfig(format="%(message)s")
with ProcessTrainer("digits", 1, open_network=True):
    print("started")
"""
    assert run_in_the_last(program) == "started\n"
