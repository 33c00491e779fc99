from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.stragglers.online import OnlineController
from syncswitch.trainers.trainer import Verdict
from tests.failing import fails
from tests.trainers import jobs
from tests.trainers.final import train_to_end
from tests.trainers.jobs import (
    BRIEF,
    CONSTANT,
    BatchLog,
    BusyGate,
    RecordingObserver,
    constant_data,
    counted,
    momentum_answer,
    phases_answer,
    spec_of,
)

MakeTrainer = Callable[[Workload, int], ClusterTrainer]


def test_a_held_worker_is_as_stale_as_the_others_were_busy_in_its_phase_alone(
    make_trainer: MakeTrainer,
) -> None:
    """Meanwhile 40 batches start; all except those under way are applied."""
    slow = BusyGate(40, batches=40)
    workload = replace(CONSTANT, data=lambda: replace(constant_data(), transform=slow.transform))
    trainer = make_trainer(workload, 4)
    record = trainer.train(spec_of(workload, 4, 60.0, protocols=("asp", "bsp")))
    assert not slow.timed_out
    stale, fresh = record.phases
    # 3 others may not have applied theirs; 4 may have been applied before the pull was read.
    assert 40 - 3 - 4 <= stale.max_staleness < 120
    assert stale.max_staleness / 120 <= stale.mean_staleness <= 4 + stale.max_staleness / 120
    assert fresh.max_staleness == 0


def batches_of(
    make_trainer: MakeTrainer, workers: int, switch_percent: float
) -> dict[int, list[int]]:
    """Returns the examples in each batch of 6 of 50 examples."""
    log = BatchLog()
    numbers = np.arange(50, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    labels = np.zeros((50, 1), np.float32)
    data = Data(numbers, labels, numbers, labels, transform=log.transform)
    workload = replace(
        CONSTANT, data=lambda: data, total_worker_steps=125, batch_size=6, learning_rate=1e-6
    )
    trainer = make_trainer(workload, workers)
    log.batches.clear()
    log.calls = 0
    trainer.train(spec_of(workload, workers, switch_percent, seed=4))
    assert log.calls == 125, "a batch was computed twice or not at all"
    return log.batches


def test_each_epoch_holds_each_example_once_across_workers_and_the_switch(
    make_trainer: MakeTrainer,
) -> None:
    """Neither workers nor protocols change the batches."""
    batches = batches_of(make_trainer, 4, 50.0)
    row = list(chain(*(batches[step] for step in range(125))))
    for epoch in range(15):
        assert Counter(row[50 * epoch : 50 * epoch + 50]) == Counter(range(50))
    assert batches_of(make_trainer, 1, 100.0) == batches
    assert batches_of(make_trainer, 5, 0.0) == batches


SMALL = {W: replace(CONSTANT, total_worker_steps=W) for W in (1, 3, 5)}


@pytest.mark.parametrize("W", SMALL)
@pytest.mark.parametrize("switch_percent", [0.0, 50.0, 100.0])
def test_a_job_may_be_shorter_than_a_round_or_two(
    make_trainer: MakeTrainer, tmp_path: Path, W: int, switch_percent: float
) -> None:
    trainer = make_trainer(SMALL[W], 4)
    record, state = train_to_end(trainer, spec_of(SMALL[W], 4, switch_percent), tmp_path)
    assert record.worker_steps == W
    assert record.evaluations[-1].worker_step == W
    if switch_percent == 100.0:
        rounds = [4] * (W // 4) + [W % 4] * (W % 4 > 0)
        assert state.updates == len(rounds)
        # Each round at its own number of gradients: n' * eta.
        expected, _ = momentum_answer([0.01 * members for members in rounds], 0.9)
        np.testing.assert_allclose(state.parameters, expected, rtol=1e-5)


def test_an_evaluation_after_each_update_has_a_loss_and_a_time(make_trainer: MakeTrainer) -> None:
    """The tightest schedule: an evaluation is due with each push of each worker."""
    eager = replace(CONSTANT, evaluation_interval_worker_steps=1)
    record = make_trainer(eager, 4).train(spec_of(eager, 4, 50.0))
    steps = [evaluation.worker_step for evaluation in record.evaluations]
    assert steps == [*range(4, 101, 4), *range(101, 201)]
    seconds = [evaluation.elapsed_seconds for evaluation in record.evaluations]
    assert seconds == sorted(seconds)
    assert np.isfinite([evaluation.training_loss for evaluation in record.evaluations]).all()


def test_who_looks_on_knows_of_each_checkpoint(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """Otherwise a chief could be lost before the step from which the run continues."""
    percents = (20.0, 50.0, 100.0)
    spec = spec_of(CONSTANT, 4, 50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path)
    observer = RecordingObserver()
    make_trainer(CONSTANT, 4).train(spec, observer)
    assert {40, 100, 200} <= set(observer.progress)


W = 600
COUNTING = replace(jobs.COUNTING, total_worker_steps=W)
KILLS = ("kill:worker=1,at=20%", "kill:worker=0,at=45%", "kill:worker=1,at=60%")


def kinds(record: TrialRecord) -> Counter[str]:
    return Counter(event.kind for event in record.events)


def threads_of_runs() -> set[threading.Thread]:
    """All threads but those that a cluster keeps from run to run."""
    return {one for one in threading.enumerate() if not one.name.startswith("members")}


def train_each_step_once(
    trainer: ClusterTrainer, spec: TrialSpec, folder: Path
) -> tuple[TrialRecord, ModelState]:
    """Makes a run in which each worker-step has to count once, and all threads have to end."""
    before = threads_of_runs()
    record, state = train_to_end(trainer, spec, folder)
    assert threads_of_runs() == before
    assert record.worker_steps == W
    steps = [phase.end_worker_step - phase.start_worker_step for phase in record.phases]
    assert sum(steps) == W
    np.testing.assert_array_equal(state.parameters, counted(W))
    return record, state


def test_what_a_launcher_cannot_do_is_refused(make_trainer: MakeTrainer) -> None:
    conditions = RunConditions(injections=("hang:worker=0,at=30%",))
    with fails("parameter-invalid", "hang:worker=0"):
        make_trainer(COUNTING, 1).train(spec_of(COUNTING, 1, 50.0, conditions=conditions))


class TestStragglers:
    SLOW = "straggler:worker=4,at=5%,for=30%,delay=40ms"

    @pytest.fixture(autouse=True)
    def busy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A busy machine slows nobody down: steps without the whole delay all take as long."""
        observe = OnlineController.observe

        def observed(controller: OnlineController, worker: int, busy_seconds: float) -> None:
            is_delayed = worker == 4 and busy_seconds >= 0.04
            observe(controller, worker, busy_seconds if is_delayed else 0.001)

        monkeypatch.setattr(OnlineController, "observe", observed)

    def spec(self, online: str, workload: Workload = COUNTING) -> TrialSpec:
        conditions = RunConditions(online, injections=(self.SLOW,))
        return spec_of(workload, 5, 70.0, conditions=conditions)

    def test_elastic_goes_on_without_them_until_the_switch(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        trainer = make_trainer(COUNTING, 5)
        record, state = train_each_step_once(trainer, self.spec("elastic"), tmp_path)
        by_kind = {event.kind: event for event in record.events if event.worker == 4}
        assert {"injected", "detected", "removed", "restored"} <= set(by_kind)
        assert by_kind["removed"].worker_step < 0.3 * W
        assert by_kind["restored"].worker_step == pytest.approx(0.7 * W, abs=5)
        assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
        # Rounds of four gradients after it was removed, of five before; the learning rate follows.
        removed_at = by_kind["removed"].worker_step
        assert state.updates >= removed_at / 5 + (0.7 * W - removed_at) / 4

    def test_greedy_leaves_the_first_protocol_and_comes_back_to_it(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """A detour has the second protocol's momentum."""
        workload = replace(COUNTING, momentum=0.9, momentum_after_switch="zero")
        spec = self.spec("greedy", workload)
        record, state = train_to_end(make_trainer(workload, 5), spec, tmp_path)
        protocols = [phase.protocol for phase in record.phases]
        assert protocols[:2] == ["bsp", "asp"]
        assert record.phases[1].start_worker_step < 0.5 * W
        first = [phase for phase in record.phases if phase.protocol == "bsp"]
        done = sum(phase.end_worker_step - phase.start_worker_step for phase in first)
        if len(first) > 1 and protocols[-1] == "asp":
            assert done == 420, "the first protocol has its full share, detours not counted"
        assert done <= 420
        np.testing.assert_allclose(state.parameters, phases_answer(workload, record), rtol=1e-4)


def test_a_restart_at_the_switch_trains_what_a_hot_switch_trains(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    spec = spec_of(BRIEF, 4, 50.0, protocols=("bsp", "ds-sync:4"), checkpoint_directory=tmp_path)
    hot, restarted = (
        make_trainer(BRIEF, 4).train(
            replace(spec, conditions=RunConditions(switch_mechanism=mechanism))
        )
        for mechanism in ("hot", "restart")
    )
    assert [one.accuracy for one in hot.evaluations] == [
        one.accuracy for one in restarted.evaluations
    ]
    assert min(restarted.switch_overhead_seconds, hot.switch_overhead_seconds) > 0
    (event,) = [event for event in restarted.events if event.kind == "switched"]
    assert event.seconds == restarted.switch_overhead_seconds
    # It is the price of the switch, so it is part of the time.
    total = sum(phase.seconds for phase in restarted.phases)
    assert total == pytest.approx(restarted.training_seconds)
    assert restarted.phases[1].seconds > restarted.switch_overhead_seconds
    assert not list(tmp_path.iterdir()), "the checkpoint of the switch is of no further use"


class TestResume:
    @pytest.fixture
    def trainer(self, make_trainer: MakeTrainer) -> ClusterTrainer:
        return make_trainer(BRIEF, 4)

    def spec(self, folder: Path, **fields: Any) -> TrialSpec:
        return spec_of(
            *(BRIEF, 4, 50.0),
            protocols=("bsp", "local-sgd:1"),  # both repeatable
            checkpoint_percents=(20.0, 40.0, 60.0, 80.0),
            checkpoint_directory=folder,
            **fields,
        )

    def interrupt(self, trainer: ClusterTrainer, folder: Path) -> None:
        def at_step_120(evaluation: Evaluation) -> Verdict:
            if evaluation.worker_step >= 120:
                raise KeyboardInterrupt
            return Verdict.CONTINUE

        with pytest.raises(KeyboardInterrupt):
            trainer.train(self.spec(folder), RecordingObserver(at_step_120))
        assert len(list(folder.glob("*.npz"))) >= 2

    def test_it_ends_as_the_whole_run_does_though_the_last_checkpoint_is_damaged(
        self, trainer: ClusterTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        whole, state = train_to_end(trainer, self.spec(tmp_path / "whole"), tmp_path)
        broken = tmp_path / "broken"
        self.interrupt(trainer, broken)
        last = max(broken.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
        last.write_bytes(last.read_bytes()[:-200])
        resumed, found = train_to_end(trainer, self.spec(broken, resume=True), tmp_path)
        assert f"{last}" in caplog.text
        assert "passing over it" in caplog.text
        np.testing.assert_array_equal(found.parameters, state.parameters)
        assert [(one.worker_step, one.accuracy) for one in resumed.evaluations] == [
            (one.worker_step, one.accuracy) for one in whole.evaluations
        ]
        assert resumed.worker_steps == BRIEF.total_worker_steps
        assert resumed.inherited_seconds == 0, "it paid for all of it"
        assert sorted(resumed.checkpoints) == sorted(whole.checkpoints), "it wrote all of them"
        assert all(path.exists() for path in resumed.checkpoints.values())
        assert kinds(resumed)["resumed"] == 1
        seconds = [one.elapsed_seconds for one in resumed.evaluations]
        assert seconds == sorted(seconds)

    def test_without_a_checkpoint_it_starts_afresh(
        self, trainer: ClusterTrainer, tmp_path: Path
    ) -> None:
        """Files that a killed chief left half-written are removed."""
        spec = self.spec(tmp_path, resume=True)
        path = checkpoint_path(spec, 40.0, ".npz")
        unfinished, somebody_elses = tmp_path / f".{path.name}.4711", tmp_path / ".profile"
        unfinished.write_bytes(b"PK")
        somebody_elses.touch()
        record = trainer.train(spec)
        assert record.worker_steps == BRIEF.total_worker_steps
        assert kinds(record)["resumed"] == 0
        assert not unfinished.exists()
        assert somebody_elses.exists()

    def test_a_checkpoint_of_another_job_is_refused(
        self, make_trainer: MakeTrainer, trainer: ClusterTrainer, tmp_path: Path
    ) -> None:
        self.interrupt(trainer, tmp_path)
        other = replace(BRIEF, learning_rate=0.03)
        identity = spec_of(other, 4, 50.0, protocols=("bsp", "local-sgd:1")).identity
        spec = replace(self.spec(tmp_path, resume=True), identity=identity)
        with fails("checkpoint-unusable", "of another run: job was"):
            make_trainer(other, 4).train(spec)


class TestCheckpointsThatCannotBeWritten:
    def test_a_restart_at_the_switch_needs_no_file(
        self, make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        conditions = RunConditions(switch_mechanism="restart", injections=KILLS)
        trainer = make_trainer(COUNTING, 3)
        spec = spec_of(COUNTING, 3, 50.0, conditions=conditions)
        record, _ = train_each_step_once(trainer, spec, tmp_path)
        assert kinds(record)["unsaved"] == 1
