"""The progress of a search and the belief behind it, as a strategy reports them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.strategies.observation import Observation, mean_accuracy


@dataclass(frozen=True, slots=True)
class SwitchPointSummary:
    """The completed runs that count at one switch point, and what they measured.

    Whether the accuracy is good enough (`accepted`) is None while that is open.
    """

    switch_percent: float
    runs: int
    diverged_runs: int
    mean_accuracy: float | None
    standard_deviation: float | None
    accepted: bool | None


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is.

    Attributes:
        summaries: One for each switch point reached, in the order of the search.
        lower_percent: The highest switch point known to be too early, or the lower end.
        upper_percent: The lowest switch point known to be acceptable.
        target_accuracy: A; None until the baseline is measured.
        open_percent: The switch point being measured; None once decided.
    """

    summaries: tuple[SwitchPointSummary, ...]
    lower_percent: float
    upper_percent: float
    target_accuracy: float | None
    open_percent: float | None


@dataclass(frozen=True, slots=True)
class SwitchPointBelief:
    """The belief about one switch point.

    Attributes:
        switch_percent: The switch point.
        good_probability: Probability that guarded trainings with it take less time than with the
            first protocol alone; for a bare switch, that enough of them keep the accuracy.
        kept_share: Probability that one more run loses at most beta.
        low_accuracy: Lower end of the range in which nine of ten further runs end.
        high_accuracy: Upper end of that range.
    """

    switch_percent: float
    good_probability: float
    kept_share: float
    low_accuracy: float
    high_accuracy: float


def summary_of(
    percent: float, runs: Sequence[Observation], accepted: bool | None
) -> SwitchPointSummary:
    """Sums up the runs of a switch point; `accepted` is the strategy's verdict."""
    accuracies = [run.accuracy for run in runs]
    return SwitchPointSummary(
        switch_percent=percent,
        runs=len(runs),
        diverged_runs=sum(run.diverged for run in runs),
        mean_accuracy=mean_accuracy(runs) if runs else None,
        standard_deviation=_standard_deviation(accuracies),
        accepted=accepted,
    )


def _standard_deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    # `statistics.stdev` works with fractions, which is slow, and replays ask 100,000 times.
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
