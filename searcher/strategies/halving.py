"""Binary search over the switch points; how many runs each takes is the strategy's."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncswitch.searcher.strategies.base import (
    Decided,
    Decision,
    NextRun,
    Observation,
    Progress,
    Strategy,
    mean_accuracy,
    summary_of,
)
from syncswitch.searcher.strategies.early_stopping import corrected
from syncswitch.storage.errors import UserError

__all__ = ["ROUNDING", "HalvingStrategy", "check_baseline"]

ROUNDING = 1e-9
"""Means of accuracies such as 0.95 are not exact in binary; a tie must not depend on that."""


_DIVERGED_BASELINES = 2


@dataclass(frozen=True, slots=True)
class HalvingStrategy(Strategy):
    """Measures A, then halves the range M times.

    Attributes:
        baseline_runs: How many runs measure A; None for what is usual.
    """

    baseline_runs: int | None = None

    @property
    def usual_baseline_runs(self) -> int:
        """Runs that measure A where nobody says how many."""
        return self.runs

    @property
    def most_runs(self) -> int:
        """See `Strategy.most_runs`."""
        is_measured = self.target_accuracy is None
        baselines = self.runs_at(self.highest_percent) if is_measured else 0
        return baselines + self.settings * self.runs

    def grid(self) -> tuple[float, ...]:
        """Every point that halving may lead to."""
        points = [self.lowest_percent, self.highest_percent]
        for _ in range(self.settings):
            # As in the search, so that not even the last bit differs.
            middles = [(lower + upper) / 2 for lower, upper in itertools.pairwise(points)]
            points = sorted([*points, *middles])
        return tuple(points[1:])

    @abstractmethod
    def least_runs_at(self, percent: float) -> int:
        """Runs without which a switch point is not decided on, unless one diverges."""

    @abstractmethod
    def verdict(self, reached: Sequence[Sequence[Observation]], target: float) -> bool | None:
        """Whether a candidate is acceptable.

        Args:
            reached: The runs that count of each switch point up to this one, in the order of the
                search; the candidate's own are the last.
            target: A.

        Returns:
            None as long as that is open, which it is not after `runs_at` runs.
        """

    def runs_at(self, percent: float) -> int:
        """The most runs that decide on a switch point."""
        if percent == self.highest_percent:
            return self.baseline_runs or self.usual_baseline_runs
        return self.runs

    def decide(self, finished: Iterable[Observation]) -> Decision:
        """See `Strategy.decide`."""
        finished = list(finished)
        progress = self.progress(finished)
        percent = progress.open_percent
        if percent is None:
            if progress.target_accuracy is None:
                raise AssertionError("a decided search has a target")
            return Decided(progress.upper_percent, progress.target_accuracy)
        made = len(self._counted(percent, finished))
        return NextRun(percent, max(self.least_runs_at(percent) - made, 1))

    def progress(self, finished: Iterable[Observation]) -> Progress:
        """Walks through the search as far as the observations lead; see `Strategy.progress`."""
        finished = list(finished)
        lower, upper = self.lowest_percent, self.highest_percent
        percents: list[float] = []
        reached: list[list[Observation]] = []
        verdicts: list[bool | None] = []
        if self.target_accuracy is None:
            percents.append(upper)
            reached.append(self._counted(upper, finished))
            verdicts.append(len(reached[0]) == self.runs_at(upper) or None)
        for _ in range(self.settings):
            if None in verdicts:
                break
            middle = (lower + upper) / 2
            percents.append(middle)
            reached.append(self._counted(middle, finished))
            # Only what was known then, so that no later run opens a verdict again.
            known = _corrected(reached)
            verdicts.append(self.verdict(known, self._target(known)))
            if verdicts[-1] is not None:
                lower, upper = (lower, middle) if verdicts[-1] else (middle, upper)
        known = _corrected(reached)
        is_measured = self.target_accuracy is not None or verdicts[0] is not None
        return Progress(
            summaries=tuple(map(summary_of, percents, known, verdicts)),
            lower_percent=lower,
            upper_percent=upper,
            target_accuracy=self._target(known) if is_measured else None,
            open_percent=percents[-1] if None in verdicts else None,
        )

    def _target(self, reached: Sequence[Sequence[Observation]]) -> float:
        return mean_accuracy(reached[0]) if self.target_accuracy is None else self.target_accuracy

    def _counted(self, percent: float, finished: Sequence[Observation]) -> list[Observation]:
        runs = [run for run in finished if run.switch_percent == percent]
        if percent == self.highest_percent:
            check_baseline(runs)
            runs = [run for run in runs if not run.diverged]
        runs.sort(key=lambda run: (run.trial_number, run.accuracy, run.diverged))
        return runs[: self.runs_at(percent)]


def _corrected(reached: Sequence[Sequence[Observation]]) -> list[list[Observation]]:
    runs = iter(corrected(itertools.chain.from_iterable(reached)))
    return [list(itertools.islice(runs, len(switch_point))) for switch_point in reached]


def check_baseline(runs: Iterable[Observation]) -> None:
    """Refuses a job whose first protocol diverges.

    One such run may be bad luck, and is made again with another seed.

    Raises:
        UserError: Several of the runs diverged, and most of them.
    """
    runs = list(runs)
    diverged = sum(run.diverged for run in runs)
    if diverged >= _DIVERGED_BASELINES and 2 * diverged > len(runs):
        raise UserError(
            f"{diverged} of {len(runs)} runs of the first protocol alone diverged, so there is no"
            " accuracy to compare with: the learning rate is too high for this number of workers;"
            " lower it in the workload, or use fewer --workers"
        )
