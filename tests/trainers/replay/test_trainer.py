"""Replayed runs: the trainers' contract on generated recordings, stops and forks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.replay.recording import RecordedRun, Recording
from syncswitch.trainers.replay.trainer import ReplayTrainer
from syncswitch.trainers.trainer import Verdict
from tests.identities import GENERATED
from tests.trainers.generated_recording import recording_of, run_of
from tests.trainers.jobs import RecordingObserver
from tests.trainers.trainer_contract import ForkContract

PAIR = ("bsp", "asp")
SETTINGS = (0.0, 2.0, 25.0, 37.5, 40.0, 50.0, 60.0, 99.0, 100.0)

IDENTITY = replace(
    GENERATED,
    total_worker_steps=400,
    learning_rate_boundaries=((200, 0.1),),
    evaluation_interval_worker_steps=20,
)
RECORDING = recording_of(IDENTITY, (100.0, 50.0, 25.0), seeds=(1, 2, 3))


@pytest.fixture(scope="module")
def make_trainer() -> Callable[[Workload, int], ReplayTrainer]:
    """The trainer of generated recordings, of both orders of the protocols."""

    @cache
    def make(workload: Workload, workers: int) -> ReplayTrainer:
        pairs = (PAIR, PAIR[::-1])
        identities = [workload_identity(workload, workers, *pair) for pair in pairs]
        return ReplayTrainer(*(recording_of(one, SETTINGS, seeds=(1, 2)) for one in identities))

    return make


class TestReplayTrainer(ForkContract):
    virtual_time: ClassVar[bool] = True


def spec(switch_percent: float, seed: int = 1, **fields: Any) -> TrialSpec:
    identity = fields.pop("identity", IDENTITY)
    return TrialSpec(identity, switch_percent, seed, **fields)


def stopping_at(number: int) -> RecordingObserver:
    """Stops a run at its `number`-th evaluation, from 1."""
    observer = RecordingObserver(
        lambda _: Verdict.STOP if len(observer.evaluations) == number else Verdict.CONTINUE
    )
    return observer


def refusal(trainer: ReplayTrainer, trial: TrialSpec) -> str:
    with pytest.raises(UserError) as caught:
        trainer.train(trial)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestWhichRun:
    def test_the_seed_decides_where_it_was_recorded(self) -> None:
        for seed in (1, 2, 3):
            record = ReplayTrainer(RECORDING).train(spec(50.0, seed, replicate=7))
            assert record.evaluations == run_of(IDENTITY, 50.0, seed).evaluations

    def test_else_the_replicates_draw_without_replacement(self) -> None:
        trainer = ReplayTrainer(RECORDING, deck_seed=4)

        def measured(replicate: int) -> float:
            return trainer.train(spec(50.0, 99, replicate=replicate)).converged_accuracy

        expected = sorted(run.accuracy for run in RECORDING.at(50.0))
        assert len(set(expected)) == 3
        for first in (0, 3, 6):
            assert sorted(measured(first + i) for i in range(3)) == expected
        again = ReplayTrainer(RECORDING, deck_seed=4).train(spec(50.0, 99, replicate=5))
        assert again.converged_accuracy == measured(5)

    def test_a_recorded_run_cannot_go_back_so_no_guard_watches_it(self) -> None:
        guarded = spec(50.0, band=Band(2.0, 0.01))
        record = ReplayTrainer(RECORDING).train(guarded)
        assert (record.spec, record.guard) == (guarded, None)
        assert record.evaluations == run_of(IDENTITY, 50.0, 1).evaluations

    def test_what_nobody_recorded_is_refused(self) -> None:
        message = refusal(ReplayTrainer(RECORDING), spec(12.5))
        assert "at 12.5 % is recorded (recorded: 100, 50, 25)" in message

    @pytest.mark.parametrize(
        "conditions", [RunConditions("greedy"), RunConditions(injections=("kill:ps,at=60%",))]
    )
    def test_a_disturbed_one_is_refused(self, conditions: RunConditions) -> None:
        with pytest.raises(UserError, match="leave these out, or choose another --trainer"):
            ReplayTrainer(RECORDING).train(spec(50.0, conditions=conditions))

    def test_a_recording_without_runs_has_no_answers(self) -> None:
        assert "(recorded: none)" in refusal(ReplayTrainer(Recording(IDENTITY, ())), spec(50.0))


class TestStops:
    @pytest.mark.parametrize("number", [1, 5, 12])
    def test_a_run_costs_what_it_took_up_to_there(self, number: int) -> None:
        whole = run_of(IDENTITY, 50.0, 1)
        record = ReplayTrainer(RECORDING).train(spec(50.0), stopping_at(number))
        last = whole.evaluations[number - 1]
        assert record.evaluations == whole.evaluations[:number]
        assert record.training_seconds == record.paid_seconds == last.elapsed_seconds
        assert record.worker_steps == record.phases[-1].end_worker_step == last.worker_step
        assert sum(p.seconds for p in record.phases) == pytest.approx(last.elapsed_seconds)
        accuracies = [one.accuracy for one in record.evaluations[-5:]]
        assert record.converged_accuracy == pytest.approx(sum(accuracies) / len(accuracies))
        assert record.stopped_early

    def test_the_accuracy_of_a_whole_run_is_its_recordings(self) -> None:
        runs = tuple(replace(run, converged_evaluations=1) for run in RECORDING.runs)
        trainer = ReplayTrainer(replace(RECORDING, runs=runs))
        assert trainer.train(spec(50.0)).converged_evaluations == 1
        assert trainer.train(spec(50.0), stopping_at(12)).converged_evaluations == 5

    def test_a_stopped_fork_pays_from_its_checkpoint_on(self, tmp_path: Path) -> None:
        trainer = ReplayTrainer(RECORDING)
        prefix = trainer.train(
            spec(100.0, checkpoint_percents=(25.0,), checkpoint_directory=tmp_path)
        )
        fork = trainer.train(spec(50.0, fork_from=prefix.checkpoints[25.0]), stopping_at(2))
        assert fork.worker_steps == 140
        assert fork.paid_seconds == pytest.approx(40 * 0.01)
        assert fork.training_seconds == fork.evaluations[-1].elapsed_seconds
        assert [(p.protocol, p.start_worker_step) for p in fork.phases] == [("bsp", 100)]

    def test_of_what_diverges_later_nothing_is_known(self) -> None:
        healthy = run_of(IDENTITY, 50.0, 1)
        ill = replace(healthy, diverged=True, worker_steps=390, training_seconds=2.95)
        trainer = ReplayTrainer(Recording(IDENTITY, (ill,)))
        assert trainer.train(spec(50.0)).diverged
        assert not trainer.train(spec(50.0), stopping_at(3)).diverged

    def test_a_run_that_diverged_leaves_what_came_before(self, tmp_path: Path) -> None:
        flat = tuple(Evaluation(step, step / 100, 0.1, 2.3) for step in range(20, 301, 20))
        ill = RecordedRun(
            100.0, 0.1, 3.0, diverged=True, worker_steps=300, evaluations=flat, seed=1
        )
        trial = spec(100.0, checkpoint_percents=(50.0, 75.0, 90.0), checkpoint_directory=tmp_path)
        record = ReplayTrainer(Recording(IDENTITY, (ill,))).train(trial)
        assert record.diverged
        assert not record.converged
        assert not record.stopped_early
        assert set(record.checkpoints) == {50.0}

    def test_checkpoints_lie_where_the_run_got_to(self, tmp_path: Path) -> None:
        trial = spec(
            50.0, checkpoint_percents=(5.0, 10.0, 15.0, 90.0), checkpoint_directory=tmp_path
        )
        record = ReplayTrainer(RECORDING).train(trial, stopping_at(2))
        assert record.worker_steps == 40
        assert set(record.checkpoints) == {5.0}
        assert sorted(tmp_path.iterdir()) == sorted(record.checkpoints.values())


class TestForks:
    @pytest.fixture
    def prefix(self, tmp_path: Path) -> TrialRecord:
        trial = spec(100.0, 1, checkpoint_percents=(25.0, 75.0), checkpoint_directory=tmp_path)
        return ReplayTrainer(RECORDING).train(trial)

    def test_one_of_the_same_switch_point_goes_on_with_the_same_run(
        self, prefix: TrialRecord
    ) -> None:
        for seed in (1, 2):
            trial = spec(100.0, seed, replicate=5, fork_from=prefix.checkpoints[25.0])
            fork = ReplayTrainer(RECORDING).train(trial)
            after = tuple(one for one in prefix.evaluations if one.worker_step > 100)
            assert [(one.worker_step, one.accuracy) for one in fork.evaluations] == [
                (one.worker_step, one.accuracy) for one in after
            ]
            assert fork.training_seconds == pytest.approx(prefix.training_seconds)
            assert fork.converged_accuracy == prefix.converged_accuracy

    def test_the_clock_goes_on_from_what_was_inherited(self, prefix: TrialRecord) -> None:
        """Even if the replayed run was twice as slow up to there."""
        run = run_of(IDENTITY, 50.0, 9)
        bsp, asp = run.phases
        slow = replace(
            run,
            phases=(replace(bsp, seconds=2 * bsp.seconds), asp),
            training_seconds=run.training_seconds + bsp.seconds,
            evaluations=tuple(
                replace(
                    one,
                    elapsed_seconds=one.elapsed_seconds + 0.01 * min(one.worker_step, 200),
                )
                for one in run.evaluations
            ),
        )
        trainer = ReplayTrainer(Recording(IDENTITY, (slow,)))
        fork = trainer.train(spec(50.0, 9, fork_from=prefix.checkpoints[25.0]))
        assert fork.inherited_seconds == pytest.approx(1.0)
        assert fork.paid_seconds == pytest.approx(100 * 0.02 + 200 * 0.004)
        assert [p.seconds for p in fork.phases] == pytest.approx([100 * 0.02, 200 * 0.004])
        assert fork.evaluations[0].elapsed_seconds == pytest.approx(1.0 + 20 * 0.02)
        assert fork.evaluations[-1].elapsed_seconds == pytest.approx(fork.training_seconds)
        assert fork.switch_overhead_seconds == slow.switch_overhead_seconds

    def test_one_of_a_fork_inherits_what_both_took(
        self, prefix: TrialRecord, tmp_path: Path
    ) -> None:
        trainer = ReplayTrainer(RECORDING)
        wanted = {"checkpoint_percents": (50.0, 75.0), "checkpoint_directory": tmp_path / "second"}
        first = trainer.train(spec(50.0, fork_from=prefix.checkpoints[25.0], **wanted))
        second = trainer.train(spec(50.0, 2, fork_from=first.checkpoints[75.0]))
        assert second.inherited_seconds == pytest.approx(200 * 0.01 + 100 * 0.004)
        assert second.training_seconds == pytest.approx(first.training_seconds)
        assert second.converged_accuracy == first.converged_accuracy
        assert first.switch_overhead_seconds > 0
        assert second.switch_overhead_seconds == 0.0

    def test_the_times_before_the_fork_may_differ(self, prefix: TrialRecord) -> None:
        """The checkpoint says how long it took up to there, not the run that is played."""
        content = json.loads(prefix.checkpoints[25.0].read_text())
        slower = {**content, "elapsed_seconds": 7.0}
        prefix.checkpoints[25.0].write_text(json.dumps(slower))
        wanted = {
            "checkpoint_percents": (75.0,),
            "checkpoint_directory": prefix.checkpoints[25.0].parent,
        }
        trainer = ReplayTrainer(RECORDING)
        first = trainer.train(spec(50.0, fork_from=prefix.checkpoints[25.0], **wanted))
        second = trainer.train(spec(50.0, fork_from=first.checkpoints[75.0]))
        assert first.inherited_seconds == 7.0
        assert second.inherited_seconds == pytest.approx(7.0 + 100 * 0.01 + 100 * 0.004)

    def test_one_that_diverged_before_its_checkpoint_pays_nothing(
        self, prefix: TrialRecord
    ) -> None:
        unknown = RecordedRun(50.0, 0.0, 0.0, diverged=True)
        fork = ReplayTrainer(Recording(IDENTITY, (unknown,))).train(
            spec(50.0, fork_from=prefix.checkpoints[25.0])
        )
        assert fork.diverged
        assert fork.paid_seconds == 0.0
        assert (fork.worker_steps, fork.phases, fork.evaluations) == (100, (), ())

    def test_one_beyond_its_own_switch_is_refused(self, prefix: TrialRecord) -> None:
        trial = spec(50.0, fork_from=prefix.checkpoints[75.0])
        assert "this trial switches at 200" in refusal(ReplayTrainer(RECORDING), trial)

    def test_one_of_a_longer_job_is_refused(self, prefix: TrialRecord) -> None:
        shorter = replace(IDENTITY, total_worker_steps=80)
        trainer = ReplayTrainer(recording_of(shorter, (100.0,), (1,)))
        trial = spec(100.0, identity=shorter, fork_from=prefix.checkpoints[25.0])
        assert "at worker-step 100, beyond the 80" in refusal(trainer, trial)

    @pytest.mark.parametrize("other", [{"model": "1" * 64}, {"model": None, "name": "other"}])
    def test_one_of_another_model_is_refused(
        self, prefix: TrialRecord, other: dict[str, Any]
    ) -> None:
        foreign = replace(IDENTITY, **other)
        trainer = ReplayTrainer(recording_of(foreign, (100.0,), (1,)))
        trial = spec(100.0, identity=foreign, fork_from=prefix.checkpoints[25.0])
        assert "of another model" in refusal(trainer, trial)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("worker_step", -1),
            ("worker_step", 1.5),
            ("elapsed_seconds", "soon"),
            ("elapsed_seconds", -0.5),
            ("surplus", 1),
            ("run", None),
        ],
    )
    def test_an_altered_checkpoint_is_refused(
        self, prefix: TrialRecord, name: str, value: object
    ) -> None:
        path = prefix.checkpoints[25.0]
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
        trial = spec(100.0, fork_from=path)
        assert "cannot be read" in refusal(ReplayTrainer(RECORDING), trial)

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        folder = tmp_path / "file" / "folder"
        trial = spec(100.0, checkpoint_percents=(25.0,), checkpoint_directory=folder)
        assert f"cannot make the folder {folder}" in refusal(ReplayTrainer(RECORDING), trial)


def test_a_loss_that_nobody_logged_stays_unknown() -> None:
    run = run_of(IDENTITY, 100.0, 1)
    unlogged = tuple(replace(one, training_loss=math.nan) for one in run.evaluations)
    recording = Recording(IDENTITY, (replace(run, evaluations=unlogged),))
    observer = RecordingObserver()
    ReplayTrainer(recording).train(spec(100.0), observer)
    assert all(math.isnan(one.training_loss) for one in observer.evaluations)


def test_a_model_tested_before_its_training_is_told_first() -> None:
    run = run_of(IDENTITY, 100.0, 1)
    untrained = Evaluation(0, 0.0, 0.1, 2.3)
    recording = Recording(IDENTITY, (replace(run, evaluations=(untrained, *run.evaluations)),))
    record = ReplayTrainer(recording).train(spec(100.0), stopping_at(1))
    assert record.evaluations == (untrained,)
    assert (record.worker_steps, record.training_seconds, record.phases) == (0, 0.0, ())
