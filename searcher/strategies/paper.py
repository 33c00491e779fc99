"""The paper's strategy: a binary search with a fixed number of runs at each switch point."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from syncswitch.searcher.strategies.base import (
    Decided,
    Decision,
    NextTrial,
    SearchProgress,
    Strategy,
    summary_of,
)
from syncswitch.searcher.strategies.baseline import ROUNDING, check_baseline
from syncswitch.searcher.strategies.early_stopping import corrected
from syncswitch.searcher.strategies.observation import Observation, mean_accuracy


@dataclass(frozen=True, slots=True)
class PaperStrategy(Strategy):
    """Binary search for the earliest acceptable switch (Sync-Switch, ICDCS 2021, Algorithm 1).

    What the paper's pseudo-code leaves open is settled here: the sum of accuracies starts anew at
    each switch point, the answer is the lowest accepted switch point, and a switch point that is
    better than the first protocol alone is accepted. One diverged run rejects a switch point,
    whatever the mean, so its remaining runs are not made.

    Attributes:
        baseline_runs: Number of runs that measure A; None for R.
    """

    name = "paper"

    baseline_runs: int | None = None

    @property
    @override
    def repeats(self) -> int:
        return self.runs

    @property
    @override
    def most_runs(self) -> int:
        is_measured = self.target_accuracy is None or self.allowed.is_from_runs
        baselines = self.runs_at(self.highest_percent) if is_measured else 0
        return baselines + self.halvings * self.runs

    @override
    def grid(self) -> tuple[float, ...]:
        points = [self.lowest_percent, self.highest_percent]
        for _ in range(self.halvings):
            # Computed as in the search, so that not even the last bit differs.
            middles = [(lower + upper) / 2 for lower, upper in itertools.pairwise(points)]
            points = sorted([*points, *middles])
        return tuple(points[1:])

    @override
    def runs_at(self, percent: float) -> int:
        if percent < self.highest_percent:
            return self.runs
        if self.allowed.is_from_runs and self.target_accuracy is not None:
            return self.allowed.runs
        return max(self.baseline_runs or self.runs, self.allowed.runs)

    @override
    def decide(self, finished: Iterable[Observation]) -> Decision:
        finished = list(finished)
        progress = self.progress(finished)
        percent = progress.open_percent
        if percent is None:
            assert progress.target_accuracy is not None  # a decided search has a target
            return Decided(progress.upper_percent, progress.target_accuracy)
        made = len(self._counted(percent, finished))
        return NextTrial(percent, self.runs_at(percent) - made)

    @override
    def progress(self, finished: Iterable[Observation]) -> SearchProgress:
        finished = list(finished)
        threshold = self.with_measured_threshold(finished).threshold
        lower, upper = self.lowest_percent, self.highest_percent
        percents: list[float] = []
        reached: list[list[Observation]] = []
        verdicts: list[bool | None] = []
        if self.target_accuracy is None or self.allowed.is_from_runs:
            percents.append(upper)
            reached.append(self._counted(upper, finished))
            verdicts.append(len(reached[0]) == self.runs_at(upper) or None)
        for _ in range(self.halvings):
            if None in verdicts:
                break
            middle = (lower + upper) / 2
            percents.append(middle)
            reached.append(self._counted(middle, finished))
            # Only what was known then counts, so that no later run reopens a verdict.
            counted = self._corrected(reached)
            verdicts.append(self._verdict(counted[-1], self._target(counted) - threshold))
            if verdicts[-1] is not None:
                lower, upper = (lower, middle) if verdicts[-1] else (middle, upper)
        counted = self._corrected(reached)
        is_measured = verdicts[:1] != [None] or self.target_accuracy is not None
        return SearchProgress(
            summaries=tuple(map(summary_of, percents, counted, verdicts)),
            lower_percent=lower,
            upper_percent=upper,
            target_accuracy=self._target(counted) if is_measured else None,
            open_percent=percents[-1] if None in verdicts else None,
        )

    def _verdict(self, candidate: Sequence[Observation], least: float) -> bool | None:
        """Returns whether a switch point is acceptable; None while runs of it are missing."""
        if any(run.diverged for run in candidate):
            return False
        if len(candidate) < self.runs:
            return None
        return mean_accuracy(candidate) - least >= -ROUNDING

    def _target(self, reached: Sequence[Sequence[Observation]]) -> float:
        return mean_accuracy(reached[0]) if self.target_accuracy is None else self.target_accuracy

    def _counted(self, percent: float, finished: Sequence[Observation]) -> list[Observation]:
        runs = [run for run in finished if run.switch_percent == percent]
        if percent == self.highest_percent:
            check_baseline(run.diverged for run in runs)
            runs = [run for run in runs if not run.diverged]
        runs.sort(key=lambda run: (run.trial_number, run.accuracy, run.diverged))
        return runs[: self.runs_at(percent)]

    def _corrected(self, reached: Sequence[Sequence[Observation]]) -> list[list[Observation]]:
        runs = iter(corrected(itertools.chain.from_iterable(reached), self.accuracy_range))
        return [list(itertools.islice(runs, len(switch_point))) for switch_point in reached]
