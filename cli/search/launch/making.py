"""The processes, trainers and progress behind the commands that make runs.

`--parallel-runs N` makes N runs at once by running the same command in N processes. Each has its
own cluster, claims runs in the database as any other searcher does, and ends when the search is
decided.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from syncswitch.cli.console import (
    EXIT_INTERRUPTED,
    RunProgress,
    print_error,
    print_note,
    progress_display,
)
from syncswitch.cli.words import OPTION_WORDS, in_options
from syncswitch.searcher.backends.base import TrainableJob
from syncswitch.searcher.mlflow import copy_to_mlflow
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.strategies.base import SearchProgress, Strategy
from syncswitch.searcher.words import counted, measured_threshold_text
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.job import ScheduledJob, protocol_text
from syncswitch.storage.records.trial import BASELINE_PERCENT, Evaluation, RunEvent, TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.command.reports import RepeatedOutput
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.parent import die_with_parent
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from rich.progress import Progress


_MOST_PARALLEL_RUNS = 256

# Set in every process of a command but the first.
_NUMBER = "SYNCSWITCH_PARALLEL_PROCESS"
# A run that is no longer needed stops at its next evaluation, and its cost is recorded.
_PATIENCE_SECONDS = 30.0
_STOP_SECONDS = 20.0


def parallel_runs_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--parallel-runs`; 1 in a further process, which ends with the first one in any case."""

    def alone(_: click.Context, __: click.Parameter, parallel_runs: int) -> int:
        if not is_further_process():
            return parallel_runs
        die_with_parent()
        return 1

    return click.option(
        "--parallel-runs",
        metavar="N",
        type=click.IntRange(1, _MOST_PARALLEL_RUNS),
        default=1,
        show_default=True,
        is_eager=True,
        callback=alone,
        help="Number of runs at once, each on its own cluster.",
    )(function)


def is_further_process() -> bool:
    """Checks whether the first process of this command started this one."""
    return _NUMBER in os.environ


def resumable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ends a command that was interrupted with one line that says how to continue."""

    @functools.wraps(function)
    def ended(*arguments: Any, **values: Any) -> Any:
        try:
            return function(*arguments, **values)
        except KeyboardInterrupt:
            print_error("interrupted; all finished runs are kept, and the same command continues")
            return EXIT_INTERRUPTED

    return ended


def print_notes(notes: Iterable[str | None]) -> None:
    """Prints what the user should know beforehand, in the first process only."""
    for note in notes:
        if note is not None and not is_further_process():
            print_note(note)


@contextlib.contextmanager
def shared_by(parallel_runs: int, tell: Callable[[str], None]) -> Iterator[None]:
    """Runs the further processes of this command while the body runs.

    `tell` gets each line that one of them writes, from a separate thread.
    """
    is_over = threading.Event()
    started = [_start_process(number, tell, is_over) for number in range(2, parallel_runs + 1)]
    try:
        yield
        _wait(started, _PATIENCE_SECONDS)
    finally:
        is_over.set()
        for process, _ in started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # it gives its run back and ends
        _wait(started, _STOP_SECONDS)
        for process, reader in started:
            process.kill()
            process.wait()
            reader.join(1.0)


_Started = tuple[subprocess.Popen[str], threading.Thread]


def _start_process(number: int, tell: Callable[[str], None], is_over: threading.Event) -> _Started:
    """Runs this command in another process; a thread passes on what it writes, and how it ends."""
    process = subprocess.Popen(
        sys.orig_argv,
        env={**os.environ, _NUMBER: str(number)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # Ctrl-C reaches the first process, which then interrupts each of the others once.
        start_new_session=True,
    )

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip() and not is_over.is_set():  # being interrupted is not news
                tell(f"process {number}: {line.rstrip()}")
        status = process.wait()
        if status and not is_over.is_set():
            how = f"with status {status}" if status > 0 else f"by {signal.Signals(-status).name}"
            tell(f"process {number} was ended {how}; the search continues without it")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return process, reader


def _wait(started: Iterable[_Started], longest_seconds: float) -> None:
    until = time.monotonic() + longest_seconds
    for process, _ in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(until - time.monotonic(), 0.0))


def label_of(trial: ReportedTrial) -> str:
    """The name of a run for people, such as `switch at 25 %, run 2 of 3`."""
    switch = f"switch at {trial.switch_percent:g} %"
    if trial.switch_percent == BASELINE_PERCENT:
        switch = f"{protocol_text(trial.identity.first_protocol)} alone"
    of = "" if trial.repeats is None else f" of {trial.repeats}"
    early = " (speculative)" if trial.is_speculative else ""
    return f"{switch}, run {trial.repeat}{of}{early}"


class ProgressReporter(Reporter):
    """Reports each event of a search as one plain line, above progress bars where there are any.

    The bars are those of the whole search and of the current run. `what` is what the runs are for.
    """

    words = OPTION_WORDS

    def __init__(
        self, write: Callable[[str], None], what: str = "search", bars: Progress | None = None
    ) -> None:
        self._write, self._what, self._bars = write, what, bars
        self._finished_runs = 0
        self._most_runs: int | None = None
        self._is_first_state = True
        self._waiting_for: float | None = None
        self.told = RepeatedOutput().told
        self._search_bar = None if bars is None else bars.add_task(what, total=None)
        self._run: RunProgress | None = None

    def tell(self, line: str) -> None:
        """Writes a line, without what a failed command printed if that was told before."""
        self._write(self.told(line))

    def on_next(self, what: str) -> None:
        if not is_further_process():
            self.tell(f"{what}:")

    def on_state(self, finished_runs: int, most_runs: int | None, progress: SearchProgress) -> None:
        self._finished_runs, self._most_runs = finished_runs, most_runs
        if self._is_first_state and not is_further_process():  # the first one reports it
            runs = counted(finished_runs, "run")
            if progress.open_percent is None:
                self.tell(f"this {self._what} is finished, with {runs}")
            elif finished_runs:
                if most_runs is not None:
                    runs = f"{finished_runs} of at most {counted(most_runs, 'run')}"
                self.tell(f"continuing after {runs}")
        self._is_first_state = False
        self._move_search(completed=finished_runs, total=most_runs)

    def on_threshold(self, strategy: Strategy, identity: ScheduledJob) -> None:
        if not is_further_process():
            metric, first = identity.metric, protocol_text(identity.first_protocol)
            self.tell(measured_threshold_text(strategy.allowed, metric, first))

    def on_run(self, trial: ReportedTrial) -> None:
        self._waiting_for = None
        self._end_run()
        self._run = RunProgress(
            trial.identity,
            label_of(trial),
            self.tell,
            self._bars,
            f"{label_of(trial)}: ",
            has_lines=not is_further_process(),
        )

    def on_progress(self, trial: ReportedTrial, worker_step: int) -> None:
        """Moves both bars, so that the remaining time of the search does not jump between runs."""
        if self._run is not None:
            self._run.on_progress(worker_step)
            part = worker_step / trial.identity.total_worker_steps
            self._move_search(completed=self._finished_runs + part)

    def on_evaluation(self, trial: ReportedTrial, evaluation: Evaluation) -> None:
        if self._run is not None:
            self._run.on_evaluation(evaluation)

    def on_event(self, trial: ReportedTrial, event: RunEvent) -> None:
        if self._run is not None:
            self._run.on_event(event)

    def on_finished(self, trial: ReportedTrial, record: TrialRecord) -> None:
        self._end_run()
        metric = record.spec.identity.metric
        measured = f"{metric.name} {metric.text(record.converged_accuracy)}"
        outcome = "diverged" if record.diverged else measured
        of = "" if self._most_runs is None else f"/{self._most_runs}"
        number = f"[{self._finished_runs + 1}{of}]"
        self.tell(f"{number} {label_of(trial)}: {outcome} in {_price_text(record)}")

    def on_cancelled(self, trial: ReportedTrial, record: TrialRecord) -> None:
        self._end_run()
        cost = f"{record.paid_seconds:.1f} s of training"
        self.tell(f"{label_of(trial)}: stopped as no longer needed, after {cost}")

    def on_failed(self, trial: ReportedTrial, reason: str) -> None:
        self._end_run()
        self.tell(f"{label_of(trial)} failed and will be repeated: {reason}")

    def on_wait(self, switch_percent: float) -> None:
        if self._waiting_for != switch_percent and not is_further_process():
            self._waiting_for = switch_percent
            self.tell(f"waiting for other searches, which are measuring {switch_percent:g} %")

    def on_repaired(self, stale_trials: int) -> None:
        self.tell(f"{counted(stale_trials, 'run')} of a search that was killed will be repeated")

    def on_database_away(self, patience_seconds: float) -> None:
        self.tell(f"the database does not answer; trying again for {patience_seconds:.0f} s")

    def _move_search(self, **changes: Any) -> None:
        if self._bars is not None and self._search_bar is not None:
            self._bars.update(self._search_bar, **changes)

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None


def _price_text(record: TrialRecord) -> str:
    if not record.paid_seconds:
        return f"{record.training_seconds:.1f} s of training (recorded, at no cost)"
    spared = []
    if record.inherited_seconds:
        spared.append(f"{record.inherited_seconds:.1f} s reused from an earlier run")
    if record.stopped_early:
        done = 100 * record.worker_steps / record.spec.identity.total_worker_steps
        spared.append(f"stopped at {done:.0f} %")
    paid = f"{record.paid_seconds:.1f} s of training"
    return f"{paid} ({', '.join(spared)})" if spared else paid


@contextlib.contextmanager
def reporting(what: str) -> Iterator[ProgressReporter]:
    """Progress bars on a terminal, which disappear at the end; plain lines elsewhere."""
    with progress_display() as (write, bars):
        reporter = ProgressReporter(write, what, bars)
        try:
            yield reporter
        except RetryableError as error:
            raise RetryableError(reporter.told(in_options(error)), code=error.code) from error


@contextlib.contextmanager
def opened_for(
    to_train: Sequence[TrainableJob],
    storage_url: str,
    what: str,
    parallel_runs: int,
    mlflow: str | None,
    study: str | None = None,
) -> Iterator[tuple[Database, Sequence[TrainableJob], ProgressReporter]]:
    """Opens the database and a reporter, gives the jobs with what is ready; closes all.

    In the end the jobs are copied to MLflow, if that was asked for. If the database lacks the first
    job, or its search of that name, a trainer is opened for it in advance, which loads the data and
    tries the model: a workload that cannot be trained is found before anything is written about it.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(kept_for_the_next())
        first, *others = to_train
        ready: list[Trainer] = []

        @stack.callback
        def close_unused() -> None:
            for trainer in ready:
                trainer.close()

        if _is_unknown(first.identity, study, storage_url):
            # Where the cluster is not available now, the search will try again.
            with contextlib.suppress(RetryableError):
                ready.append(first.open_trainer())

        def open_first() -> Trainer:
            return ready.pop() if ready else first.open_trainer()

        database = stack.enter_context(open_database(storage_url, create=True))
        reporter = stack.enter_context(reporting(what))
        # Not before it is clear that the job can be trained.
        with shared_by(parallel_runs, reporter.tell):
            yield database, [replace(first, open_trainer=open_first), *others], reporter
            if not is_further_process():
                identities = [job.identity for job in to_train]
                copy_to_mlflow(
                    mlflow, database, identities, lambda said: reporter.tell(in_options(said))
                )


def _is_unknown(identity: ScheduledJob, study: str | None, storage_url: str) -> bool:
    """Checks whether the database lacks runs of this job, or this search; writes nothing."""
    if holds_nothing(storage_url):
        return True
    with open_database(storage_url, create=False) as database:
        store = TrialStore(database)
        if study is None:
            return not store.trials(fingerprint=identity.fingerprint)
        return all(search.study != study for search in store.searches())
