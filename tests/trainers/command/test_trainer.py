"""Commands as they are: hanging, failing, silent, talking nonsense, with a family."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from syncswitch.storage.errors import FatalError, RetryableError, SyncSwitchError, UserError
from syncswitch.storage.records.job import Protocols, RunConditions
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.job import CommandJob, CommandTemplate
from syncswitch.trainers.command.trainer import CommandTrainer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Observer, Trainer
from tests.processes import has_ended, until
from tests.trainers.command.programs import FAMILY, GOOD, TRAINS, command, job_of, says, trial
from tests.trainers.jobs import RecordingObserver
from tests.trainers.trainer_contract import EXPLOSIVE, MakeTrainer, TrainerContract
from tests.wording import Said

PATTERN = r"step (?P<step>\d+) accuracy (?P<accuracy>\S+)"
HANGS = "time.sleep(600)"


class Clock:
    """What the trainer takes for the time."""

    now_seconds = 0.0

    def monotonic(self) -> float:
        return self.now_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("syncswitch.trainers.command.trainer.time", clock)
    return clock


def printed(job: CommandJob) -> str:
    return "".join(path.read_text() for path in job.runs_folder.glob("*/output.log"))


def failure(
    job: CommandJob,
    kind: type[SyncSwitchError] = RetryableError,
    observer: Observer | None = None,
    **fields: Any,
) -> str:
    with pytest.raises(kind) as error:
        CommandTrainer(job).train(trial(job, **fields), observer)
    message = str(error.value)
    assert "\n" not in message
    return message


class TestFailures:
    def test_lines_that_do_not_match_are_shown_early(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        after = "\n".join(
            (
                "for step in range(100): print('epoch', step, 'acc 0.5', flush=True)",
                "while not os.path.exists(folder + '/told'): time.sleep(0.01)",
            )
        )
        job = says(tmp_path, "", f"import os\n{after}", metric_pattern=PATTERN)

        def tell(_: int) -> None:
            if caplog.messages:
                for folder in job.runs_folder.iterdir():
                    (folder / "told").touch()

        message = failure(job, UserError, RecordingObserver(at_progress=tell))
        assert "no line matches" in message
        (line,) = caplog.messages
        assert line == (
            "the command has not reported its accuracy so far: no line matches the pattern"
            f" {PATTERN!r}; its last output: 'epoch 99 acc 0.5'"
        )

    def test_a_hung_or_silent_command_is_ended(self, tmp_path: Path, clock: Clock) -> None:
        def long_after(step: int) -> None:
            if step == 50 and "hello" in printed(job):
                clock.now_seconds += 31.0

        job = says(tmp_path / "hung", GOOD[:30], HANGS, timeout_seconds=60.0)
        assert failure(job, observer=RecordingObserver(at_progress=long_after)).startswith(
            "the command did not end within 60 s, its limit, at step 50 of 100 (its output: "
        )
        job = says(tmp_path / "silent", GOOD[:30], HANGS, silence_seconds=60.0)
        assert failure(job, observer=RecordingObserver(at_progress=long_after)).startswith(
            "the command printed and reported nothing for 60 s, the limit, at step 50 of 100 ("
        )

    def test_one_that_prints_is_not_silent(self, tmp_path: Path, clock: Clock) -> None:
        lengths = [0]

        def a_while_after_each_word(_: int) -> None:
            if len(printed(job)) > lengths[-1]:
                lengths.append(len(printed(job)))
                clock.now_seconds += 25.0
            if clock.now_seconds > 200:
                (folder,) = job.runs_folder.iterdir()
                (folder / "enough").touch()

        talks = (
            "import os\n"
            "while not os.path.exists(folder + '/enough'): print('.', flush=True); time.sleep(0.01)"
        )
        job = says(tmp_path, GOOD, talks, silence_seconds=60.0)
        record = CommandTrainer(job).train(
            trial(job), RecordingObserver(at_progress=a_while_after_each_word)
        )
        assert record.worker_steps == 100

    @pytest.mark.parametrize(
        ("text", "after", "message"),
        [
            (GOOD, "sys.exit(1)", "exit status 1, at step 100 of 100 (its output: "),
            ("", "import os; os.kill(os.getpid(), 9)", "status 137, perhaps killed by SIGKILL"),
            ("", "sys.exit(-1)", "failed with exit status 255, at step"),
            ("", "raise ValueError('no GPU')", "ValueError: no GPU"),
        ],
    )
    def test_one_that_fails_may_be_tried_again(
        self, tmp_path: Path, text: str, after: str, message: str
    ) -> None:
        job = says(tmp_path, text, f"print('x' * 9000); {after}")
        found = failure(job)
        assert message in found
        assert len(found) < 1000
        (log,) = job.runs_folder.glob("*/output.log")
        assert len(log.read_text()) > 9000
        assert str(log) in found

    def test_results_that_cannot_be_are_refused(self, tmp_path: Path, said: Said) -> None:
        for text, fields in (
            ('{"step": 100}\n', {}),
            ("", {"metric_pattern": PATTERN}),
            (GOOD[:30] + "oops\n", {}),
            (GOOD[:40], {}),  # cut off
            (GOOD, {"total_steps": 200}),
        ):
            job = says(tmp_path, text, **fields)
            said(failure(job, UserError).replace(job.runs_folder.name, "JOB"))

    def test_what_no_command_can_do_is_refused(self, tmp_path: Path, said: Said) -> None:
        job = says(tmp_path, GOOD)
        said(failure(job, UserError, fork_from=Path("x")))
        said(failure(job, UserError, checkpoint_percents=(50.0,)))
        said(failure(job, UserError, conditions=RunConditions("greedy")))
        assert not job.output_folder.exists()
        job.output_folder.write_text("")
        assert "name another with output_folder" in failure(job, UserError)


def test_a_full_folder_for_runs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = says(tmp_path, "")
    for method in ("mkdir", "write_text"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, full)
            said = failure(job, FatalError)
        assert f"folder for runs {job.runs_folder}" in said
        assert "free some disk space there" in said


class TestResults:
    def test_placeholders_and_environment_say_the_same(self, tmp_path: Path) -> None:
        names = ("SWITCH_STEP", "SWITCH_PERCENT", "SEED", "WORKERS", "OUTPUT_DIR")
        words = [f"{{{name.lower()}}}" for name in names]
        program = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
        job = job_of(tmp_path, command(tmp_path, program, *words), workers=3)
        failure(job, UserError)
        values, environment = json.loads(printed(job))
        (folder,) = job.runs_folder.iterdir()
        assert values == ["50", "50", "1", "3", str(folder)]
        assert [environment[f"SYNCSWITCH_{name}"] for name in names] == values

    @pytest.mark.parametrize(
        ("text", "after"),
        [
            (GOOD[:30] + '{"diverged": true}\n', HANGS),
            ('{"step": 50, "loss": NaN}\n', "sys.exit(3)"),  # it fails for that reason
        ],
    )
    def test_a_command_that_diverged_is_ended(self, tmp_path: Path, text: str, after: str) -> None:
        job = says(tmp_path, text, after)
        assert CommandTrainer(job).train(trial(job)).diverged

    def test_output_is_read_with_a_pattern(self, tmp_path: Path) -> None:
        pattern = r"step (?P<step>\d+): (?P<accuracy>\S+) after (?P<seconds>\S+)"
        prints = "print('step 50: 0.5 after 2\\rstep 100: 0.75 after 3', end='')"
        job = says(tmp_path, "not read", prints, metric_pattern=pattern, workers=8)
        record = CommandTrainer(job).train(trial(job, 13.0))
        assert [e.accuracy for e in record.evaluations] == [0.5, 0.75]
        assert record.training_seconds == 3.0
        # A step of the command, however many workers it has.
        assert record.phases[0].end_worker_step == 13


class TestProcesses:
    def family(self, folder: Path, after: str = HANGS, **fields: Any) -> CommandJob:
        return job_of(folder, command(folder, FAMILY, "{output_dir}", after), **fields)

    def assert_all_are_gone(self, job: CommandJob) -> None:
        (folder,) = job.runs_folder.iterdir()
        for name in ("child", "grandchild"):
            assert has_ended(int((folder / name).read_text()))

    @pytest.mark.parametrize("error", [UserError("disk full"), KeyboardInterrupt()])
    def test_a_command_is_ended_with_all_that_it_started(
        self, tmp_path: Path, error: BaseException
    ) -> None:
        """Also what has a session of its own, lost its parent, and does not care for SIGTERM."""

        def fail(_: int) -> None:
            if "all are there" in printed(job):
                raise error

        job = self.family(tmp_path)
        with pytest.raises(type(error)):
            CommandTrainer(job).train(trial(job), RecordingObserver(at_progress=fail))
        self.assert_all_are_gone(job)

    def test_nothing_is_left_of_a_command_that_ended(self, tmp_path: Path) -> None:
        job = self.family(tmp_path, "sys.exit(3)")
        assert "exit status 3" in failure(job)
        self.assert_all_are_gone(job)

    def test_nothing_is_left_when_the_searcher_is_killed(self, tmp_path: Path) -> None:
        job = self.family(tmp_path)
        program = (
            "import sys\n"
            "from pathlib import Path\n"
            "from tests.trainers.command.programs import job_of, trial\n"
            "from syncswitch.trainers.command.job import CommandTemplate\n"
            "from syncswitch.trainers.command.trainer import CommandTrainer\n"
            "job = job_of(Path(sys.argv[1]), CommandTemplate(tuple(sys.argv[2:])))\n"
            "CommandTrainer(job).train(trial(job))\n"
        )
        root = Path(__file__).parents[3]
        searcher = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), *job.template.words], cwd=root
        )
        try:
            until(lambda: list(job.runs_folder.glob("*/output.log")))
            (log,) = job.runs_folder.glob("*/output.log")
            until(lambda: "all are there" in log.read_text())
            (guard,) = psutil.Process(searcher.pid).children()
        finally:
            searcher.kill()
            searcher.wait()
        until(lambda: has_ended(guard.pid))
        self.assert_all_are_gone(job)

    def test_sigterm_may_be_used_to_end_well(self, tmp_path: Path) -> None:
        saves = (
            "import signal\n"
            "signal.signal(signal.SIGTERM, lambda *_: (open(folder + '/saved', 'w'), sys.exit()))\n"
            "print('ready', flush=True)\n"
            "time.sleep(600)"
        )

        def fail(_: int) -> None:
            if "ready" in printed(job):
                raise UserError("disk full")

        job = says(tmp_path, "", saves, grace_seconds=60.0)
        failure(job, UserError, RecordingObserver(at_progress=fail))
        assert list(job.runs_folder.glob("*/saved"))


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
        job = self.make_job(workload, workers)
        identity = replace(job.identity, protocols=Protocols(first, second))
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
