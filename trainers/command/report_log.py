"""Progress of one run of a command, from its own reports; pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import open_plain_file
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord, TrialSpec
from syncswitch.trainers.command.results import Report
from syncswitch.trainers.job.schedule import segments
from syncswitch.trainers.run.record import trial_record

Line = tuple[int, str]
"""Number of a line, from 1, and its text."""

_BLOCK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 20
_TAIL_BYTES = 16_384


class GrowingFile:
    """The whole lines of a file that grows; it need not exist yet.

    A file that became shorter was written anew, and is read again from its start.

    Args:
        path: The file.
        line_end: What ends a line; a progress bar ends its lines with a carriage return.
    """

    def __init__(self, path: Path, line_end: bytes = rb"\n") -> None:
        self._path = path
        self._line_end = re.compile(line_end)
        self._offset = 0
        self._rest = b""
        self._number = 0

    def new_lines(self, *, is_over: bool = False) -> Iterator[Line]:
        """Lines that were ended since the last call, at most a block of them.

        Args:
            is_over: Nobody writes any more: all blocks are read, and what is left is a line, too.
        """
        while block := self._next_block():
            *whole, self._rest = self._line_end.split(self._rest + block)
            if len(self._rest) > _LONGEST_LINE_BYTES:
                whole, self._rest = [*whole, self._rest], b""
            for line in whole:
                yield self._numbered(line)
            if not is_over:
                return  # whoever reads has other things to look at meanwhile
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
            raise UserError(f"{self._path} cannot be read: {error.strerror or error}") from error
        self._offset += len(block)
        return block

    def _numbered(self, line: bytes) -> Line:
        self._number += 1
        return self._number, line.decode(errors="replace")


def last_lines(path: Path, count: int) -> list[str]:
    """The end of a file, however long that is; empty lines are left out, and so is a lost file."""
    try:
        with open_plain_file(path) as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return list(deque((line.strip() for line in text.splitlines() if line.strip()), count))


def size_bytes(path: Path) -> int:
    """Size of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class ReportLog:
    """Collects the reports of one run.

    Steps are those of the command, and count as worker-steps. What is reported again, by another
    process of the same training or after a restart, is passed over: the first report of a step
    counts.

    Attributes:
        evaluations: So far.
        diverged: Whether the command said so, or its loss or accuracy is no number.
        metric: Of the job.
        diverged_step: Of the report that said so; None where it named none.
        start_step: See below.

    Args:
        spec: The trial.
        start_step: From which the command goes on; what it reports of steps before is passed over.
    """

    def __init__(self, spec: TrialSpec, start_step: int = 0) -> None:
        self._spec, self.metric = spec, spec.identity.decided_by
        self._started_at = datetime.now(timezone.utc)
        self.start_step = start_step
        self.evaluations: list[Evaluation] = []
        self.diverged = False
        self.diverged_step: int | None = None
        self._steps, self._seconds = [start_step], [0.0]
        self._has_own_clock: bool | None = None
        self._began_seconds = 0.0

    @property
    def step(self) -> int:
        """The last one that was reported."""
        return self._steps[-1]

    @property
    def is_at_end(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self._spec.identity.total_worker_steps

    def add(self, report: Report, now_seconds: float) -> Evaluation | None:
        """Records a report.

        Args:
            report: What the command said.
            now_seconds: Since its start; counts where it does not say the time itself. A report
                of the step it starts from begins the training then; before that was start-up.

        Returns:
            The evaluation in it, if there is one.

        Raises:
            ValueError: It does not fit the job, or what was said before.
        """
        if report.diverged:
            self.diverged, self.diverged_step = True, report.step
            if report.step is None:
                return None
        assert report.step is not None
        W = self._spec.identity.total_worker_steps
        if report.step > W:
            raise ValueError(f"step is {report.step}, beyond the {W} of --total-steps; correct one")
        last_tested = self.evaluations[-1].worker_step if self.evaluations else -1
        if report.step < self.step or report.step <= last_tested:
            return None
        self._note_time(report, now_seconds)
        if report.accuracy is None or self.diverged:
            return None
        loss = report.loss
        further = tuple(report.further.items())
        evaluation = Evaluation(report.step, self._seconds[-1], report.accuracy, loss, further)
        self.evaluations.append(evaluation)
        return evaluation

    def _note_time(self, report: Report, now_seconds: float) -> None:
        assert report.step is not None
        has_own_clock = report.seconds is not None
        if self._has_own_clock not in (None, has_own_clock):
            raise ValueError("some lines have seconds and others have none; give all, or none")
        self._has_own_clock = has_own_clock
        if report.step == self.start_step:
            self._began_seconds = now_seconds
        since_begin = now_seconds - self._began_seconds
        seconds = since_begin if report.seconds is None else report.seconds
        if seconds < self._seconds[-1]:
            raise ValueError(
                f"seconds is {seconds:g} after {self._seconds[-1]:g}; give those since the start of"
                " the run"
            )
        if report.step > self.step:
            self._steps.append(report.step)
            self._seconds.append(seconds)

    def check_whole(self) -> None:
        """Checks that a command which has ended did all its steps.

        It need not report the last one: what is missing has to be shorter than the longest way
        between two reports.
        """
        W = self._spec.identity.total_worker_steps
        missing, longest = W - self.step, max(np.diff(self._steps), default=0)
        if missing >= max(1, longest):
            raise UserError(
                f"the command ended well after step {self.step:,} of --total-steps {W:,}; give the"
                " steps that it makes, or have it report up to its last one"
            )

    def record(self, *, stopped_early: bool = False) -> TrialRecord:
        """What the run measured.

        A run that went to its end took as long as it would have at the speed of its last stretch,
        where its last report is not of its last step. Times in between are interpolated: the
        seconds of the two phases are exact where the command reports the step of the switch.

        Args:
            stopped_early: The observer had it stopped at its last report.
        """
        steps, seconds = list(self._steps), list(self._seconds)
        W = self._spec.identity.total_worker_steps
        if not (stopped_early or self.diverged or self.is_at_end):
            pace = (seconds[-1] - seconds[-2]) / (steps[-1] - steps[-2])
            seconds.append(seconds[-1] + pace * (W - steps[-1]))
            steps.append(W)
        return trial_record(
            self._spec,
            self._started_at,
            worker_steps=steps[-1],
            evaluations=self.evaluations,
            phases=_phases(self._spec, steps, seconds),
            diverged=self.diverged,
            stopped_early=stopped_early,
            training_seconds=seconds[-1],
        )


def _phases(spec: TrialSpec, steps: list[int], seconds: list[float]) -> tuple[PhaseRecord, ...]:
    """The phases of both protocols, interpolated between known times."""

    def at(step: int) -> float:
        return float(np.interp(step, steps, seconds))

    done = steps[-1]
    return tuple(
        PhaseRecord(
            segment.protocol,
            segment.start_worker_step,
            end := min(segment.end_worker_step, done),
            at(end) - at(segment.start_worker_step),
            mean_staleness=None,
            max_staleness=None,
        )
        for segment in segments(spec)
        if segment.start_worker_step < done
    )
