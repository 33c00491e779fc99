"""What many judged searches say of a strategy, with 95 % intervals; pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.contenders import Outcome
from syncswitch.searcher.results.estimates import Estimate, mean, ratio_of_means, share

CONFIDENCE_EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class Score:
    """One strategy on some problems; see `Outcome` for the measures.

    Attributes:
        problems: How many.
        runs: Of a search, on average.
        cost: Of a search, on average.
        cost_ratio: Mean cost by that of the reference on the same problems.
        success_percent: Of the searches.
        too_early_percent: Of the searches.
        regret: On average; None where every answer was too early.
        policy_time: The same.
    """

    strategy: str
    problems: int
    runs: float
    cost: Estimate
    cost_ratio: Estimate
    success_percent: Estimate
    too_early_percent: Estimate
    regret: Estimate | None
    policy_time: Estimate | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Searches whose confidence was in a range.

    Attributes:
        low: Confidence, inclusive.
        high: Exclusive, except for the last range.
        searches: How many; ranges without a search are left out.
        confidence_percent: As reported, on average.
        right_percent: How often what it claims was true.
    """

    low: float
    high: float
    searches: int
    confidence_percent: float
    right_percent: Estimate

    @property
    def is_total(self) -> bool:
        """Whether it is over all searches."""
        return (self.low, self.high) == (CONFIDENCE_EDGES[0], CONFIDENCE_EDGES[-1])


def score(
    strategy: str, outcomes: Mapping[int, Outcome], reference: Mapping[int, Outcome]
) -> Score:
    """Sums up one strategy.

    Args:
        strategy: Its name.
        outcomes: By the number of the problem.
        reference: Of the strategy that costs are compared with; at least on the same problems.
    """
    values = list(outcomes.values())
    costs = [outcome.cost for outcome in values]
    return Score(
        strategy=strategy,
        problems=len(values),
        runs=statistics.fmean(outcome.runs for outcome in values),
        cost=mean(costs),
        cost_ratio=ratio_of_means(costs, [reference[number].cost for number in outcomes]),
        success_percent=share(outcome.is_success for outcome in values),
        too_early_percent=share(outcome.is_too_early for outcome in values),
        regret=_known_mean(outcome.regret for outcome in values),
        policy_time=_known_mean(outcome.policy_time for outcome in values),
    )


def calibration(outcomes: Iterable[Outcome]) -> list[Calibration]:
    """Reported confidence against the truth, by range; the last entry is over all of them."""
    said = [
        (outcome.confidence, outcome.is_right)
        for outcome in outcomes
        if outcome.confidence is not None
    ]
    edges = CONFIDENCE_EDGES
    ranges = [*itertools.pairwise(edges), (edges[0], edges[-1])]
    rows = []
    for low, high in ranges:
        within = [pair for pair in said if low <= pair[0] < high or pair[0] == high == edges[-1]]
        if within:
            confidence = 100 * statistics.fmean(pair[0] for pair in within)
            right = share(pair[1] for pair in within)
            rows.append(Calibration(low, high, len(within), confidence, right))
    return rows


def _known_mean(values: Iterable[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
