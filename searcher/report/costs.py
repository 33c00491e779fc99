"""Where the training time of a search went, switch point by switch point; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from syncswitch.searcher.report.data import ReportData, ReportRun


@dataclass(frozen=True, slots=True)
class SwitchPointCost:
    """The runs of a search at one switch point.

    Attributes:
        candidate_percent: The switch point.
        runs: How many were begun.
        needed_seconds: Training time of runs that the search asked for.
        vain_seconds: Of runs made in advance that the answer did not need, cancelled ones included.
        shared_seconds: That runs did not need to train because they began with a checkpoint of
            another run.
        stopped_seconds: That runs were spared because their accuracy was known early.
        lost_runs: That failed or whose process died; nobody counted their time.
    """

    candidate_percent: float
    runs: int
    needed_seconds: float
    vain_seconds: float
    shared_seconds: float
    stopped_seconds: float
    lost_runs: int

    @property
    def paid_seconds(self) -> float:
        """Training time that was spent."""
        return self.needed_seconds + self.vain_seconds


def switch_point_costs(data: ReportData) -> tuple[SwitchPointCost, ...]:
    """Of the search that is shown, the longest first protocol first."""
    by_switch_point: dict[float, list[ReportRun]] = {}
    for run in data.search_runs:
        by_switch_point.setdefault(run.trial.switch_percent, []).append(run)
    # Until the answer is known, what was made in advance may still be asked for.
    unasked = {step.trial_number for step in data.path if not step.is_needed}
    in_vain = unasked if data.is_found_here else set()
    return tuple(
        _cost(percent, by_switch_point[percent], in_vain)
        for percent in sorted(by_switch_point, reverse=True)
    )


def _cost(percent: float, runs: list[ReportRun], in_vain: set[int]) -> SwitchPointCost:
    def is_in_vain(run: ReportRun) -> bool:
        return run.outcome == "cancelled" or run.trial.trial_number in in_vain

    return SwitchPointCost(
        candidate_percent=percent,
        runs=len(runs),
        needed_seconds=_sum(run.trial.paid_seconds for run in runs if not is_in_vain(run)),
        vain_seconds=_sum(run.trial.paid_seconds for run in runs if is_in_vain(run)),
        shared_seconds=_sum(run.trial.inherited_seconds for run in runs if run.is_complete),
        stopped_seconds=_sum(_spared(run) for run in runs),
        lost_runs=sum(run.outcome in {"failed", "lost"} for run in runs),
    )


def _spared(run: ReportRun) -> float | None:
    """What the rest of a run that was stopped would have taken."""
    whole, done = run.trial.whole_run_seconds, run.trial.training_seconds
    return None if whole is None or done is None else max(0.0, whole - done)


def _sum(values: Iterable[float | None]) -> float:
    return math.fsum(value for value in values if value is not None)
