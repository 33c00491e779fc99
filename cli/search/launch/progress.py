"""How `run` and `evaluate` show what goes on.

Bars where somebody watches, else one line per finished run.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from syncswitch.cli.console import print_note, progress_bars, rich_console
from syncswitch.cli.search.launch.jobs import is_further_job
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.progress import SearchProgress
from syncswitch.searcher.words import counted, measured_threshold_text
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord
from syncswitch.trainers.run.record import event_line, is_remarkable

if TYPE_CHECKING:
    from rich.progress import Progress


def label_of(trial: ReportedTrial) -> str:
    """For example `25 % BSP, run 2 of 3`."""
    protocol = trial.first_protocol.upper()
    of = "" if trial.repeats is None else f" of {trial.repeats}"
    early = " (speculative)" if trial.is_speculative else ""
    return f"{trial.switch_percent:g} % {protocol}, run {trial.repeat}{of}{early}"


class LineReporter(Reporter):
    """Tells one plain line for each thing that happened."""

    def __init__(self, write: Callable[[str], None], what: str = "search") -> None:
        self.tell = write
        self._what = what
        self._finished_runs = 0
        self._most_runs: int | None = None
        self._is_first_state = True
        self._waiting_for: float | None = None

    def on_state(self, finished_runs: int, most_runs: int | None, progress: SearchProgress) -> None:
        """Says at the start where an earlier search stopped."""
        self._finished_runs, self._most_runs = finished_runs, most_runs
        if is_further_job():
            return  # the first one says so
        runs = counted(finished_runs, "run")
        if self._is_first_state and progress.open_percent is None:
            self.tell(f"this {self._what} is finished, with {runs}")
        elif self._is_first_state and finished_runs:
            if most_runs is not None:
                runs = f"{finished_runs} of at most {counted(most_runs, 'run')}"
            self.tell(f"continuing after {runs}")
        self._is_first_state = False

    def on_threshold(self, strategy: Strategy, identity: WorkloadIdentity) -> None:
        """What it is, and where it comes from."""
        if not is_further_job():
            metric, first = identity.decided_by, identity.first_protocol.upper()
            self.tell(measured_threshold_text(strategy.threshold, metric, first))

    def on_run(self, trial: ReportedTrial) -> None:
        """Nothing yet."""
        self._waiting_for = None

    def on_event(self, trial: ReportedTrial, event: RunEvent) -> None:
        """The reason, unless it is only the switch that the switch point says."""
        if is_remarkable(event):
            self.tell(f"{label_of(trial)}: {event_line(event)}")

    def on_finished(self, trial: ReportedTrial, record: TrialRecord) -> None:
        """The result in one line."""
        metric = record.spec.identity.decided_by
        measured = f"{metric.name} {metric.text(record.converged_accuracy)}"
        outcome = "diverged" if record.diverged else measured
        of = "" if self._most_runs is None else f"/{self._most_runs}"
        self._end(
            f"[{self._finished_runs + 1}{of}] {label_of(trial)}: {outcome} in {_price_text(record)}"
        )

    def on_cancelled(self, trial: ReportedTrial, record: TrialRecord) -> None:
        """What it cost."""
        self._end(
            f"{label_of(trial)}: stopped as no longer needed, after"
            f" {record.paid_seconds:.1f} s of training"
        )

    def on_failed(self, trial: ReportedTrial, reason: str) -> None:
        """The reason."""
        self._end(f"{label_of(trial)} failed and will be repeated: {reason}")

    def on_wait(self, switch_percent: float) -> None:
        """Once per switch point."""
        if self._waiting_for != switch_percent and not is_further_job():
            self._waiting_for = switch_percent
            self.tell(f"waiting for other searches, which measure {switch_percent:g} %")

    def on_repaired(self, stale_trials: int) -> None:
        """How many."""
        self.tell(f"{counted(stale_trials, 'run')} of a search that was killed will be repeated")

    def on_database_away(self, patience_seconds: float) -> None:
        """How long there is hope."""
        self.tell(f"the database does not answer; trying again for {patience_seconds:.0f} s")

    def _end(self, line: str) -> None:
        """A run is over."""
        self.tell(line)


class BarReporter(LineReporter):
    """Adds two bars under these lines: the whole search, and the current run's worker-steps."""

    def __init__(self, bars: Progress, what: str) -> None:
        super().__init__(lambda line: bars.console.print(line, markup=False), what)
        self._bars = bars
        self._search_bar = bars.add_task(what, total=None)
        self._run_bar: Any = None

    def on_state(self, finished_runs: int, most_runs: int | None, progress: SearchProgress) -> None:
        """Moves the bar of the search."""
        super().on_state(finished_runs, most_runs, progress)
        self._bars.update(self._search_bar, completed=finished_runs, total=most_runs)

    def on_run(self, trial: ReportedTrial) -> None:
        """Starts a bar for the run."""
        super().on_run(trial)
        self._drop_run_bar()
        self._run_bar = self._bars.add_task(label_of(trial), total=trial.total_worker_steps)

    def on_progress(self, trial: ReportedTrial, worker_step: int) -> None:
        """Moves both bars: without parts of a run, the search's remaining time would jump."""
        if self._run_bar is not None:
            self._bars.update(self._run_bar, completed=worker_step)
            part = worker_step / trial.total_worker_steps
            self._bars.update(self._search_bar, completed=self._finished_runs + part)

    def on_evaluation(self, trial: ReportedTrial, evaluation: Evaluation) -> None:
        """Shows the latest accuracy."""
        if self._run_bar is not None:
            metric = trial.metric
            text = f"{label_of(trial)}, {metric.name} {metric.text(evaluation.accuracy)}"
            self._bars.update(self._run_bar, description=text)

    def _end(self, line: str) -> None:
        self._drop_run_bar()
        super()._end(line)

    def _drop_run_bar(self) -> None:
        if self._run_bar is not None:
            self._bars.remove_task(self._run_bar)
            self._run_bar = None


def _price_text(record: TrialRecord) -> str:
    """What a run cost, and what it was spared."""
    if not record.paid_seconds:
        return f"{record.training_seconds:.1f} s of training (recorded, at no cost)"
    spared = []
    if record.inherited_seconds:
        spared.append(f"{record.inherited_seconds:.1f} s shared")
    if record.stopped_early:
        done = 100 * record.worker_steps / record.spec.identity.total_worker_steps
        spared.append(f"stopped at {done:.0f} %")
    paid = f"{record.paid_seconds:.1f} s of training"
    return f"{paid} ({', '.join(spared)})" if spared else paid


@contextlib.contextmanager
def reporting(what: str) -> Iterator[LineReporter]:
    """Bars on a terminal, which are gone at the end; lines elsewhere."""
    if not sys.stderr.isatty():
        yield LineReporter(print_note, what)
        return
    with progress_bars(rich_console(stderr=True)) as bars:
        yield BarReporter(bars, what)
