"""Reads the reports of a training command, and makes the record of its run from them."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.files import open_plain_file
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.trial import (
    LONGEST_SECONDS,
    MOST_FURTHER,
    Evaluation,
    PhaseRecord,
    RunEvent,
    TrialRecord,
    TrialSpec,
)
from syncswitch.trainers.job.schedule import segments
from syncswitch.trainers.run.record import Position, trial_record

STEP = "step"
"""The key of the steps done, unless a job names another."""

_ACCURACY = Metric()
_OWN_KEYS = ("step", "epoch", "seconds", "loss", "diverged")
_LARGEST = 1e300
_LONGEST_QUOTE = 80
_ALLOWED = 'give lines such as {"step": 100, "seconds": 12.5, "accuracy": 0.91}'


@dataclass(frozen=True, slots=True)
class Report:
    """One line of results."""

    step: int | None  # steps done, from 0; None if a line only says that the training diverged
    seconds: float | None = None  # training time since the start; None to use syncswitch's clock
    accuracy: float | None = None  # in the sense of `Metric.accuracy`; None for mere progress
    loss: float = math.nan
    diverged: bool = False
    further: tuple[tuple[str, float], ...] = ()


ParseLine = Callable[[str], Report | None]
"""Reads a line; None if it reports nothing. Raises ValueError, with the reason, if it is wrong."""


def parse_json(line: str, metric: Metric = _ACCURACY, step_name: str = STEP) -> Report | None:
    """Reads a line of a metric file: a JSON object with the step and the metric by their names.

    Raises ValueError if it is not a JSON object, or a value is not valid.
    """
    if not line.strip():
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not valid JSON: {_quoted(line)}; {_ALLOWED}") from error
    if not isinstance(content, dict):
        raise ValueError(f"it is not a JSON object: {_quoted(line)}; {_ALLOWED}")
    if step_name != STEP:
        content.pop(STEP, None)
        if step_name in content:
            content[STEP] = content.pop(step_name)
    return _report(content, metric)


def pattern_reader(text: str, metric: Metric = _ACCURACY) -> ParseLine:
    """Makes a reader of output of a regular expression with the groups `step` and `value`.

    There may be `seconds` and `loss`. The group of the value may also have the metric's name, or be
    `percent` for an accuracy. Raises UserError if it is not valid, or has no such groups.
    """
    name = metric.name if metric.name.isidentifier() else "value"
    example = rf"such as 'step (?P<step>\d+) {name} (?P<{name}>\S+)'"
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UserError(
            f"it is not a regular expression: {error}; give one {example}",
            parameter="metric_pattern",
            value=text,
        ) from error
    same = {"value", *(["percent"] if metric.name == ACCURACY_NAME else [])}
    named = {name if group in same else group for group in pattern.groupindex}
    missing = [wanted for wanted in ("step", name) if wanted not in named]
    if missing:
        raise UserError(
            f"it has no group named {' and none named '.join(missing)}; give one {example}",
            parameter="metric_pattern",
            value=text,
        )

    def parse(line: str) -> Report | None:
        match = pattern.search(line)
        if match is None:
            return None
        values: dict[str, float] = {}
        for group, number in match.groupdict().items():
            try:
                if number is not None:
                    values[group] = int(number) if group == "step" else float(number)
            except ValueError as error:
                raise ValueError(f"{group} is {_quoted(number)}, which is not a number") from error
        if metric.name == ACCURACY_NAME and (percent := values.pop("percent", None)) is not None:
            values["value"] = percent / 100
        if "value" in values:
            values[metric.name] = values.pop("value")
        return _report(values, metric)

    return parse


def _report(content: dict[str, Any], metric: Metric) -> Report | None:
    if not {"step", metric.name, "diverged"} & content.keys():
        return None
    value, loss = _value(content, metric.name), _value(content, "loss")
    diverged = content.get("diverged", False)
    if not isinstance(diverged, bool):
        raise ValueError(f"diverged is {diverged!r}; give true or false")
    diverged = diverged or not all(one is None or math.isfinite(one) for one in (value, loss))
    accuracy = None if value is None else metric.accuracy(value)
    if not diverged and accuracy is not None and not metric.is_possible(accuracy):
        raise ValueError(
            f"{metric.name} is {value:g}; give a number {metric.range_text}, in a pattern a group"
            " named percent instead, or name what else the metric is"
        )
    seconds = _value(content, "seconds")
    if seconds is not None and not 0 <= seconds <= LONGEST_SECONDS:  # NaN is refused as well
        raise ValueError(
            f"seconds is {seconds:g}; give the training time so far, from 0 to {LONGEST_SECONDS:g}"
        )
    step = content.get("step")
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if step is None and diverged:
        return Report(None, seconds, diverged=True)
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"step is {step!r}; give a whole number, 0 or more")
    # Other numbers are kept; what else a script adds is for other readers.
    further = tuple(
        (other, float(number))
        for other, number in content.items()
        if other not in (*_OWN_KEYS, metric.name)
        and len(other) <= _LONGEST_QUOTE
        and isinstance(number, float | int)
        and not isinstance(number, bool)
        and abs(number) < _LARGEST
    )[:MOST_FURTHER]
    return Report(step, seconds, accuracy, math.nan if loss is None else loss, diverged, further)


def _value(content: dict[str, Any], name: str) -> float | None:
    value = content.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; give a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{name} is too large a number; give a smaller one") from error


def _quoted(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")


Line = tuple[int, str]  # a line's number, from 1, and its text
_BLOCK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 20

# This much output without a result deserves a warning.
_EARLY_SECONDS = 60.0
_EARLY_LINES = 100
# A loop that reports before each interval may leave out one of this share of its steps.
_LARGEST_REST = 1 / 5
_FEW_REPEATS = 3  # steps that a restart may repeat one at a time
# The result is the mean of five tests, so the first should have been made by then.
_EARLY_SHARE = 1 / 5


class GrowingFile:
    """Reads the whole lines of a file while it grows; it need not exist yet.

    A file that became shorter was rewritten, and is read again from its start. Progress bars end
    their lines with a carriage return, which `line_end` may match.
    """

    def __init__(
        self, path: Path, line_end: bytes = rb"\n", longest_line_bytes: int = _LONGEST_LINE_BYTES
    ) -> None:
        self._path, self._longest_line_bytes = path, longest_line_bytes
        self._line_end = re.compile(line_end)
        self._offset = 0
        self._rest = b""
        self._number = 0

    def new_lines(self, *, is_over: bool = False) -> Iterator[Line]:
        """Yields the lines completed since the last call: a block, or all if it `is_over`."""
        while block := self._next_block():
            *whole, self._rest = self._line_end.split(self._rest + block)
            if len(self._rest) > self._longest_line_bytes:
                whole, self._rest = [*whole, self._rest], b""
            yield from map(self._numbered, whole)
            if not is_over:
                return  # the caller has other things to look at meanwhile
        if is_over and self._rest:
            line, self._rest = self._rest, b""
            yield self._numbered(line)

    def _next_block(self) -> bytes:
        try:
            with open_plain_file(self._path) as file:
                if file.seek(0, 2) < self._offset:
                    self._offset, self._rest, self._number = 0, b"", 0
                file.seek(self._offset)
                block = file.read(_BLOCK_BYTES)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise UserError(
                f"{self._path} cannot be read: {error.strerror or error}", code="result-invalid"
            ) from error
        self._offset += len(block)
        return block

    def _numbered(self, line: bytes) -> Line:
        self._number += 1
        text = line.decode(errors="replace")
        return self._number, text.removeprefix("\ufeff") if self._number == 1 else text


PRINTED_LAST = "; it printed last: "
"""What a failed command printed is quoted behind this, at the end of a message."""

_PATHS_AND_NUMBERS = re.compile(r"/\S+|0x[0-9a-f]+|\d+")


class RepeatedOutput:
    """Shortens messages of failed commands: the same output is quoted once.

    Attempts and processes that fail in the same way differ in paths and numbers.
    """

    def __init__(self) -> None:
        self._quoted: set[str] = set()

    def told(self, message: str) -> str:
        """The message, without the output of the command if that was quoted before."""
        what, printed, output = message.partition(PRINTED_LAST)
        plain = _PATHS_AND_NUMBERS.sub("", output)
        if printed and plain in self._quoted:
            return f"{what}; it printed the same as before"
        self._quoted.add(plain)
        return message


def size_bytes(path: Path) -> int:
    """Size of a file in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class ReportLog:
    """Collects the reports of one run.

    Steps are those of the command, and count as worker-steps. The first report of a step counts:
    later ones, from another process that says the same or after a restart, are ignored. So are
    those of steps before `start_step`, from which the command continues; its last attempt continues
    from `began_step`. It has diverged where it says so, perhaps without naming the `diverged_step`,
    or reports a loss or metric that is not finite.
    """

    def __init__(self, spec: TrialSpec, start_step: int = 0) -> None:
        self._spec, self._total = spec, spec.identity.total_worker_steps
        self._started_at = datetime.now(timezone.utc)
        self.start_step = self.began_step = start_step
        self.evaluations: list[Evaluation] = []
        self.diverged = False
        self.diverged_step: int | None = None
        self._steps, self._seconds = [start_step], [0.0]
        self._has_own_clock: bool | None = None
        self._began_seconds = 0.0
        self._lines: dict[int, str] = {}
        self._contradicted: set[int] = set()
        self._is_restarted = False
        self._kept_seconds = 0.0
        self._has_gone_back = False
        # Those whose steps are not repeated yet.
        self._alarms: deque[tuple[RunEvent, int]] = deque()

    @property
    def step(self) -> int:
        return self._steps[-1]

    def lacks_accuracy(self, seconds: float, lines: int, *, is_heard: bool) -> str | None:
        """Says at which step there should have been an accuracy by now; None if all is well."""
        if self.evaluations or self.diverged:
            return None
        done = self.step - self.start_step
        if done:
            is_late = done >= _EARLY_SHARE * (self._total - self.start_step)
            return f", at step {self.step:,} of {self._total:,}" if is_late else None
        is_late = is_heard and (seconds > _EARLY_SECONDS or lines >= _EARLY_LINES)
        return "" if is_late else None

    @property
    def is_at_end(self) -> bool:
        return self.step >= self._total

    def add(self, report: Report, now_seconds: float, line: str = "") -> Evaluation | None:
        """Records a report, and returns the evaluation in it, if there is one.

        A report without a time counts from the start of the command, or from its report of the step
        at which the run starts, which ends the start-up. Raises ValueError if the report does not
        fit the job, or contradicts earlier ones; `line` is what it was read from.
        """
        self._go_back_before(report)
        if report.diverged:
            self.diverged, self.diverged_step = True, report.step
            if report.step is None:
                return None
        assert report.step is not None
        if report.step > self._total:
            raise ValueError(
                f"step is {report.step}, beyond the {self._total} of the training; correct one"
            )
        if self._is_restarted:
            is_start = report.accuracy is None or report.seconds == 0.0
            self._take_up(report.step, now_seconds, is_start=is_start)
        last_tested = self.evaluations[-1].worker_step if self.evaluations else -1
        if report.step < self.step or report.step <= last_tested:
            self._check_repeated(report, line)
            return None
        has_own_clock = report.seconds is not None
        if self._has_own_clock not in (None, has_own_clock):
            raise ValueError("some lines have seconds and others have none; give all, or none")
        self._has_own_clock = has_own_clock
        if report.step == self.start_step:
            self._began_seconds = now_seconds
        since_begin = now_seconds - self._began_seconds
        seconds = since_begin if report.seconds is None else report.seconds
        seconds += self._kept_seconds
        if seconds < self._seconds[-1]:
            raise ValueError(
                f"seconds is {seconds:g} after {self._seconds[-1]:g}; give those since the start of"
                " the run"
            )
        if report.step > self.step:
            self._steps.append(report.step)
            self._seconds.append(seconds)
        if report.accuracy is None or self.diverged:
            return None
        evaluation = Evaluation(
            report.step, self._seconds[-1], report.accuracy, report.loss, report.further
        )
        self.evaluations.append(evaluation)
        self._lines[report.step] = line
        return evaluation

    def hear_alarm(self, event: RunEvent, back: int) -> None:
        """Takes an alarm of a loop that goes `back` by itself, before the steps that it repeats.

        Reports from before the alarm may still be to come.
        """
        self._has_gone_back = True
        self._alarms.append((event, back))

    def _go_back_before(self, report: Report) -> None:
        """Forgets what a loop has gone back from, at its first report of a step again."""
        if report.step is None:
            return
        while self._alarms and report.step > self._alarms[0][0].worker_step:
            self._alarms.popleft()
        if not self._alarms or report.step > self.step:
            return
        event, back = self._alarms[0]
        is_of_alarm = (report.step, report.seconds) == (event.worker_step, event.elapsed_seconds)
        if is_of_alarm and report.accuracy is None:
            return
        self._alarms.popleft()
        self.diverged, self.diverged_step = False, None
        kept = max(1, bisect_right(self._steps, back))
        del self._steps[kept:], self._seconds[kept:]
        self.evaluations[:] = [one for one in self.evaluations if one.worker_step <= back]

    def restart(self) -> None:
        self._is_restarted = True
        self.diverged, self.diverged_step = False, None

    def _take_up(self, step: int, now_seconds: float, *, is_start: bool) -> None:
        """Forgets the reports that the first one of another attempt repeats, with their time.

        The attempt began at the step that was reported before that; or at this very step, if it was
        reported before and `is_start`: without a test, or at 0 seconds.
        """
        self._is_restarted, self._began_seconds = False, 0.0
        kept = max(1, bisect_left(self._steps, step))
        if is_start and kept < len(self._steps) and self._steps[kept] == step:
            kept, self._began_seconds = kept + 1, now_seconds
        del self._steps[kept:], self._seconds[kept:]
        self.evaluations[:] = [one for one in self.evaluations if one.worker_step <= self.step]
        self._kept_seconds, self.began_step = self._seconds[-1], self.step

    def _check_repeated(self, report: Report, line: str) -> None:
        """Raises ValueError where a second process reports other values of the same steps.

        A restarted command may repeat steps as well, so a few are let through: it repeats all of
        them before it goes on, and is not restarted at its end.
        """
        earlier = next((one for one in self.evaluations if one.worker_step == report.step), None)
        if earlier is None or report.accuracy in (None, earlier.accuracy) or self._has_gone_back:
            return
        if earlier is not self.evaluations[-1] and not self.is_at_end:
            return
        self._contradicted.add(earlier.worker_step)
        if len(self._contradicted) >= _FEW_REPEATS:
            first, second = _quoted(self._lines[earlier.worker_step]), _quoted(line)
            raise ValueError(
                "two processes report the same steps with different values:"
                f" {first} and {second}; have one of them report, such as rank 0"
            )

    def check_whole(self) -> None:
        """Refuses a command that left out more steps at its end than between two reports.

        Many loops report before each tenth step, and so leave out as many. Of few reports that may
        as well be a large part of the training.
        """
        missing, longest = self._total - self.step, max(np.diff(self._steps), default=0)
        is_usual = missing == longest and missing <= _LARGEST_REST * self._total
        if missing >= max(1, longest) and not is_usual:
            raise UserError(
                f"the command succeeded after step {self.step:,} of {self._total:,}",
                remedy=(
                    OptionHint("total_steps", verb="give the number of steps that it makes as"),
                    "have it report up to its last one",
                ),
                code="result-invalid",
            )

    def record(
        self,
        spec: TrialSpec | None = None,
        lost_seconds: float = 0.0,
        *,
        stopped_early: bool = False,
    ) -> TrialRecord:
        """Makes the record of the run, with the switch of `spec` if a loop went back to make it.

        The `lost_seconds` before that are in no phase.

        If the last report is not about the last step, the rest is assumed to have taken as long as
        at the pace between the last two reports. Times between reports are interpolated, so the
        durations of the two phases are exact if the command reports the step of the switch. A run
        that was stopped ended with its last report.
        """
        steps, seconds = list(self._steps), list(self._seconds)
        if not (stopped_early or self.diverged or self.is_at_end):
            pace = (seconds[-1] - seconds[-2]) / (steps[-1] - steps[-2])
            seconds.append(seconds[-1] + pace * (self._total - steps[-1]))
            steps.append(self._total)
        phases = []
        for segment in segments(spec or self._spec):
            start, end = segment.start_worker_step, min(segment.end_worker_step, steps[-1])
            if start < end:
                began, ended = map(float, np.interp((start, end), steps, seconds))
                phase_seconds, lost_seconds = ended - began - lost_seconds, 0.0
                phases.append(PhaseRecord(segment.protocol, start, end, phase_seconds, None, None))
        return trial_record(
            self._spec,
            self._started_at,
            Position(steps[-1], elapsed_seconds=seconds[-1], phases=tuple(phases)),
            self.evaluations,
            diverged=self.diverged,
            stopped_early=stopped_early,
        )
