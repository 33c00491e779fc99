"""The trainer that runs a user's command."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from syncswitch.storage.errors import FatalError, OptionHint, RetryableError, UserError
from syncswitch.storage.files import last_lines
from syncswitch.storage.formats import KEY, LOOP_EVENT, PLAN
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import Protocols
from syncswitch.storage.records.trial import (
    Evaluation,
    PhaseRecord,
    RunEvent,
    TrialRecord,
    TrialSpec,
)
from syncswitch.trainers.command import LOOP_FILE, reaper
from syncswitch.trainers.command.job import CommandJob, environment_of, fill, run_values
from syncswitch.trainers.command.reports import (
    PRINTED_LAST,
    GrowingFile,
    ParseLine,
    ReportLog,
    parse_json,
    pattern_reader,
    size_bytes,
)
from syncswitch.trainers.job.schedule import check_job, switch_worker_step
from syncswitch.trainers.protocols import parse_named_pair
from syncswitch.trainers.run.guard import SwitchGuard
from syncswitch.trainers.run.record import Position, trial_record
from syncswitch.trainers.trainer import Observer, Trainer, Verdict


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """Names the folder for runs where it cannot be written."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (FatalError if is_full else UserError)(
            f"the folder for runs {folder} cannot be used: {error.strerror or error}",
            remedy=(
                *(["free some disk space there"] if is_full else []),
                OptionHint("output_folder", verb="name another with"),
            ),
        ) from error


def make_run_folder(parent: Path, spec: TrialSpec) -> Path:
    """Makes a new folder for a run, or for another attempt at the same run."""
    name = f"switch-{spec.switch_percent:.12g}-replicate-{spec.replicate}-seed-{spec.seed}"
    with _writing_to(parent):
        parent.mkdir(parents=True, exist_ok=True)
        for attempt in itertools.count(1):
            folder = parent / (name if attempt == 1 else f"{name}-attempt-{attempt}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    raise AssertionError("another name is always available")


class ReapedCommand:
    """A command below a `reaper`, which ends all its processes even if this one is killed."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], log: Path, grace_seconds: float
    ) -> None:
        with log.open("ab") as output:
            self._reaper = subprocess.Popen(
                # By its path, as modules in the user's working folder must not get in the way.
                [sys.executable, reaper.__file__, str(grace_seconds), *words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    def status(self, wait_seconds: float) -> int | None:
        """Exit status, or 128 plus the signal that killed it; None while it runs."""
        try:
            status = self._reaper.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else 128 - status

    def __enter__(self) -> ReapedCommand:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the command and everything that it started, and waits until all of it is gone."""
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()  # the reaper waits for this
        self._reaper.wait()


_LOOK_SECONDS = 0.05
_TAIL_LINES = 5
_LONGEST_TAIL = 400
_LONGEST_LINE = 120
_LONGEST_RESULTS_BYTES = 1 << 30

_LOG = logging.getLogger(__name__)


class CommandTrainer(Trainer):
    """Runs the command once for each trial, and reads its reports while it runs.

    Only the command knows its model and how to train it, so runs can neither be disturbed nor fork
    from checkpoints. The folders of runs are kept, even if they failed.

    Args:
        job: The command, and how to read it. Trials may have other protocols, which are only names.

    Attributes:
        last_folder: Folder of the last run; None before the first.
    """

    def __init__(self, job: CommandJob) -> None:
        self._job = job
        self._crashed: _Attempts | None = None
        self.last_folder: Path | None = None

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        # The command is run again after each alarm, and all of that makes one run. Lost time stays
        # on its clock; lost results are left out.
        self._check(spec)
        observer, started_at = observer or Observer(), datetime.now(timezone.utc)
        can_resume = self._job.template.can_resume
        attempts, self._crashed = self._crashed, None
        if attempts is None or attempts.spec != spec:
            attempts = _Attempts(spec, can_resume=can_resume)
        while True:
            run = _CommandRun(self._job, attempts, observer)
            self.last_folder = run.folder
            try:
                record, has_guarded_itself = run.to_its_end()
            except RetryableError:
                if can_resume:
                    attempts.go_on_from(run.folder, run.reports, run.source)
                    self._crashed = attempts
                raise
            if has_guarded_itself:
                return record
            if attempts.guard.alarm is None:
                return attempts.whole(record, started_at)
            event = attempts.go_back(record, run.folder, run.reports.began_step)
            observer.on_event(event)

    def _check(self, spec: TrialSpec) -> None:
        identity = spec.identity
        pair = (identity.first_protocol, identity.second_protocol)
        parse_named_pair(",".join(pair))
        own = replace(self._job.identity, protocols=Protocols(*pair))
        check_job(spec, own)
        if not spec.conditions.is_undisturbed:
            raise UserError(
                "act on syncswitch's own clusters, not on a command",
                parameter=("online", "switch", "inject"),
                remedy=("leave them out", OptionHint("trainer", verb="choose another")),
            )
        if spec.fork_from is not None or spec.checkpoint_percents:
            raise UserError(
                f"a run of command {identity.name!r} can neither start from a checkpoint of another"
                " run nor write one",
                remedy=OptionHint("share_prefix", False),
                code="parameters-conflict",
            )


class _Attempts:
    """The runs of the command that make one run: after an alarm, or after a crash."""

    def __init__(self, spec: TrialSpec, *, can_resume: bool) -> None:
        self.spec, self._can_resume = spec, can_resume
        # Without a checkpoint, a later switch is not worth another run from the start.
        self.guard = SwitchGuard(spec if can_resume else replace(spec, retry_percents=()))
        # The switch from which the next attempt goes on, and the evaluations before it.
        self.start_step = 0
        self.evaluations: list[Evaluation] = []
        self.origin: Path | None = None  # folder of the attempt from which the next one goes on
        self.reports: ReportLog | None = None  # of an attempt that crashed
        self._crashed: list[tuple[int, Path]] = []
        self._events: list[RunEvent] = []
        self._seconds, self._first_seconds = 0.0, 0.0

    @property
    def next_spec(self) -> TrialSpec:
        return replace(self.guard.spec, retry_percents=self.spec.retry_percents)

    def go_on_from(self, folder: Path, reports: ReportLog, metric_file: Path) -> None:
        """Has the next attempt go on after one that crashed, from its last checkpoint.

        One that had left no file of its own has no checkpoint; then that of the one before is used.
        """
        self._crashed.append((reports.began_step, folder))
        ours = {"plan.json", "output.log", LOOP_FILE, metric_file.name}
        if any(path.name not in ours for path in folder.iterdir()):
            self.origin = folder
        self.reports = reports
        reports.restart()

    def go_back(self, record: TrialRecord, folder: Path, began_step: int) -> RunEvent:
        """Has the next attempt go back to the switch of one that failed after it.

        If that began behind the switch, an attempt before it has the checkpoint at the switch.
        """
        evaluations, switch = self._evaluations_of(record), switch_worker_step(self.next_spec)
        attempts, self._crashed = [*self._crashed, (began_step, folder)], []
        folder = next((one for began, one in reversed(attempts) if began < switch), folder)
        self._seconds += record.training_seconds
        lost_seconds = record.training_seconds
        is_kept = self._can_resume and switch > 0
        self.reports = self.origin = None
        if is_kept:
            self.start_step, self.origin = switch, folder
            self.evaluations += [one for one in evaluations if one.worker_step <= switch]
            first_seconds = sum(one.seconds for one in record.phases[:1])
            self._first_seconds += first_seconds
            lost_seconds -= first_seconds
        self.guard.switch = Position(switch, elapsed_seconds=self._seconds - lost_seconds)
        _, event = self.guard.go_back(
            record.worker_steps, self._seconds, record.evaluations, is_kept=is_kept
        )
        self._events.append(event)
        return event

    def take_alarms(self, alarms: Sequence[tuple[FailedSwitch, RunEvent]]) -> float:
        """Takes those of a loop that goes back by itself; returns the seconds that they cost."""
        if alarms:
            self.guard = SwitchGuard(self.spec)  # which could switch again
        for failed, event in alarms:
            self.guard.fail(failed)
            self._events.append(event)
        return sum(failed.lost_seconds for failed, _ in alarms)

    def whole(self, last: TrialRecord, started_at: datetime) -> TrialRecord:
        """The record of all attempts together."""
        phases, seconds = last.phases, self._seconds + last.training_seconds
        if phases:
            first_seconds = phases[0].seconds + self._first_seconds
            phases = (replace(phases[0], seconds=first_seconds), *phases[1:])
        return trial_record(
            self.spec,
            started_at,
            Position(last.worker_steps, elapsed_seconds=seconds, phases=phases),
            (*self.evaluations, *self._evaluations_of(last)),
            diverged=last.diverged,
            stopped_early=last.stopped_early,
            events=self._events,
            guard=self.guard.outcome(last.worker_steps),
        )

    def _evaluations_of(self, record: TrialRecord) -> list[Evaluation]:
        return [
            replace(one, elapsed_seconds=self._seconds + one.elapsed_seconds)
            for one in record.evaluations
            if not self.start_step or one.worker_step > self.start_step
        ]


class _CommandRun:
    """One run of a command, in a folder of its own; used once.

    The guard of its `attempts` raises the alarm that ends it.
    """

    def __init__(self, job: CommandJob, attempts: _Attempts, observer: Observer) -> None:
        self._job, self.spec, self._observer = job, attempts.next_spec, observer
        self._attempts, self._guard = attempts, attempts.guard
        spec, switch = self.spec, switch_worker_step(self.spec)
        self._guard.switch = Position(switch) if spec.switch_percent < 100 else None
        self.folder = make_run_folder(job.runs_folder, spec)
        plan = self.folder / "plan.json"
        names = ("identity", "switch_percent", "seed", "band", "retry_percents")
        told = {KEY: PLAN.version, "trial": {name: getattr(spec, name) for name in names}}
        with _writing_to(self.folder):
            plan.write_text(json.dumps(told, default=flat))
            (self.folder / "output.log").touch()
        self._values = run_values(spec, self.folder, attempts.origin, plan)
        self._loop_file = self.folder / LOOP_FILE
        # All results of a long run are one line.
        self._loop = GrowingFile(self._loop_file, longest_line_bytes=_LONGEST_RESULTS_BYTES)
        self._loop_record: TrialRecord | None = None
        self._loop_alarms: list[tuple[FailedSwitch, RunEvent]] = []
        self._started_at = datetime.now(timezone.utc)
        self._log = self.folder / "output.log"
        self.source = self._log
        metric = spec.identity.metric
        self._parse: ParseLine = partial(parse_json, metric=metric, step_name=job.step_name)
        if job.metric_pattern is None:
            self.source = Path(fill(job.metric_file, self._values))
            self._results = GrowingFile(self.source)
        else:
            self._parse = pattern_reader(job.metric_pattern, metric)
            self._results = GrowingFile(self.source, rb"[\r\n]")
        self._heard_bytes = 0
        self.reports = attempts.reports or ReportLog(spec, attempts.start_step)
        self._is_told_to_stop = False
        self._lines = 0
        self._has_warned = False

    def to_its_end(self) -> tuple[TrialRecord, bool]:
        """Runs it; returns its record, and whether a loop that guards its switch itself made it."""
        # Otherwise a Python program that writes to a file would buffer its lines.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ, **environment_of(self._values)}
        words = self._job.template.filled(self._values)
        self._begun = self._heard = time.monotonic()
        with ReapedCommand(words, environment, self._log, self._job.grace_seconds) as command:
            status = None
            while status is None and not self._is_over:
                status = command.status(_LOOK_SECONDS)
                self._look(is_over=status is not None)
                if status is None and not self._is_over:
                    self._check_time()
        if not self._is_over:
            assert status is not None
            self._check_status(status)
            self._hear_loop(is_over=True)
            self._check_reports()
            self._look_for_alarm(is_over=True)
            self._observer.on_progress(self.spec.identity.total_worker_steps)
        if self._loop_record is not None and not self._is_told_to_stop:
            return self._loop_record, True
        is_alarmed = self._guard.alarm is not None
        is_cut = self._is_told_to_stop or (is_alarmed and not self.reports.diverged)
        # A loop that does not test after its last step has told its alarms alone.
        lost_seconds = self._attempts.take_alarms(self._loop_alarms)
        spec = self._attempts.guard.spec
        return self.reports.record(spec, lost_seconds, stopped_early=is_cut), False

    @property
    def _is_over(self) -> bool:
        is_alarmed = self._guard.alarm is not None
        return self._has_diverged or self._is_told_to_stop or is_alarmed

    @property
    def _has_diverged(self) -> bool:
        # A loop that guards its switch itself may go back, whatever it has printed.
        told = self._loop_record
        is_so = not self._loop_file.exists() if told is None else told.diverged
        return self.reports.diverged and is_so

    def _look(self, *, is_over: bool) -> None:
        heard_bytes = sum(size_bytes(path) for path in {self._log, self.source})
        if heard_bytes != self._heard_bytes:
            self._heard, self._heard_bytes = time.monotonic(), heard_bytes
        lines = list(self._results.new_lines(is_over=is_over))
        # A loop says that it goes back before it reports the steps that it repeats.
        self._hear_loop(is_over=False)
        for number, line in lines:
            self._lines += 1
            try:
                report = self._parse(line)
                now_seconds = time.monotonic() - self._begun
                evaluation = None if report is None else self.reports.add(report, now_seconds, line)
            except ValueError as error:
                raise UserError(
                    f"the result in line {number} of {self.source} cannot be used: {error}",
                    code="result-invalid",
                ) from error
            if evaluation is not None:
                self._observer.on_progress(self.reports.step)
                is_stop = self._observer.on_evaluation(evaluation) is Verdict.STOP
                self._is_told_to_stop = is_stop and not self.reports.is_at_end
            self._look_for_alarm()
            if self._is_over:
                if self.reports.diverged and self._guard.alarm is None:
                    text = line.strip()[:_LONGEST_LINE]
                    _LOG.warning("diverged by line %d of %s: %r", number, self.source, text)
                return
        self._warn_of_nothing()
        self._observer.on_progress(self.reports.step)

    def _hear_loop(self, *, is_over: bool) -> None:
        for number, line in self._loop.new_lines(is_over=is_over):
            try:
                told = json.loads(line)
                LOOP_EVENT.check(told.get(KEY), f"line {number} of {self._loop_file}")
                if "event" in told:
                    event = msgspec.convert(told["event"], RunEvent)
                    self.reports.hear_alarm(event, msgspec.convert(told["back"], int))
                    failed = msgspec.convert(told["failed"], FailedSwitch)
                    self._loop_alarms.append((failed, event))
                    self._observer.on_event(event)
                else:
                    self._loop_record = _record_of(self.spec, self._started_at, told)
            except (AttributeError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise UserError(
                    f"line {number} of {self._loop_file} was not written by LoopSwitch ({error}),"
                    " or by another version: install the same syncswitch where the command trains",
                    code="result-invalid",
                ) from error

    def _look_for_alarm(self, *, is_over: bool = False) -> None:
        guard, reports = self._guard, self.reports
        if guard.switch is None or self._is_told_to_stop or self._loop_file.exists():
            return
        if reports.diverged:
            step = reports.diverged_step
            if step is None or step >= guard.switch.done:
                guard.try_going_back("it diverged")
            return
        evaluations = [*self._attempts.evaluations, *reports.evaluations]
        if is_over and evaluations:
            # The last one may have come some steps before the end.
            W = self.spec.identity.total_worker_steps
            evaluations[-1] = replace(evaluations[-1], worker_step=W)
        guard.look(evaluations)

    def _warn_of_nothing(self) -> None:
        seconds, is_heard = time.monotonic() - self._begun, self._heard_bytes > 0
        where = self.reports.lacks_accuracy(seconds, self._lines, is_heard=is_heard)
        if where is not None and not self._has_warned:
            self._has_warned = True
            name, last = self._job.metric.name, "".join(last_lines(self._log, 1))[:_LONGEST_LINE]
            word = f"the command has not reported its {name} so far{where}: {self._wanted}"
            _LOG.warning("%s; its last output: %r", word, last)

    def _check_time(self) -> None:
        now, job = time.monotonic(), self._job
        if job.timeout_seconds is not None and now - self._begun > job.timeout_seconds:
            raise self._failure(f"did not end within {job.timeout_seconds:g} s, its limit")
        if job.silence_seconds is not None and now - self._heard > job.silence_seconds:
            raise self._failure(
                f"printed and reported nothing for {job.silence_seconds:g} s, the limit"
            )

    def _check_status(self, status: int) -> None:
        if status != 0:
            killed = status - 128 in set(signal.Signals)
            perhaps = f", perhaps killed by {signal.Signals(status - 128).name}" if killed else ""
            raise self._failure(f"failed with exit status {status}{perhaps}")

    def _check_reports(self) -> None:
        if self._loop_record is not None:
            return
        if not self.reports.evaluations:
            raise UserError(
                f"the command succeeded without reporting its {self._job.metric.name}:"
                f" {self._wanted} in {self.source}; its output is in {self._log}",
                remedy=(
                    OptionHint("metric_file", verb="name the file with"),
                    OptionHint("metric_pattern", verb="read the output with"),
                ),
                code="result-invalid",
            )
        self.reports.check_whole()

    @property
    def _wanted(self) -> str:
        if self._job.metric_pattern is not None:
            return f"no line matches the pattern {self._job.metric_pattern!r}"
        return (
            f'there is no line like {{"{self._job.step_name}": 100, "seconds": 12.5,'
            f' "{self._job.metric.name}": 0.91}}'
        )

    def _failure(self, what: str) -> RetryableError:
        at = f"at step {self.reports.step:,} of {self.spec.identity.total_worker_steps:,}"
        lines = last_lines(self._log, _TAIL_LINES)
        if not lines:
            return RetryableError(
                f"the command {what}, {at}; it printed nothing ({self._log})", code="command-failed"
            )
        text = "".join(c if c.isprintable() else " " for c in " | ".join(lines))
        quoted = f"{PRINTED_LAST}{text[-_LONGEST_TAIL:]}"
        return RetryableError(
            f"the command {what}, {at} (its output: {self._log}){quoted}", code="command-failed"
        )


def _record_of(spec: TrialSpec, started_at: datetime, told: dict[str, Any]) -> TrialRecord:
    phases = msgspec.convert(told["phases"], tuple[PhaseRecord, ...])
    return trial_record(
        spec,
        started_at,
        Position(told["worker_steps"], elapsed_seconds=told["training_seconds"], phases=phases),
        msgspec.convert(told["evaluations"], tuple[Evaluation, ...]),
        diverged=told["diverged"],
        events=msgspec.convert(told["events"], tuple[RunEvent, ...]),
        guard=msgspec.convert(told["guard"], GuardOutcome | None),
    )
