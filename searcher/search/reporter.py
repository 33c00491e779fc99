"""Reports to people while a search goes on."""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.searcher.strategies.base import SearchProgress, Strategy
from syncswitch.storage.errors import Words
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord


@dataclass(frozen=True, slots=True)
class ReportedTrial:
    """A run as it is reported.

    `repeat` counts from 1; `repeats` is None if their number is not fixed. A speculative run is
    only likely to be needed.
    """

    number: int
    switch_percent: float
    repeat: int
    repeats: int | None
    identity: ScheduledJob
    is_speculative: bool = False


class Reporter:
    """Is told how a search goes on, and does nothing; a base class.

    Methods about a run under way are called from the trainer's threads. `words` say what failed,
    also to those who read it in the database.
    """

    words = Words()

    def on_next(self, what: str) -> None:
        """Runs of another job or pair of protocols come next; called where there are several."""

    def on_state(self, finished_runs: int, most_runs: int | None, progress: SearchProgress) -> None:
        """Called before each decision; `most_runs` is None if it is not fixed."""

    def on_threshold(self, strategy: Strategy, identity: ScheduledJob) -> None:
        """The threshold was measured; the strategy has it."""

    def on_run(self, trial: ReportedTrial) -> None:
        """A run starts."""

    def on_progress(self, trial: ReportedTrial, worker_step: int) -> None:
        """The run has come to this worker-step."""

    def on_evaluation(self, trial: ReportedTrial, evaluation: Evaluation) -> None:
        """The run was evaluated."""

    def on_event(self, trial: ReportedTrial, event: RunEvent) -> None:
        """Something happened to the run, or was decided about it."""

    def on_finished(self, trial: ReportedTrial, record: TrialRecord) -> None:
        """The run is complete and recorded."""

    def on_cancelled(self, trial: ReportedTrial, record: TrialRecord) -> None:
        """The run was stopped because the search is decided without it."""

    def on_failed(self, trial: ReportedTrial, reason: str) -> None:
        """The run failed because of the infrastructure, and will be made again."""

    def on_wait(self, switch_percent: float) -> None:
        """Other searchers are making all the runs that are needed."""

    def on_repaired(self, stale_trials: int) -> None:
        """Runs of searchers that died were given back."""

    def on_database_away(self, patience_seconds: float) -> None:
        """The database does not answer, and is waited for at most this long."""
