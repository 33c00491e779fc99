"""Commands as they are: hanging, failing, silent, talking nonsense, with a family."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from syncswitch.storage.errors import RetryableError, SyncSwitchError, UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.command.job import CommandJob, CommandTemplate
from syncswitch.trainers.command.trainer import CommandTrainer
from syncswitch.trainers.trainer import Observer, Verdict
from tests.processes import has_ended
from tests.trainers.command.programs import FAMILY, command, job_of, says, trial
from tests.trainers.jobs import RecordingObserver

GOOD = '{"step": 50, "accuracy": 0.5}\n{"step": 100, "accuracy": 0.75}\n'
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


class Watch(RecordingObserver):
    """Does something whenever it learns how far the run is."""

    def __init__(self, action: Callable[[int], None]) -> None:
        super().__init__()
        self._action = action

    def on_progress(self, worker_step: int) -> None:
        self._action(worker_step)


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


def eventually(condition: Any, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


class TestWarnings:
    """Warnings about a run that nobody understands, which may go on for hours."""

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

        message = failure(job, UserError, Watch(tell))
        assert "no line matches" in message
        (line,) = caplog.messages
        assert line == (
            "the command has not reported its accuracy so far: no line matches --metric-pattern"
            f" {PATTERN!r}; its last output: 'epoch 99 acc 0.5'"
        )

    @pytest.mark.parametrize("key", ["accuracy", "acc"])
    def test_steps_without_an_accuracy_are_told_after_a_fifth_of_the_run(
        self, key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        said = [{"step": step, key: 0.5} for step in (19, 20, 100)]
        job = says(tmp_path, "".join(json.dumps(line) + "\n" for line in said))
        if key == "accuracy":
            CommandTrainer(job).train(trial(job))
        else:
            failure(job, UserError)
        told = "the command has not reported its accuracy so far, at step 100 of 100: there is"
        assert [line[: len(told)] for line in caplog.messages] == [told] * (key == "acc")

    def test_a_minute_without_a_result_is_told(
        self, tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = says(tmp_path, "", HANGS)

        def later(_: int) -> None:
            if "hello" in printed(job):
                clock.now_seconds += 61.0
            if caplog.messages:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            CommandTrainer(job).train(trial(job), Watch(later))
        (line,) = caplog.messages
        assert "there is no line like" in line
        assert line.endswith("its last output: 'hello from the command'")


class TestFailures:
    def test_a_hung_command_is_ended(self, tmp_path: Path, clock: Clock) -> None:
        def long_after_its_report(step: int) -> None:
            if step == 50 and "hello" in printed(job):
                clock.now_seconds = 61.0

        job = says(tmp_path, GOOD[:30], HANGS, timeout_seconds=60.0)
        message = failure(job, observer=Watch(long_after_its_report))
        assert message.startswith(
            "the command did not end within 60 s (--timeout), at step 50 of 100; it printed last:"
            " hello from the command (all of it: "
        )

    def test_a_silent_command_is_ended(self, tmp_path: Path, clock: Clock) -> None:
        def long_after(_: int) -> None:
            if "hello" in printed(job):
                clock.now_seconds += 31.0

        job = says(tmp_path, "", HANGS, silence_seconds=60.0)
        message = failure(job, observer=Watch(long_after))
        assert message.startswith(
            "the command printed and reported nothing for 60 s (--silence), at step 0 of 100;"
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
        record = CommandTrainer(job).train(trial(job), Watch(a_while_after_each_word))
        assert record.worker_steps == 100

    def test_a_failing_command_shows_its_last_lines(self, tmp_path: Path) -> None:
        job = says(tmp_path, GOOD, "print('x' * 9000); raise ValueError('no GPU')")
        message = failure(job)
        assert message.startswith("the command failed with exit status 1, at step 100 of 100; it")
        assert "ValueError: no GPU" in message
        assert len(message) < 1000
        (log,) = job.runs_folder.glob("*/output.log")
        assert len(log.read_text()) > 9000
        assert str(log) in message

    def test_one_that_was_killed_says_so(self, tmp_path: Path) -> None:
        message = failure(says(tmp_path, "", "import os; os.kill(os.getpid(), 9)"))
        assert "failed with exit status 137, perhaps killed by SIGKILL" in message
        message = failure(says(tmp_path, "", "import sys; sys.exit(-1)"))
        assert "failed with exit status 255, at step" in message

    def test_one_that_says_nothing_of_its_accuracy_is_refused(self, tmp_path: Path) -> None:
        message = failure(says(tmp_path, '{"step": 100}\n'), UserError)
        assert "succeeded without reporting its accuracy: there is no line like" in message
        assert "metrics.jsonl" in message
        job = says(tmp_path, "", metric_pattern="(?P<step>x)(?P<accuracy>y)")
        message = failure(job, UserError)
        assert "no line matches --metric-pattern '(?P<step>x)(?P<accuracy>y)'" in message

    def test_nonsense_is_shown_with_its_line(self, tmp_path: Path) -> None:
        message = failure(says(tmp_path, GOOD[:30] + "oops\n", HANGS), UserError)
        assert "the result in line 2 of " in message
        assert (
            "cannot be used: it is not valid JSON: 'oops'; give lines such as {\"step\"" in message
        )

    def test_a_line_that_was_cut_off_is_nonsense(self, tmp_path: Path) -> None:
        assert "line 2 of" in failure(says(tmp_path, GOOD[:40]), UserError)

    def test_too_few_steps_are_refused(self, tmp_path: Path) -> None:
        message = failure(says(tmp_path, GOOD, total_steps=200), UserError)
        assert "succeeded after step 100 of --total-steps 200; give the number" in message

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "runs").write_text("")
        assert "name another with --output-folder" in failure(says(tmp_path, GOOD), UserError)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"fork_from": Path("x")}, "give --no-share-prefix"),
            ({"checkpoint_percents": (50.0,)}, "give --no-share-prefix"),
            ({"conditions": RunConditions("greedy")}, "not on a command"),
        ],
    )
    def test_what_no_command_can_do_is_refused(
        self, tmp_path: Path, fields: dict[str, Any], message: str
    ) -> None:
        job = says(tmp_path, GOOD)
        assert message in failure(job, UserError, **fields)
        assert not job.output_folder.exists()


class TestResults:
    def test_placeholders_and_environment_say_the_same(self, tmp_path: Path) -> None:
        program = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
        words = ("{switch_step}", "{switch_percent}", "{seed}", "{workers}", "{output_dir}")
        template = command(tmp_path, program, *words)
        pattern = "(?P<step>100)(?P<accuracy>)x"
        job = job_of(tmp_path, template, workers=3, metric_pattern=pattern)
        failure(job, UserError)
        (log,) = job.runs_folder.glob("*/output.log")
        values, environment = json.loads(log.read_text())
        assert values == ["50", "50", "1", "3", str(log.parent)]
        names = ("SWITCH_STEP", "SWITCH_PERCENT", "SEED", "WORKERS", "OUTPUT_DIR")
        assert [environment[f"SYNCSWITCH_{name}"] for name in names] == values

    def test_evaluations_come_while_it_trains(self, tmp_path: Path) -> None:
        job = says(tmp_path, GOOD[:30], HANGS)
        observer = RecordingObserver(lambda _: Verdict.STOP)
        record = CommandTrainer(job).train(trial(job), observer)
        assert record.stopped_early
        assert (record.worker_steps, len(record.evaluations)) == (50, 1)

    def test_a_command_that_diverged_is_ended(self, tmp_path: Path) -> None:
        job = says(tmp_path, GOOD[:30] + '{"diverged": true}\n', HANGS)
        record = CommandTrainer(job).train(trial(job))
        assert record.diverged
        assert record.converged_accuracy == 0.5

    def test_one_that_fails_because_it_diverged_is_a_result(self, tmp_path: Path) -> None:
        job = says(tmp_path, '{"step": 50, "loss": NaN}\n', "sys.exit(3)")
        assert CommandTrainer(job).train(trial(job)).diverged

    def test_output_is_read_with_a_pattern(self, tmp_path: Path) -> None:
        pattern = r"step (?P<step>\d+): (?P<accuracy>\S+) after (?P<seconds>\S+)"
        prints = "print('step 50: 0.5 after 2\\rstep 100: 0.75 after 3', end='')"
        job = says(tmp_path, "not read", prints, metric_pattern=pattern)
        record = CommandTrainer(job).train(trial(job))
        assert [e.accuracy for e in record.evaluations] == [0.5, 0.75]
        assert record.training_seconds == 3.0

    def test_the_switch_is_a_step_of_the_command_however_many_workers(self, tmp_path: Path) -> None:
        job = says(tmp_path, GOOD, workers=8, protocols=("ddp", "local-sgd"))
        record = CommandTrainer(job).train(trial(job, 13.0))
        assert record.phases[0].end_worker_step == 13


class TestProcesses:
    def family(self, folder: Path, after: str = HANGS, **fields: Any) -> CommandJob:
        return job_of(folder, command(folder, FAMILY, "{output_dir}", after), **fields)

    def assert_all_are_gone(self, job: CommandJob) -> None:
        (folder,) = job.runs_folder.iterdir()
        for name in ("child", "grandchild"):
            assert has_ended(int((folder / name).read_text()))

    def test_a_command_is_ended_with_all_that_it_started(self, tmp_path: Path) -> None:
        """Also what has a session of its own, lost its parent, and does not care for SIGTERM."""

        def fail(_: int) -> None:
            if "all are there" in printed(job):
                raise UserError("disk full")

        job = self.family(tmp_path)
        assert failure(job, UserError, Watch(fail)) == "disk full"
        self.assert_all_are_gone(job)

    def test_nothing_is_left_of_a_command_that_ended(self, tmp_path: Path) -> None:
        job = self.family(tmp_path, "sys.exit(3)")
        assert "exit status 3" in failure(job)
        self.assert_all_are_gone(job)

    def test_an_interrupt_ends_all_of_it(self, tmp_path: Path) -> None:
        def interrupt(_: int) -> None:
            if "all are there" in printed(job):
                raise KeyboardInterrupt

        job = self.family(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            CommandTrainer(job).train(trial(job), Watch(interrupt))
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
            assert eventually(lambda: list(job.runs_folder.glob("*/output.log")))
            (log,) = job.runs_folder.glob("*/output.log")
            assert eventually(lambda: "all are there" in log.read_text())
            (guard,) = psutil.Process(searcher.pid).children()
        finally:
            searcher.kill()
            searcher.wait()
        assert eventually(lambda: has_ended(guard.pid))
        self.assert_all_are_gone(job)

    def test_what_cannot_be_started_says_why(self, tmp_path: Path) -> None:
        program = tmp_path / "program"
        program.write_text("#!/nowhere/interpreter\n")
        program.chmod(0o755)
        job = job_of(tmp_path, CommandTemplate((str(program),)))
        assert "program: No such file or directory" in failure(job)

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
        failure(job, UserError, Watch(fail))
        assert list(job.runs_folder.glob("*/saved"))
