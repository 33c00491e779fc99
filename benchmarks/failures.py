"""A campaign of failures: many short runs, each with failures that a seed has drawn.

    python -m benchmarks.failures [--runs 200] [--seed 0] [--output docs/failures.md]
        [--json-lines FILE] [--logs FOLDER] [--only NUMBER ...]

Workers, parameter servers and chiefs are killed with -9 or stopped, the disk is full
(RLIMIT_FSIZE), the last checkpoint is cut in half, workers are slow; in all protocols, on both
launchers, with and without online policies. Undisturbed runs on the same clusters are what they are
compared with. A cluster serves run after run, as long as it lives.
"""

from __future__ import annotations

import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.console import parser
from benchmarks.failure_cases import (
    TOTAL_WORKER_STEPS,
    Case,
    Done,
    Error,
    Request,
    drawn_cases,
    reference_cases,
)
from benchmarks.failure_checks import (
    Noise,
    file_problems,
    record_problems,
    seconds_to_continue,
    unsaved_problems,
)
from benchmarks.failure_processes import LaneDiedError, LaneProcess, StuckError
from benchmarks.failure_table import Outcome, json_line, page
from syncswitch.storage.records.trial import TrialRecord

_LONGEST_RUN_SECONDS = 120.0
_MOST_STARTS = 4


class _Run:
    """One case on its way: what the campaign itself does to it, and how it goes on."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.longest_gap_seconds = 0.0
        self._deadline = time.monotonic() + _LONGEST_RUN_SECONDS
        self._last_sign: float | None = None
        self._is_disk_full = False
        self._percent = 0.0
        self.full_percents: list[float] = []
        self._is_to_kill = case.truncated_percent is not None

    def follow(self, lane: LaneProcess) -> Done | Error:
        """Watches the run, and disturbs it where no injection can."""
        while True:
            message = lane.receive(self._deadline)
            now = time.monotonic()
            if self._last_sign is not None:
                self.longest_gap_seconds = max(self.longest_gap_seconds, now - self._last_sign)
            self._last_sign = now
            if isinstance(message, (Done, Error)):
                lane.set_disk_full(False)
                return message
            # Tests are reported late.
            self._percent = max(self._percent, 100.0 * message / TOTAL_WORKER_STEPS)
            self._disturb(lane, self._percent)

    def _disturb(self, lane: LaneProcess, percent: float) -> None:
        full = self.case.disk_full_percents
        is_full = full is not None and full[0] <= percent < full[1]
        if is_full != self._is_disk_full:
            lane.set_disk_full(is_full)
            self._is_disk_full = is_full
            self.full_percents.append(percent)
        truncated = self.case.truncated_percent
        if self._is_to_kill and truncated is not None and percent >= truncated:
            self._is_to_kill = False
            lane.kill()

    def note_death(self) -> None:
        self._is_disk_full = False
        if self.case.truncated_percent is not None and not self._is_to_kill:
            checkpoints = self.folder.glob("seed-*.npz")
            for path in sorted(checkpoints, key=lambda path: path.stat().st_mtime)[-1:]:
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


class Campaign:
    """Runs cases one after the other.

    Args:
        folder: For checkpoints, logs and temporary files.
        logs: Folder for the logs of runs that went wrong.
    """

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder = folder
        self._logs = logs
        self._lane: LaneProcess | None = None

    def run(self, case: Case) -> Outcome:
        """One case to its end."""
        outcome = Outcome(case)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        start = time.monotonic()
        run = _Run(case, folder)
        try:
            record = self._train(run, outcome)
        except StuckError:
            outcome.problems.append("stuck")
            self._save_log(case, is_stuck=True)
            self.close()
        else:
            if record is not None:
                self._check(run, record, outcome)
            if self._lane is not None:
                outcome.leftovers += self._lane.leftovers()
            if outcome.is_failed:
                self._save_log(case, is_stuck=False)
        outcome.wall_seconds = time.monotonic() - start
        shutil.rmtree(folder)
        return outcome

    def close(self) -> list[str]:
        """Ends the cluster; what is left of it."""
        lane, self._lane = self._lane, None
        return [] if lane is None else lane.close()

    def _train(self, run: _Run, outcome: Outcome) -> TrialRecord | None:
        case = run.case
        answer: object = None
        for turn in range(_MOST_STARTS):
            outcome.starts = turn + 1
            lane = self._lane_of(case, outcome)
            lane.send(Request(case, run.folder, turn > 0))
            try:
                answer = run.follow(lane)
            except LaneDiedError:
                if not case.is_often_killed:
                    outcome.problems.append("the process that trains died")
                    self._save_log(case, is_stuck=False)
                outcome.leftovers += self.close()
                # A chief outlives it for a moment, and may write a checkpoint more.
                run.note_death()
                continue
            if isinstance(answer, Done):
                outcome.leftovers += answer.threads
                return answer.record
            # A chief that is lost before its first checkpoint: the search runs the trial again.
            if not (answer.is_retryable and case.is_often_killed):
                break
        outcome.problems.append(answer.text if isinstance(answer, Error) else "it never ended")
        return None

    def _check(self, run: _Run, record: TrialRecord, outcome: Outcome) -> None:
        outcome.record = record
        outcome.problems += record_problems(run.case, record)
        outcome.problems += unsaved_problems(run.case, record, run.full_percents)
        outcome.problems += file_problems(run.case, run.folder)
        outcome.seconds_to_continue = seconds_to_continue(record)
        if run.case.is_often_killed:
            outcome.seconds_to_continue.append(run.longest_gap_seconds)

    def _lane_of(self, case: Case, outcome: Outcome) -> LaneProcess:
        lane = case.lane
        if self._lane is not None and self._lane.lane != lane:
            outcome.leftovers += self.close()
        if self._lane is None:
            self._lane = LaneProcess(lane, self._folder)
        return self._lane

    def _save_log(self, case: Case, *, is_stuck: bool) -> None:
        if self._lane is not None:
            text = self._lane.stacks() if is_stuck else self._lane.log_text()
            self._logs.mkdir(parents=True, exist_ok=True)
            (self._logs / f"{case.number}.log").write_text(f"{case.text}\n{text}")


def judged(outcomes: Sequence[Outcome]) -> Noise:
    """Measures how much undisturbed runs differ; a larger difference is a problem of its run."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    for one in outcomes:
        if not one.case.kinds and one.record is not None:
            accuracies.setdefault(one.case.pair, []).append(one.record.converged_accuracy)
    disturbed = [one for one in outcomes if one.case.kinds]
    noise = Noise.of(accuracies, len(disturbed))
    for one in disturbed:
        if one.record is not None:
            difference = noise.difference(one.case, one.record)
            if abs(difference) > noise.allowed:
                one.problems.append(f"accuracy is off by {100 * difference:+.2f} pp")
    return noise


def main() -> None:
    options = parser(
        __doc__, runs=200, seed=0, output=Path, json_lines=Path, logs=Path("failure-logs")
    )
    options.add_argument("--only", type=int, nargs="+", help="runs with these numbers alone")
    arguments = options.parse_args()
    cases = drawn_cases(arguments.runs, arguments.seed)
    if arguments.only:
        cases = [case for case in cases if case.number in arguments.only]
    else:
        cases = sorted([*reference_cases(arguments.seed), *cases], key=lambda case: case.lane)
    start = time.monotonic()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="syncswitch-failures-") as folder:
        campaign = Campaign(Path(folder), arguments.logs)
        # Also where a shell has started this in the background, and it ignores the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for case in cases:
                outcomes.append(campaign.run(case))
                print(outcomes[-1].text, flush=True)
        except KeyboardInterrupt:
            print(f"interrupted after {len(outcomes)} of {len(cases)} runs")
        finally:
            left = campaign.close()
    if left:
        print(f"left at the end: {left}")
    if arguments.only:
        return
    noise = judged(outcomes)
    if arguments.json_lines:
        lines = (
            json_line(one, noise.difference(one.case, one.record) if one.record else None)
            for one in outcomes
        )
        arguments.json_lines.write_text("\n".join(lines) + "\n")
    command = " ".join(["python -m benchmarks.failures", *sys.argv[1:]])
    names = ("tensorflow", "keras")
    software = [("Python", platform.python_version()), *((one, version(one)) for one in names)]
    text = page(outcomes, noise, command, software, (time.monotonic() - start) / 60)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
