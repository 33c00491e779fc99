"""What many judged searches say of a strategy, with 95 % intervals; pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.contenders import Outcome
from syncswitch.searcher.simulation.estimates import Estimate, mean, ratio_of_means, share

_ANSWERS = 3


@dataclass(frozen=True, slots=True)
class Score:
    """One strategy on some problems; see `Outcome` for the measures.

    Attributes:
        problems: How many.
        answers: The most frequent answers in percent, and how often each was given.
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
    answers: list[tuple[float, int]]
    runs: float
    cost: Estimate
    cost_ratio: Estimate
    success_percent: Estimate
    too_early_percent: Estimate
    regret: Estimate | None
    policy_time: Estimate | None


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
        answers=Counter(outcome.answer for outcome in values).most_common(_ANSWERS),
        runs=statistics.fmean(outcome.runs for outcome in values),
        cost=mean(costs),
        cost_ratio=ratio_of_means(costs, [reference[number].cost for number in outcomes]),
        success_percent=share(outcome.is_success for outcome in values),
        too_early_percent=share(outcome.is_too_early for outcome in values),
        regret=_known_mean(outcome.regret for outcome in values),
        policy_time=_known_mean(outcome.policy_time for outcome in values),
    )


def _known_mean(values: Iterable[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
