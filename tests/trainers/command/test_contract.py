"""The trainers' contract, kept by a command that is a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.job import CommandJob, CommandTemplate
from syncswitch.trainers.command.trainer import CommandTrainer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Trainer
from tests.trainers.command.programs import TRAINS, command
from tests.trainers.trainer_contract import EXPLOSIVE, MakeTrainer, TrainerContract

MakeJob = Callable[[Workload, int], CommandJob]


@pytest.fixture(scope="session")  # as the contract keeps its whole runs
def make_job(tmp_path_factory: pytest.TempPathFactory) -> MakeJob:
    folder = tmp_path_factory.mktemp("command")
    template = command(folder, TRAINS.replace("sys.argv[1:]", "sys.argv[1:7]"))

    def make(workload: Workload, workers: int) -> CommandJob:
        words = (
            *template.words,
            *("{output_dir}", "{switch_step}", "{seed}", "{total_steps}"),
            str(workload.evaluation_interval_worker_steps),
            "explodes" if workload == EXPLOSIVE else "trains",
            f"--learning-rate={workload.learning_rate}",
        )
        return CommandJob(
            CommandTemplate(words),
            name=workload.name,
            total_steps=workload.total_worker_steps,
            workers=workers,
            protocols=("bsp", "asp"),
            output_folder=folder / "runs",
        )

    return make


@pytest.fixture(scope="session")
def make_trainer(make_job: MakeJob) -> MakeTrainer:
    return lambda workload, workers: CommandTrainer(make_job(workload, workers))


class TestCommandTrainer(TrainerContract):
    make_job: ClassVar[Any]

    @pytest.fixture(autouse=True)
    def jobs(self, make_job: MakeJob) -> None:
        type(self).make_job = staticmethod(make_job)

    def spec_of(
        self, workload: Workload, workers: int, switch_percent: float, **fields: Any
    ) -> TrialSpec:
        first, second = fields.pop("protocols", ("bsp", "asp"))
        identity = replace(
            self.make_job(workload, workers).identity, first_protocol=first, second_protocol=second
        )
        fields = {"seed": 1, **fields}
        return TrialSpec(identity, switch_percent, **fields)

    def test_the_seconds_of_the_phases_are_those_of_the_training(
        self, make_trainer: MakeTrainer
    ) -> None:
        """What the switch itself costs, a command does not say."""
        record = self.whole_run(make_trainer, 50.0)
        assert record.training_seconds == record.evaluations[-1].elapsed_seconds
        assert record.training_seconds == pytest.approx(sum(p.seconds for p in record.phases))
        assert (record.inherited_seconds, record.switch_overhead_seconds) == (0.0, 0.0)

    def test_in_bsp_nothing_is_stale(self, make_trainer: MakeTrainer) -> None:
        """A command does not count staleness."""
        (phase,) = self.whole_run(make_trainer, 100.0).phases
        assert (phase.mean_staleness, phase.max_staleness) == (None, None)

    def test_a_run_at_chance_after_the_first_decay_has_diverged(
        self, make_trainer: MakeTrainer
    ) -> None:
        """What chance is, only the command knows: it says so itself, see `test_reports`."""
        assert not self.whole_run(make_trainer, 0.0).diverged

    def test_an_unknown_protocol_is_refused(self, make_trainer: MakeTrainer) -> None:
        """Any name will do, and this is none."""
        self._is_refused(make_trainer, self.spec(50.0, protocols=("bsp", "two words")))

    def test_protocols_of_the_commands_own_are_names(self, make_trainer: MakeTrainer) -> None:
        record = self.train(make_trainer, 25.0, protocols=("ddp", "local-sgd"))
        assert [phase.protocol for phase in record.phases] == ["ddp", "local-sgd"]
        assert record.phases[0].end_worker_step == round(0.25 * self.workload.total_worker_steps)

    def test_a_run_of_another_trial_of_the_same_setting_has_a_folder_of_its_own(
        self, make_trainer: MakeTrainer, make_job: MakeJob
    ) -> None:
        trainer: Trainer = make_trainer(self.workload, self.workers)
        for _ in range(2):
            trainer.train(self.spec(3.0, replicate=7))
        runs = make_job(self.workload, self.workers).runs_folder
        found = sorted(path.name for path in runs.glob("switch-3-replicate-7*"))
        name = "switch-3-replicate-7-seed-1"
        assert found == [name, f"{name}-attempt-2"]
