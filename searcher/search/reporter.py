"""How a search tells people how it goes on."""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.progress import SearchProgress
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord

_ACCURACY = Metric()


@dataclass(frozen=True, slots=True)
class ReportedTrial:
    """A trial, as people are told of it.

    Attributes:
        repeat: Number of this repeat of the switch point, from 1.
        repeats: R; None where nobody can say how many there will be.
        is_speculative: It is only likely to be needed.
        metric: Of its job.
    """

    number: int
    switch_percent: float
    repeat: int
    repeats: int | None
    total_worker_steps: int
    first_protocol: str
    is_speculative: bool = False
    metric: Metric = _ACCURACY


class Reporter:
    """Is told how a search goes on, and says nothing.

    What is about a trial under way comes from trainer threads.
    """

    def on_state(self, finished_runs: int, most_runs: int | None, progress: SearchProgress) -> None:
        """The history as it is before each decision; `most_runs` is None where none can say."""

    def on_threshold(self, strategy: Strategy, identity: WorkloadIdentity) -> None:
        """The threshold was measured, and the strategy has it."""

    def on_run(self, trial: ReportedTrial) -> None:
        """A run starts."""

    def on_progress(self, trial: ReportedTrial, worker_step: int) -> None:
        """The run is at this worker-step."""

    def on_evaluation(self, trial: ReportedTrial, evaluation: Evaluation) -> None:
        """The run was tested."""

    def on_event(self, trial: ReportedTrial, event: RunEvent) -> None:
        """Something happened to the run, or was decided about it."""

    def on_finished(self, trial: ReportedTrial, record: TrialRecord) -> None:
        """The run is complete and recorded."""

    def on_cancelled(self, trial: ReportedTrial, record: TrialRecord) -> None:
        """The run was stopped, as the search is decided without it."""

    def on_failed(self, trial: ReportedTrial, reason: str) -> None:
        """The run failed for reasons of infrastructure and will be made again."""

    def on_wait(self, switch_percent: float) -> None:
        """Other searchers make all the runs that are needed."""

    def on_repaired(self, stale_trials: int) -> None:
        """Runs of searchers that ended before their time were given back."""

    def on_database_away(self, patience_seconds: float) -> None:
        """The database does not answer, and is waited for at most so long."""
