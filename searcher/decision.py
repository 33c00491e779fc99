"""The offline timing policy as a pure rule: from observations to the next run or the answer.

A rule has no state. It walks through the whole history on every call, so whoever holds the history
can go on with the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncswitch.storage.errors import UserError

__all__ = [
    "Decided",
    "Decision",
    "NextRun",
    "Observation",
    "PaperRule",
    "Progress",
    "SettingSummary",
    "Wait",
]

# Means of accuracies such as 0.95 are not exact in binary; a tie must not depend on that.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Observation:
    """One completed training run, as a rule sees it.

    Attributes:
        switch_percent: Percent of W worker-steps in the first protocol.
        accuracy: Converged accuracy, 0 to 1.
        diverged: Whether the training blew up.
        trial_number: Says which runs of a setting were first.
    """

    switch_percent: float
    accuracy: float
    diverged: bool = False
    trial_number: int = 0


@dataclass(frozen=True, slots=True)
class NextRun:
    """A run at this setting is needed now."""

    switch_percent: float


@dataclass(frozen=True, slots=True)
class Wait:
    """All runs that this setting needs are made or in flight."""

    switch_percent: float


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer.

    Attributes:
        switch_percent: The timing policy.
        target_accuracy: A, what candidates were compared with.
    """

    switch_percent: float
    target_accuracy: float


Decision = NextRun | Wait | Decided


@dataclass(frozen=True, slots=True)
class SettingSummary:
    """What is known of one setting.

    Attributes:
        switch_percent: The setting.
        runs: Completed runs that count.
        diverged_runs: How many of them diverged.
        mean_accuracy: None without a run.
        standard_deviation: Of the sample; None for fewer than two runs.
        accepted: None as long as it is open.
    """

    switch_percent: float
    runs: int
    diverged_runs: int
    mean_accuracy: float | None
    standard_deviation: float | None
    accepted: bool | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is.

    Attributes:
        summaries: One for each setting reached, in the order of the search.
        lower_percent: The highest setting known to be too early, or the lower end.
        upper_percent: The lowest setting known to be acceptable.
        target_accuracy: A; None until the baseline is measured.
        open_percent: The setting being measured; None once decided.
    """

    summaries: tuple[SettingSummary, ...]
    lower_percent: float
    upper_percent: float
    target_accuracy: float | None
    open_percent: float | None


@dataclass(frozen=True, slots=True)
class PaperRule:
    """Binary search for the earliest acceptable switch (Sync-Switch, ICDCS 2021, Algorithm 1).

    The paper's pseudo-code leaves some points open, which are settled here: the sum of accuracies
    starts anew at each setting, and the answer is the lowest accepted setting. A setting is
    rejected by one diverged run, whatever the mean, so its remaining runs are not made.

    Attributes:
        settings: M, candidates to try.
        runs: R, runs at each setting.
        threshold: beta, the accuracy that may be lost.
        target_accuracy: A; None to measure it with runs of the first protocol alone.
        two_sided: Accept only within [A - beta, A + beta], as printed in the paper, which rejects
            a candidate that is better than the baseline. Default: at least A - beta.
        lowest_percent: Lower end of the search.
        highest_percent: Upper end: the first protocol alone.
        baseline_runs: How many runs measure A; None for R.
    """

    settings: int = 5
    runs: int = 5
    threshold: float = 0.01
    target_accuracy: float | None = None
    two_sided: bool = False
    lowest_percent: float = 0.0
    highest_percent: float = 100.0
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

    def decide(
        self, finished: Iterable[Observation], in_flight_percents: Iterable[float] = ()
    ) -> Decision:
        """Says what to do now.

        Args:
            finished: Completed runs in any order; those at other settings are ignored.
            in_flight_percents: Setting of each run under way.

        Raises:
            UserError: The baseline diverged, so there is nothing to compare with.
        """
        finished = list(finished)
        progress = self.progress(finished)
        percent = progress.open_percent
        if percent is None:
            if progress.target_accuracy is None:
                raise AssertionError("a decided search has a target")
            return Decided(progress.upper_percent, progress.target_accuracy)
        taken = sum(o.switch_percent == percent for o in finished)
        taken += sum(p == percent for p in in_flight_percents)
        return NextRun(percent) if taken < self.runs_at(percent) else Wait(percent)

    def progress(self, finished: Iterable[Observation]) -> Progress:
        """Walks through the search as far as the observations lead.

        Raises:
            UserError: The baseline diverged.
        """
        finished = list(finished)
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
        if any(run.diverged for run in counted):
            raise UserError(
                "a run of the first protocol alone diverged, so there is no accuracy to compare"
                " with: the learning rate is too high for this number of workers; lower it in the"
                " workload, or use fewer --workers"
            )
        accepted = True if len(counted) == self.runs_at(self.highest_percent) else None
        return _summary(self.highest_percent, counted, accepted)

    def _candidate(
        self, percent: float, finished: Sequence[Observation], target: float | None
    ) -> SettingSummary:
        counted = self._counted(percent, finished)
        accepted: bool | None = None
        if any(run.diverged for run in counted):
            accepted = False
        elif len(counted) == self.runs and target is not None:
            accepted = self._acceptable(_mean(counted), target)
        return _summary(percent, counted, accepted)

    def _counted(self, percent: float, finished: Sequence[Observation]) -> list[Observation]:
        runs = [run for run in finished if run.switch_percent == percent]
        runs.sort(key=lambda run: (run.trial_number, run.accuracy, run.diverged))
        return runs[: self.runs_at(percent)]

    def runs_at(self, percent: float) -> int:
        """Runs that decide on a setting."""
        is_baseline = percent == self.highest_percent and self.baseline_runs is not None
        return self.baseline_runs if is_baseline and self.baseline_runs else self.runs

    def _acceptable(self, mean: float, target: float) -> bool:
        if self.two_sided and mean > target + self.threshold + _ROUNDING:
            return False
        return mean >= target - self.threshold - _ROUNDING


def _mean(runs: Sequence[Observation]) -> float:
    return math.fsum(run.accuracy for run in runs) / len(runs)


def _standard_deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    # `statistics.stdev` works with fractions; a rule is asked a hundred thousand times in a replay.
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _summary(percent: float, runs: Sequence[Observation], accepted: bool | None) -> SettingSummary:
    accuracies = [run.accuracy for run in runs]
    return SettingSummary(
        switch_percent=percent,
        runs=len(runs),
        diverged_runs=sum(run.diverged for run in runs),
        mean_accuracy=_mean(runs) if runs else None,
        standard_deviation=_standard_deviation(accuracies),
        accepted=accepted,
    )
