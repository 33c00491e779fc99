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
        assert "(recorded: none)" in refusal(ReplayTrainer(Recording(IDENTITY, ())), spec(50.0))
        for conditions in (RunConditions("greedy"), RunConditions(injections=("kill:ps,at=60%",))):
            message = refusal(ReplayTrainer(RECORDING), spec(50.0, conditions=conditions))
            assert "leave these out, or choose another --trainer" in message


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

    def test_a_run_that_diverged_leaves_what_came_before(self, tmp_path: Path) -> None:
        flat = tuple(Evaluation(step, step / 100, 0.1, math.nan) for step in range(0, 301, 20))
        ill = RecordedRun(
            100.0, 0.1, 3.0, diverged=True, worker_steps=300, evaluations=flat, seed=1
        )
        trainer = ReplayTrainer(Recording(IDENTITY, (ill,)))
        trial = spec(100.0, checkpoint_percents=(50.0, 75.0, 90.0), checkpoint_directory=tmp_path)
        record = trainer.train(trial)
        assert (record.diverged, record.converged, record.stopped_early) == (True, False, False)
        assert set(record.checkpoints) == {50.0}
        # Tested before its training, and with a loss that nobody logged.
        assert repr(record.evaluations) == repr(flat)
        early = trainer.train(trial, stopping_at(1))
        assert (early.worker_steps, early.training_seconds, early.phases) == (0, 0.0, ())
        assert not early.diverged

    def test_checkpoints_lie_where_the_run_got_to(self, tmp_path: Path) -> None:
        percents = (5.0, 10.0, 15.0, 90.0)
        trial = spec(50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path)
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
        """The checkpoint says how long it took up to there, not the run that is played."""
        path = altered(prefix, "elapsed_seconds", 7.0)
        wanted = {"checkpoint_percents": (50.0, 75.0), "checkpoint_directory": path.parent / "new"}
        first = ReplayTrainer(RECORDING).train(spec(50.0, fork_from=path, **wanted))
        assert first.inherited_seconds == 7.0
        assert [p.seconds for p in first.phases] == pytest.approx([100 * 0.01, 200 * 0.004])
        assert first.paid_seconds == pytest.approx(100 * 0.01 + 200 * 0.004)
        assert first.evaluations[0].elapsed_seconds == pytest.approx(7.0 + 20 * 0.01)
        assert first.evaluations[-1].elapsed_seconds == pytest.approx(first.training_seconds)
        assert first.switch_overhead_seconds > 0
        second = ReplayTrainer(RECORDING).train(spec(50.0, 2, fork_from=first.checkpoints[75.0]))
        assert second.inherited_seconds == pytest.approx(7.0 + 100 * 0.01 + 100 * 0.004)
        assert second.training_seconds == pytest.approx(first.training_seconds)
        assert second.converged_accuracy == first.converged_accuracy
        assert second.switch_overhead_seconds == 0.0

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

    def test_one_that_is_stopped_pays_from_its_checkpoint_on(self, prefix: TrialRecord) -> None:
        path = prefix.checkpoints[25.0]
        fork = ReplayTrainer(RECORDING).train(spec(50.0, fork_from=path), stopping_at(2))
        assert fork.worker_steps == 140
        assert fork.paid_seconds == pytest.approx(40 * 0.01)
        assert fork.training_seconds == fork.evaluations[-1].elapsed_seconds
        assert [(p.protocol, p.start_worker_step) for p in fork.phases] == [("bsp", 100)]

    @pytest.mark.parametrize(
        ("other", "percent", "switch_percent", "message"),
        [
            ({}, 75.0, 50.0, "this trial switches at 200"),
            ({"total_worker_steps": 80}, 25.0, 100.0, "at worker-step 100, beyond the 80"),
            ({"model": "1" * 64}, 25.0, 100.0, "of another model"),
            ({"model": None, "name": "other"}, 25.0, 100.0, "of another model"),
        ],
    )
    def test_one_that_does_not_fit_is_refused(
        self,
        prefix: TrialRecord,
        other: dict[str, Any],
        percent: float,
        switch_percent: float,
        message: str,
    ) -> None:
        identity = replace(IDENTITY, **other)
        trainer = ReplayTrainer(recording_of(identity, (switch_percent,), (1,)))
        trial = spec(switch_percent, identity=identity, fork_from=prefix.checkpoints[percent])
        assert message in refusal(trainer, trial)

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
        trial = spec(100.0, fork_from=altered(prefix, name, value))
        assert "cannot be read" in refusal(ReplayTrainer(RECORDING), trial)

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        folder = tmp_path / "file" / "folder"
        trial = spec(100.0, checkpoint_percents=(25.0,), checkpoint_directory=folder)
        assert f"cannot make the folder {folder}" in refusal(ReplayTrainer(RECORDING), trial)


def altered(prefix: TrialRecord, name: str, value: object) -> Path:
    """The checkpoint at 25 % with another value."""
    path = prefix.checkpoints[25.0]
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    return path


def test_five_draws_have_the_published_means(authors: dict[int, Recording]) -> None:
    """5 runs of a switch point are recorded, and each of them is drawn once."""
    recording = authors[8]
    trainer = ReplayTrainer(recording, deck_seed=1)
    for percent, accuracy, seconds in (
        (100.0, 0.9188, 10604),
        (50.0, 0.9202, 5994),
        (25.0, 0.9178, 3883),
        (12.5, 0.9142, 2543),
        (6.25, 0.9182, 2084),
    ):
        records = [
            trainer.train(TrialSpec(recording.identity, percent, 1, replicate=replicate))
            for replicate in range(5)
        ]
        assert len({record.training_seconds for record in records}) == 5
        mean = sum(record.converged_accuracy for record in records) / 5
        assert mean == pytest.approx(accuracy, abs=6e-5)
        mean_seconds = sum(record.training_seconds for record in records) / 5
        assert mean_seconds == pytest.approx(seconds, rel=0.003)


def test_a_diverged_run_without_a_log_is_a_result(authors: dict[int, Recording]) -> None:
    record = ReplayTrainer(authors[16]).train(TrialSpec(authors[16].identity, 25.0, 1))
    assert record.diverged
    assert (record.converged_accuracy, record.training_seconds) == (0.0, 0.0)
    assert record.evaluations == ()
