"""What is known of each switch point of a search; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from syncswitch.searcher.status.trial_status import RunStatus
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.progress import SearchProgress, SwitchPointSummary, summary_of
from syncswitch.storage.records.trial import TrialState


@dataclass(frozen=True, slots=True)
class SwitchPointStatus(SwitchPointSummary):
    """What is known of one switch point of a search under way.

    Attributes:
        in_flight_runs: Under way at it.
        answer_probability: How likely it is the answer, 0 to 1; None where the strategy does not
            say.
    """

    in_flight_runs: int
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
    return tuple(
        SwitchPointStatus(
            **asdict(summaries.get(percent) or summary_of(percent, (), accepted=None)),
            in_flight_runs=under_way[percent],
            answer_probability=answers.get(percent),
        )
        for percent in sorted({*summaries, *answers, *under_way}, reverse=True)
    )
