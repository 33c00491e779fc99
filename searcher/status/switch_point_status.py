"""What is known of each switch point of a search; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.status.trial_status import RunStatus
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.progress import SearchProgress
from syncswitch.storage.records.trial import TrialState


@dataclass(frozen=True, slots=True)
class SwitchPointStatus:
    """What is known of one switch point.

    Attributes:
        runs: Completed runs that count.
        mean_accuracy: None without a completed run.
        standard_deviation: Of the accuracies; None for fewer than two runs.
        accepted: Whether it keeps the accuracy; None as long as that is open.
        answer_probability: How likely it is the answer, 0 to 1; None where the strategy does not
            say.
    """

    switch_percent: float
    runs: int
    diverged_runs: int
    in_flight_runs: int
    mean_accuracy: float | None
    standard_deviation: float | None
    accepted: bool | None
    answer_probability: float | None


def switch_point_statuses(
    strategy: Strategy,
    needed: Sequence[Observation],
    progress: SearchProgress | None,
    in_flight: Sequence[RunStatus],
    *,
    is_over: bool,
) -> tuple[SwitchPointStatus, ...]:
    """Those that were tried, are being tried, or may be the answer."""
    if progress is None:
        return ()
    summaries = {summary.switch_percent: summary for summary in progress.summaries}
    # What a search has decided is no question of belief any more.
    answers = {} if is_over else strategy.answers(needed)
    under_way = Counter(run.switch_percent for run in in_flight if run.state == TrialState.RUNNING)
    found = []
    for percent in sorted({*summaries, *answers, *under_way}, reverse=True):
        summary = summaries.get(percent)
        found.append(
            SwitchPointStatus(
                switch_percent=percent,
                runs=summary.runs if summary else 0,
                diverged_runs=summary.diverged_runs if summary else 0,
                in_flight_runs=under_way[percent],
                mean_accuracy=summary.mean_accuracy if summary else None,
                standard_deviation=summary.standard_deviation if summary else None,
                accepted=summary.accepted if summary else None,
                answer_probability=answers.get(percent),
            )
        )
    return tuple(found)
