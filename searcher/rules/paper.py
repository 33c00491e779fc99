"""The paper's rule: a binary search with a fixed number of runs at each setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncswitch.searcher.decision import (
    Decided,
    Decision,
    NextRun,
    Observation,
    Progress,
    Rule,
    SettingSummary,
    Wait,
    mean_accuracy,
    summary_of,
)
from syncswitch.searcher.stopping import corrected
from syncswitch.storage.errors import UserError

__all__ = ["ROUNDING", "PaperRule", "check_baseline"]

ROUNDING = 1e-9
"""Means of accuracies such as 0.95 are not exact in binary; a tie must not depend on that."""


@dataclass(frozen=True, slots=True)
class PaperRule(Rule):
    """Binary search for the earliest acceptable switch (Sync-Switch, ICDCS 2021, Algorithm 1).

    The paper's pseudo-code leaves some points open, which are settled here: the sum of accuracies
    starts anew at each setting, and the answer is the lowest accepted setting. A setting is
    rejected by one diverged run, whatever the mean, so its remaining runs are not made.

    Attributes:
        two_sided: Accept only within [A - beta, A + beta], as printed in the paper, which rejects
            a candidate that is better than the baseline. Default: at least A - beta.
        baseline_runs: How many runs measure A; None for R.
    """

    two_sided: bool = False
    baseline_runs: int | None = None

    @property
    def name(self) -> str:
        """What policies and studies call this rule."""
        return "paper-two-sided" if self.two_sided else "paper"

    @property
    def most_runs(self) -> int:
        """Runs of a search in which none diverges."""
        is_measured = self.target_accuracy is None
        baselines = self.runs_at(self.highest_percent) if is_measured else 0
        return baselines + self.settings * self.runs

    def grid(self) -> tuple[float, ...]:
        """Every point that halving may lead to."""
        width = (self.highest_percent - self.lowest_percent) / 2**self.settings
        return tuple(
            self.lowest_percent + width * index for index in range(1, 2**self.settings + 1)
        )

    def decide(
        self, finished: Iterable[Observation], in_flight_percents: Iterable[float] = ()
    ) -> Decision:
        """See `Rule.decide`."""
        finished = list(finished)
        progress = self.progress(finished)
        percent = progress.open_percent
        if percent is None:
            if progress.target_accuracy is None:
                raise AssertionError("a decided search has a target")
            return Decided(progress.upper_percent, progress.target_accuracy)
        taken = sum(o.switch_percent == percent for o in finished)
        taken += sum(p == percent for p in in_flight_percents)
        missing = self.least_runs_at(percent) - taken
        return NextRun(percent, missing) if missing > 0 else Wait(percent)

    def progress(self, finished: Iterable[Observation]) -> Progress:
        """Walks through the search as far as the observations lead; see `Rule.progress`."""
        finished = corrected(finished)
        lower, upper = self.lowest_percent, self.highest_percent
        summaries: list[SettingSummary] = []
        target = self.target_accuracy
        if target is None:
            baseline = self._baseline(finished)
            summaries.append(baseline)
            if baseline.accepted is None:
                return Progress(tuple(summaries), lower, upper, None, upper)
            target = baseline.mean_accuracy
        for _ in range(self.settings):
            middle = (lower + upper) / 2
            summary = self._candidate(middle, finished, target)
            summaries.append(summary)
            if summary.accepted is None:
                return Progress(tuple(summaries), lower, upper, target, middle)
            lower, upper = (lower, middle) if summary.accepted else (middle, upper)
        return Progress(tuple(summaries), lower, upper, target, None)

    def _baseline(self, finished: Sequence[Observation]) -> SettingSummary:
        counted = self._counted(self.highest_percent, finished)
        check_baseline(counted)
        accepted = True if len(counted) == self.runs_at(self.highest_percent) else None
        return summary_of(self.highest_percent, counted, accepted)

    def _candidate(
        self, percent: float, finished: Sequence[Observation], target: float | None
    ) -> SettingSummary:
        counted = self._counted(percent, finished)
        accepted = None if target is None else self.verdict(counted, finished, target)
        return summary_of(percent, counted, accepted)

    def _counted(self, percent: float, finished: Sequence[Observation]) -> list[Observation]:
        runs = [run for run in finished if run.switch_percent == percent]
        runs.sort(key=lambda run: (run.trial_number, run.accuracy, run.diverged))
        return runs[: self.runs_at(percent)]

    def least_runs_at(self, percent: float) -> int:
        """Runs without which a setting is not decided on, unless one diverges."""
        return self.runs_at(percent)

    def runs_at(self, percent: float) -> int:
        """Runs that decide on a setting."""
        is_baseline = percent == self.highest_percent and self.baseline_runs is not None
        return self.baseline_runs if is_baseline and self.baseline_runs else self.runs

    def verdict(
        self, counted: Sequence[Observation], finished: Sequence[Observation], target: float
    ) -> bool | None:
        """Whether the runs of a candidate accept it; None as long as that is open."""
        if any(run.diverged for run in counted):
            return False
        if len(counted) < self.runs:
            return None
        return self._acceptable(mean_accuracy(counted), target)

    def _acceptable(self, mean: float, target: float) -> bool:
        if self.two_sided and mean > target + self.threshold + ROUNDING:
            return False
        return mean >= target - self.threshold - ROUNDING


def check_baseline(runs: Iterable[Observation]) -> None:
    """Refuses a job whose first protocol diverges.

    Raises:
        UserError: One of the runs diverged.
    """
    if any(run.diverged for run in runs):
        raise UserError(
            "a run of the first protocol alone diverged, so there is no accuracy to compare"
            " with: the learning rate is too high for this number of workers; lower it in the"
            " workload, or use fewer --workers"
        )
