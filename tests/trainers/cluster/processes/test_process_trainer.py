"""A chief, a parameter server and workers that are processes of their own."""

from __future__ import annotations

import functools
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from syncswitch.storage.errors import RetryableError
from syncswitch.storage.files import OwnedFolder
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord
from syncswitch.trainers.cluster.processes.this_machine import LocalLauncher, place_on_gpus
from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Verdict
from tests.failing import fails
from tests.processes import until
from tests.trainers import jobs, trainer_contract
from tests.trainers.cluster.launchers import all_gone, family
from tests.trainers.final import train_to_end
from tests.trainers.jobs import BRIEF, COUNTING, RecordingObserver, constant_data, counted, spec_of
from tests.trainers.trainer_contract import LONG, ForkContract, MakeTrainer
from tests.warm_program import WarmProcess

W = COUNTING.total_worker_steps


def sleeping(values: Any) -> Any:
    time.sleep(0.4)
    return values


def slow_tests() -> Data:
    """Data whose evaluations take longer than the training."""

    def wait(inputs: Any, labels: Any) -> Any:
        import tensorflow as tf

        slept = tf.numpy_function(sleeping, [inputs], tf.float32)
        return tf.ensure_shape(slept, inputs.shape), labels

    return replace(constant_data(), test_transform=wait)


SLOW_TESTS = replace(
    COUNTING, name="slow tests", data=slow_tests, evaluation_interval_worker_steps=25
)


def hidden_gpus() -> Any:
    raise ValueError(f"GPUs: {os.environ['CUDA_VISIBLE_DEVICES']}")


BROKEN_METRIC = replace(BRIEF, name="broken metric", metric=hidden_gpus)
PERCENTS = (20.0, 40.0, 60.0, 80.0, 100.0)
PARTS = {"chief", "ps-0", "worker-0", "worker-1"}


def reference_of(workload: Workload) -> str:
    """Returns the reference by which a chief can load a workload of the tests."""
    for module in (jobs, trainer_contract, sys.modules[__name__]):
        for name, value in vars(module).items():
            if isinstance(value, Workload) and value == workload:
                return f"{module.__name__}:{name}"
    raise AssertionError(f"{workload.name} is in no module")


@pytest.fixture(scope="module")
def make_trainer() -> Iterator[MakeTrainer]:
    """Makes a trainer, or returns that for the same arguments."""
    with ExitStack() as made:

        @functools.cache
        def make(workload: Workload, workers: int) -> ProcessTrainer:
            return made.enter_context(ProcessTrainer(reference_of(workload), workers))

        yield make


# Its chief is the cluster of one process, which keeps to the whole contract: here stands what
# passes between the processes.
KEPT = {
    "test_the_record_says_what_when_and_with_what",
    "test_the_observer_is_told_what_the_record_says",
    "test_stop_is_obeyed",
    "test_an_observer_that_fails_stops_the_run",
    "test_a_trial_of_another_job_is_refused",
    "test_a_fork_of_bsp_measures_what_the_whole_run_did",
    "test_a_damaged_checkpoint_is_refused",
}


class TestProcessTrainer(ForkContract, only=KEPT):
    workers = 2


def strike_once(strike: Callable[[], object]) -> RecordingObserver:
    """Calls `strike` once, in the middle of the run."""
    strikes = [strike]

    def answer(evaluation: Evaluation) -> Verdict:
        if strikes:
            strikes.pop()()
        return Verdict.CONTINUE

    return RecordingObserver(answer)


@pytest.fixture
def trainer(make_trainer: MakeTrainer) -> ProcessTrainer:
    """A trainer whose cluster is up."""
    made = make_trainer(COUNTING, 2)
    assert isinstance(made, ProcessTrainer)
    if made._connection is None:
        made._start()
    return made


def steps_of_tests(evaluations: Iterable[Evaluation]) -> list[int]:
    """The steps of tests; a round of two may step over the exact one after a round of one."""
    return [one.worker_step - (one.worker_step % 50 == 1) for one in evaluations]


def train_each_step_once(
    trainer: ProcessTrainer, folder: Path, *injections: str, observer: RecordingObserver
) -> TrialRecord:
    """Makes a run in which each gradient has to be applied once, whatever is lost."""
    conditions = RunConditions(injections=injections)
    spec = spec_of(COUNTING, 2, 50.0, conditions=conditions, checkpoint_percents=PERCENTS)
    record, state = train_to_end(trainer, spec, folder, observer)
    np.testing.assert_array_equal(state.parameters, counted())
    assert record.worker_steps == W
    assert steps_of_tests(record.evaluations) == list(range(50, W + 1, 50)), record.events
    assert not record.spec.resume, "the record says what was asked for"
    # Nobody is told twice of what the next chief repeats.
    assert steps_of_tests(observer.evaluations) == list(range(50, W + 1, 50)), record.events
    assert tuple(observer.events) == record.events
    assert not list(folder.glob(".*")), "nothing half-written stays behind"
    return record


class TestALostChief:
    def test_is_replaced_and_the_run_goes_on_from_its_last_checkpoint(
        self, trainer: ProcessTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = family(trainer)
        assert set(before) == PARTS
        injections = ("kill:worker=0,at=30%", "kill:chief,at=50%", "kill:ps,at=70%")
        observer = RecordingObserver()
        record = train_each_step_once(trainer, tmp_path, *injections, observer=observer)
        assert all_gone(list(before.values()))
        lost = [event.reason for event in record.events if event.kind == "lost"]
        assert len(lost) == 3
        for reason, who in zip(lost, ("worker 0 ", "the chief: ", "the parameter"), strict=True):
            assert reason.startswith(who)
        kinds = Counter(event.kind for event in record.events)
        assert kinds["injected"] == 3
        assert kinds["resumed"] == kinds["rebuilt"] == 1
        (resumed,) = [event for event in record.events if event.kind == "resumed"]
        # A checkpoint may be under way at the kill, which comes late on a busy machine.
        assert resumed.worker_step in (0.2 * W, 0.4 * W, 0.6 * W)
        assert "the cluster of 2 workers died of SIGKILL; " in caplog.text
        assert record.training_seconds == pytest.approx(sum(one.seconds for one in record.phases))
        assert set(family(trainer)) == PARTS

    def test_that_tests_what_it_has_trained_does_not_hang(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ProcessTrainer(reference_of(SLOW_TESTS), 2) as trainer:
            monkeypatch.setattr(trainer, "_patience_seconds", 5.0)
            record = trainer.train(spec_of(SLOW_TESTS, 2, 50.0))
        assert len(record.evaluations) == W // 25

    def test_that_hangs_is_replaced_as_well(
        self,
        trainer: ProcessTrainer,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(trainer, "_patience_seconds", 5.0)
        before = family(trainer)
        observer = strike_once(before["chief"].suspend)
        record = train_each_step_once(trainer, tmp_path, observer=observer)
        assert all_gone(list(before.values()))
        assert "the cluster of 2 workers hangs: it has said nothing for 5 s" in caplog.text
        assert [event.kind for event in record.events if event.worker is None][:1] == ["lost"]

    def test_is_replaced_while_a_run_goes_back_to_its_switch_and_in_its_second_try(
        self, trainer: ProcessTrainer, tmp_path: Path
    ) -> None:
        strikes = ["switched", "alarmed"]

        class Killing(RecordingObserver):
            def on_event(self, event: RunEvent) -> None:
                super().on_event(event)
                if strikes[-1:] == [event.kind]:
                    strikes.pop()
                    family(trainer)["chief"].kill()

        guard = {"band": Band(2.0, 0.01), "retry_percents": (75.0,)}
        spec = spec_of(COUNTING, 2, 50.0, checkpoint_percents=PERCENTS, **guard)
        observer = Killing()
        record, state = train_to_end(trainer, spec, tmp_path, observer)
        np.testing.assert_array_equal(state.parameters, counted())
        assert [phase.protocol for phase in record.phases] == ["bsp"]
        assert record.spec == replace(spec, checkpoint_directory=tmp_path)
        assert record.guard is not None
        assert [one.switch_percent for one in record.guard.failed] == [50.0, 75.0]
        assert Counter(event.kind for event in record.events)["lost"] == 2
        # It is told of the tests of the first protocol too, which are others.
        after = [one for one in record.evaluations if one.worker_step > 0.75 * W]
        assert tuple(observer.evaluations[-len(after) :]) == tuple(after)
        assert len(observer.evaluations) >= len(record.evaluations) + len(after)

    def test_fails_a_run_without_checkpoints_but_not_the_trainer(
        self, trainer: ProcessTrainer
    ) -> None:
        before, folder = family(trainer), trainer._folder
        assert folder is not None
        observer = strike_once(lambda: before["chief"].send_signal(signal.SIGABRT))
        with pytest.raises(RetryableError) as error:
            trainer.train(spec_of(COUNTING, 2, 0.0), observer)
        text = str(error.value)
        assert text.startswith("the cluster of 2 workers died of SIGABRT; its last output: ")
        kept = str(folder.path).replace("syncswitch-cluster-", "syncswitch-logs-")
        assert text.endswith(f"; its logs are in {kept}")
        assert "\n" not in text
        assert Path(kept, "chief.log").is_file()
        assert all_gone(list(before.values()))
        assert trainer.train(spec_of(COUNTING, 2, 50.0)).worker_steps == W
        assert set(family(trainer)) == PARTS
        assert trainer._folder != folder


OWNER = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[2]
from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer
from tests.trainers.cluster.launchers import family
trainer = ProcessTrainer(sys.argv[1], 2)
assert len(family(trainer)) == 4
import psutil
print(*[one.pid for one in psutil.Process().children(recursive=True)], flush=True)
time.sleep(1000)
"""


def test_killed_itself_it_leaves_no_process_behind_even_stopped_and_no_folder_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = WarmProcess(OWNER, reference_of(LONG), str(tmp_path), folder=tmp_path)
    processes = [psutil.Process(int(one)) for one in owner.stdout.readline().split()]
    assert len(processes) == 5, "and the one that has forked them"
    for process in processes[:3]:
        process.suspend()
    owner.send_signal(signal.SIGSTOP)
    owner.kill()
    assert all_gone(processes)
    assert len(list(tmp_path.glob("syncswitch-cluster-*"))) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with OwnedFolder("syncswitch-cluster-other-") as neighbour:
        with fails("workload-not-found", "no_such_name") as error:
            ProcessTrainer("tests.trainers.jobs:no_such_name", 2)
        assert "\n" not in str(error.value)
        assert list(tmp_path.glob("syncswitch-cluster-*")) == [neighbour]


def test_what_is_refused_by_the_chief_that_sees_no_gpu_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(psutil.Process().children(recursive=True))
    with fails("workload-unsuitable", r"metric.* GPUs: -1"):
        ProcessTrainer(f"{__name__}:BROKEN_METRIC", 2)
    assert list(tmp_path.iterdir()) == []
    until(lambda: len(set(psutil.Process().children(recursive=True)) - before) <= 1)


def test_nobody_else_may_enter_the_folder_in_which_they_meet_and_close_leaves_nothing(
    trainer: ProcessTrainer,
) -> None:
    """Nothing of it is on any network."""
    assert trainer._folder is not None
    folder, found = trainer._folder.path, family(trainer)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert any(path.is_socket() for path in folder.iterdir())
    assert set(found) == PARTS
    assert all(process.net_connections("inet") == [] for process in found.values())
    trainer.close()
    assert all_gone(list(found.values()))
    assert not folder.exists()
    trainer.close()


def seen_gpus(trainer: ProcessTrainer) -> dict[str, str]:
    """`CUDA_VISIBLE_DEVICES` of each part that is a program of its own from the start."""
    found = {}
    for name, process in family(trainer).items():
        if "syncswitch.trainers.cluster.exchange.parts" in process.cmdline():
            environment = process.environ()
            assert "worker" not in name or environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
            for of in ("INTRAOP", "INTEROP"):
                # One worker has all cores.
                assert environment[f"TF_NUM_{of}_THREADS"] == str(os.cpu_count())
            found[name] = environment["CUDA_VISIBLE_DEVICES"]
    return found


@pytest.mark.slow
def test_with_gpus_each_part_begins_with_its_own_environment() -> None:
    """On CPUs: the environment says which GPUs there would be, and the steps stay on CPU:0."""
    # A third one would take as long again to import TensorFlow.
    launcher = LocalLauncher(place_on_gpus(1, ["7"], 0.5))
    expected = {"ps-0": "-1", "worker-0": "7"}
    with ProcessTrainer(reference_of(BRIEF), 1, launcher) as trainer:
        processes = list(family(trainer).values())
        assert seen_gpus(trainer) == expected
        conditions = RunConditions(injections=("kill:worker=0,at=20%",))
        record = trainer.train(spec_of(BRIEF, 1, 25.0, conditions=conditions))
        assert record.worker_steps == BRIEF.total_worker_steps
        kinds = Counter(event.kind for event in record.events)
        assert kinds == {"injected": 1, "lost": 1, "returned": 1, "switched": 1}
        assert seen_gpus(trainer) == expected, "of the replacement too"
        processes += family(trainer).values()
    assert all_gone(processes)


def test_a_folder_in_which_processes_cannot_meet_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / os.fsdecode(b"donn\xe9es")))
    with fails("file-unusable", r"files '.*donn\\udce9es' is not UTF-8 text.* set TMPDIR"):
        ProcessTrainer("digits", 1)
