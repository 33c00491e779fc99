"""Writes TensorBoard logs of runs while they train, whatever trains them."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from syncswitch.storage.errors import UserError, reason_of
from syncswitch.storage.records.job import RunConditions, ScheduledJob
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.run.record import event_line
from syncswitch.trainers.trainer import Observer, Trainer, Verdict, Watching

_T = TypeVar("_T")


class SideOutput:
    """An output that is given up, as soon as writing it fails, with one warning of the loss."""

    def __init__(self, loss: str, tell: Callable[[str], object]) -> None:
        self._loss = loss
        self._tell = tell
        self._is_over = False

    def __call__(self, write: Callable[..., _T], *arguments: object) -> _T | None:
        """Writes a part of the output; returns what that returns, or None if it is given up."""
        if self._is_over:
            return None
        try:
            return write(*arguments)
        except Exception as error:  # no run may fail because of it
            self._is_over = True
            self._tell(f"{self._loss}: {reason_of(error)}")
            return None


class Aside(Watching):
    """Passes everything on to an observer that is given up as soon as it fails."""

    def __init__(self, observer: Observer, output: SideOutput) -> None:
        super().__init__(observer)
        self._output = output

    @override
    def on_progress(self, worker_step: int) -> None:
        self._output(super().on_progress, worker_step)

    @override
    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        return self._output(super().on_evaluation, evaluation) or Verdict.CONTINUE

    @override
    def on_event(self, event: RunEvent) -> None:
        self._output(super().on_event, event)


@contextmanager
def watched_aside(
    watching: Callable[[ScheduledJob], AbstractContextManager[Observer]],
    identity: ScheduledJob,
    tell: Callable[[str], object],
) -> Iterator[Observer]:
    """Opens an observer whose failure, also at its beginning or end, costs no run."""
    output = SideOutput("the observer of this run has stopped, and the run continues", tell)
    stack = ExitStack()
    observer = output(lambda: stack.enter_context(watching(identity)))
    try:
        yield Aside(observer or Observer(), output)
    finally:
        # Also where it was given up.
        SideOutput("the observer of this run cannot be closed", tell)(stack.close)


_LOG = logging.getLogger(__name__)
_numbers = itertools.count()


def check_tensorboard(folder: Path) -> None:
    """Raises UserError if logs cannot be written; creates nothing."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "needs the package tensorboard, which is missing",
            parameter="tensorboard",
            remedy="run: pip install 'syncswitch[tensorboard]'",
            code="package-missing",
        )
    # The first log creates the folder.
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    problem = None
    if not os.path.isdir(there):
        problem = f"it cannot be made ({str(there)!r} is not a folder)"
    elif not os.access(there, os.W_OK | os.X_OK):
        problem = "it cannot be written"
    if problem is not None:
        raise UserError(
            problem,
            parameter="tensorboard",
            value=str(folder),
            remedy="name a folder that can be written",
            code="file-unusable",
        )


def run_folder_name(spec: TrialSpec) -> str:
    """Name of a run's folder among those of its search, such as `switch-12.5-run-2`."""
    return f"switch-{spec.switch_percent:g}-run-{spec.replicate + 1}"


def logged(
    trainer: Trainer, folder: Path | None, name: str, tell: Callable[[str], object] = _LOG.warning
) -> Trainer:
    """Wraps a trainer so that it writes TensorBoard logs, if there is a folder for them."""
    return trainer if folder is None else TensorBoardTrainer(trainer, folder / name, tell)


class TensorBoardTrainer(Trainer):
    """Wraps a trainer so that each run writes a log into its own folder, and goes on if it cannot.

    A run that is repeated, or continues from a checkpoint, adds a file to its folder, and
    TensorBoard still shows each step once.
    """

    def __init__(
        self, trainer: Trainer, folder: Path, tell: Callable[[str], object] = _LOG.warning
    ) -> None:
        self._trainer = trainer  # which is closed together with this one
        self._folder = folder
        self._tell = tell

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        folder = self._folder / run_folder_name(spec)
        log = BoardLog(folder, spec, observer or Observer(), self._tell)
        log.write(log.open)
        try:
            record = self._trainer.train(spec, log)
            log.write(log.end, record)
            return record
        except BaseException:
            log.write(log.fail)
            raise
        finally:
            log.write(log.close)

    def close(self) -> None:
        self._trainer.close()


class BoardLog(Watching):
    """Logs one run into a new event file of a folder, and passes observations on.

    The file is unbuffered, so that a killed run loses no event.
    """

    def __init__(
        self, folder: Path, spec: TrialSpec, observer: Observer, tell: Callable[[str], object]
    ) -> None:
        super().__init__(observer)
        self.write = SideOutput(
            f"the TensorBoard log in {folder} ends, and the run continues without it", tell
        )
        self._spec = spec
        self._folder = folder
        self._has_begun = False
        self._switch_step = switch_worker_step(spec)
        # Worker-step and training time of the last evaluation. Those at the beginning of a fork are
        # unknown: its first throughput would be a mean that includes what it inherited.
        self._last = None if spec.fork_from else (0, 0.0)

    @override
    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        self.write(self._write_evaluation, evaluation)
        return super().on_evaluation(evaluation)

    @override
    def on_event(self, event: RunEvent) -> None:
        self.write(self._write_event, event)
        super().on_event(event)

    def open(self) -> None:
        """Makes the file, and begins the log unless the run may continue another."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events, self._summaries = event_pb2, summary_pb2
        # TensorBoard reads the files in a folder in the order of their names.
        name = (
            f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
            f".{next(_numbers)}"
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = RecordWriter((self._folder / name).open("xb", buffering=0))
        self._write(event_pb2.Event(file_version="brain.Event:2"))
        if not self._spec.resume:
            self._begin(0)

    def _write_evaluation(self, evaluation: Evaluation) -> None:
        if not self._has_begun:  # there was nothing to continue from
            self._begin(0)
        step, seconds = evaluation.worker_step, evaluation.elapsed_seconds
        metric = self._spec.identity.metric
        values = {
            f"{metric.name}/test": metric.value(evaluation.accuracy),
            "time/training_seconds": seconds,
            **{f"{name}/test": value for name, value in evaluation.further},
        }
        if math.isfinite(evaluation.training_loss):
            values["loss/training"] = evaluation.training_loss
        before, seconds_before = self._last or (step, seconds)
        if seconds > seconds_before and step > before:
            pace = (step - before) / (seconds - seconds_before)
            values["throughput/worker_steps_per_second"] = pace
        self._last = (step, seconds)
        self._scalars(step, values)

    def _write_event(self, event: RunEvent) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        step = event.worker_step
        if not self._has_begun:
            self._begin(step + 1 if event.kind == "resumed" else 0)
        if event.kind in {"resumed", "rebuilt"}:
            self._last = (step, event.elapsed_seconds)
        if event.kind == "alarmed":
            self._begin(self._switch_step + 1)
            # The position also for the case that a later switch fails, too.
            step = self._switch_step
            self._last = (step, event.elapsed_seconds)
        # TensorBoard shows only the last of several texts with the same name and step.
        name = event.kind if event.worker is None else f"{event.kind} (worker {event.worker})"
        text = event_line(event).encode(errors="replace")
        self._summarize(step, text_pb(f"events/{name}", text))
        if event.kind == "switched":
            # Detours delay the switch, so the last one counts.
            self._switch_step = step

    def end(self, record: TrialRecord) -> None:
        metric = self._spec.identity.metric
        for phase in record.phases:
            values = {"worker_steps_per_second": phase.worker_steps_per_second}
            if phase.mean_staleness is not None and phase.max_staleness is not None:
                values["mean_staleness"] = phase.mean_staleness
                values["max_staleness"] = phase.max_staleness
            named = {f"phase {phase.protocol}/{name}": value for name, value in values.items()}
            self._scalars(phase.end_worker_step, named)
        results = {
            f"result/converged_{metric.name}": metric.value(record.converged_accuracy),
            "result/diverged": float(record.diverged),
            "result/training_seconds": record.training_seconds,
            "result/switch_overhead_seconds": record.switch_overhead_seconds,
        }
        if record.guard is not None and record.guard.held_percent is not None:
            results["result/held_percent"] = record.guard.held_percent
        self._scalars(record.worker_steps, results)
        self._end_session(is_success=True)

    def fail(self) -> None:
        self._end_session(is_success=False)

    def close(self) -> None:
        self._writer.close()

    def _begin(self, step: int) -> None:
        """Begins a log that replaces earlier files from this worker-step on."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        self._has_begun = True
        started = self._events.SessionLog(status=self._events.SessionLog.START)
        self._write(self._events.Event(step=step, session_log=started))
        self._summarize(0, hparams_pb(_parameters(self._spec)))

    def _end_session(self, *, is_success: bool) -> None:
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        status = api_pb2.STATUS_SUCCESS if is_success else api_pb2.STATUS_FAILURE
        ended = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
        content = plugin_data_pb2.HParamsPluginData(session_end_info=ended)
        value = self._summaries.Summary.Value(
            tag=metadata.SESSION_END_INFO_TAG,
            metadata=metadata.create_summary_metadata(content),
            tensor=metadata.NULL_TENSOR,
        )
        self._summarize(0, self._summaries.Summary(value=[value]))

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        parts = [self._summaries.Summary.Value(tag=n, simple_value=v) for n, v in values.items()]
        self._summarize(step, self._summaries.Summary(value=parts))

    def _summarize(self, step: int, summary: Any) -> None:
        self._write(self._events.Event(step=step, summary=summary))

    def _write(self, event: Any) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())


def _parameters(spec: TrialSpec) -> dict[str, bool | float | str]:
    """The settings by which TensorBoard compares runs."""
    identity, conditions = spec.identity, spec.conditions
    settings: dict[str, bool | float | str | None] = {
        "switch_percent": spec.switch_percent,
        "replicate": spec.replicate,
        "seed": str(spec.seed),  # TensorBoard would round a number
        "workload": identity.name,
        "workers": identity.workers,
        "first_protocol": identity.first_protocol,
        "second_protocol": identity.second_protocol,
        "total_worker_steps": identity.total_worker_steps,
        "batch_size": identity.recipe.batch_size,
        "learning_rate": identity.recipe.learning_rate,
        "momentum": identity.recipe.momentum,
    }
    if conditions != RunConditions():
        settings["online"] = conditions.online
        settings["switch_mechanism"] = conditions.switch_mechanism
        settings["injections"] = "; ".join(conditions.injections)
    return {name: value for name, value in settings.items() if value is not None}
