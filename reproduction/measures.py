"""The cost and the success rate of searches, from many replays.

The measures are those of the Sync-Switch paper's Tables II and IV to VI.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reproduction.replays import PlayedRecording
from reproduction.simulator import PlayedRun, SimulatedSearch, search_with
from syncswitch.searcher.forecast import ratio_or_infinity
from syncswitch.searcher.speed_up import Estimate, half_width, mean
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import BASELINE_PERCENT


@dataclass(frozen=True, slots=True)
class Reference:
    """The paper's search on each switch point's mean over all its runs; the same for any strategy.

    Attributes:
        switch_percent: Its answer, which counts as success.
        accepted_percents: The switch points that it accepts, the first protocol alone among them.
        usable_runs: Runs that a search makes at these; None if that varies from search to search.
        kept_shares: By switch point, the share of its recorded runs that do not diverge and lose at
            most beta against the mean of the first protocol alone.
    """

    switch_percent: float
    accepted_percents: tuple[float, ...]
    usable_runs: int | None
    kept_shares: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CostSummary:
    """The cost and success of many replayed searches.

    Attributes:
        search_cost: Training time of all runs of a search, in mean trainings with the first
            protocol alone.
        amortized_recurrences: Number of trainings with the reference's policy that pay the search
            back; infinite if it saves nothing.
        effective_training: Runs with usable models, per unit of search cost. These are the runs of
            the baseline and of switch points that the reference accepts. For the paper's strategy
            it is the number that a search without luck makes, as in the paper; if that varies, or
            runs are stopped, it is the mean number of those that were made to their end.
        success_percent: How often the answer was the reference's.
        kept_percent: How many of 100 later runs with the answer lose at most beta, judging by the
            recorded runs; None if a search's answer has none.
        baseline_kept_percent: The same for the first protocol alone.
        mean_runs: Mean number of runs of a search.
        confidence: Mean of the strategy's confidence in its answers; None if it does not say.
        simulations: Number of searches.
        reference_percent: The reference's answer.
    """

    search_cost: Estimate
    amortized_recurrences: Estimate
    effective_training: Estimate
    success_percent: Estimate
    kept_percent: Estimate | None
    baseline_kept_percent: float | None
    mean_runs: float
    confidence: float | None
    simulations: int
    reference_percent: float


def reference(strategy: Strategy, runs: PlayedRecording) -> Reference:
    """Returns the search without luck.

    Raises UserError if it asks for a switch point without recorded runs.
    """
    walk = _walk_on_means(strategy, runs)
    if walk.missing_percent is not None:
        recorded = ", ".join(f"{known:g}" for known in sorted(runs.means, reverse=True)) or "none"
        raise UserError(
            f"the search asks for runs at {walk.missing_percent:g} %, and none is recorded"
            f" (recorded: {recorded}); lower --halvings, or record such runs"
        )
    # Halving goes below what is accepted, and never below what is not.
    accepted = [percent for percent in walk.percents if percent >= walk.answer_percent]
    usable_runs = None
    if isinstance(strategy, PaperStrategy) and not strategy.early_stop:
        usable_runs = sum(map(strategy.runs_at, accepted))
    return Reference(
        switch_percent=walk.answer_percent,
        accepted_percents=tuple(sorted({strategy.highest_percent, *accepted}, reverse=True)),
        usable_runs=usable_runs,
        kept_shares=_kept_shares(strategy.threshold, runs),
    )


def deepest_switch_points(threshold: float, runs: PlayedRecording) -> int:
    """Returns M of the deepest binary search whose candidates were all recorded; 0 for none."""
    halvings = 0
    while _walk_on_means(PaperStrategy(halvings + 1, 1, threshold), runs).missing_percent is None:
        halvings += 1
    return halvings


def summarize(
    searches: Sequence[SimulatedSearch], runs: PlayedRecording, expected: Reference
) -> CostSummary:
    """Returns the paper's measures over many searches; `expected` is the search without luck.

    Raises UserError if no run used the first protocol alone.
    """
    baseline = runs.means.get(BASELINE_PERCENT)
    if baseline is None or not baseline.seconds:
        raise UserError(
            "no recorded run used the first protocol alone (switch point 100 %): cost has no unit;"
            " record or import such runs"
        )
    costs = [search.seconds / baseline.seconds for search in searches]
    cost = _not_negative(mean(costs))
    saved = 1 - runs.means[expected.switch_percent].seconds / baseline.seconds
    shares = expected.kept_shares
    kept = [shares[s.switch_percent] for s in searches if s.switch_percent in shares]
    usual = shares.get(BASELINE_PERCENT)
    said = [search.confidence for search in searches if search.confidence is not None]
    return CostSummary(
        search_cost=cost,
        amortized_recurrences=Estimate(
            *(ratio_or_infinity(c, saved) for c in (cost.value, cost.low, cost.high))
        ),
        effective_training=_effective_training(searches, costs, expected),
        success_percent=share(s.switch_percent == expected.switch_percent for s in searches),
        kept_percent=_percent(mean(kept)) if len(kept) == len(searches) else None,
        baseline_kept_percent=None if usual is None else 100 * usual,
        mean_runs=statistics.fmean(search.runs for search in searches),
        confidence=statistics.fmean(said) if said else None,
        simulations=len(searches),
        reference_percent=expected.switch_percent,
    )


def _kept_shares(threshold: float, runs: PlayedRecording) -> dict[float, float]:
    baseline = runs.means.get(BASELINE_PERCENT)
    if baseline is None:
        return {}
    least = baseline.accuracy - threshold - ROUNDING
    shares = {}
    for percent in runs.recording.switch_points:
        recorded = runs.recording.at(percent)
        kept = sum(run.accuracy >= least and not run.diverged for run in recorded)
        shares[percent] = kept / len(recorded)
    return shares


def _percent(found: Estimate) -> Estimate:
    return Estimate(*(100 * min(1.0, max(0.0, v)) for v in (found.value, found.low, found.high)))


def _effective_training(
    searches: Sequence[SimulatedSearch], costs: Sequence[float], expected: Reference
) -> Estimate:
    if not any(costs):
        return Estimate(math.inf, math.inf, math.inf)
    if expected.usable_runs is not None:
        usable = [expected.usable_runs] * len(searches)
    else:
        usable = [
            sum(percent in expected.accepted_percents for percent in search.whole_percents)
            for search in searches
        ]
    return _not_negative(ratio_of_means(usable, costs))


def _not_negative(estimate: Estimate) -> Estimate:
    return replace(estimate, low=max(0.0, estimate.low))


@dataclass(frozen=True, slots=True)
class _Walk:
    """The switch points that a search without luck looked at, its answer, and a missing one."""

    percents: tuple[float, ...]
    answer_percent: float
    missing_percent: float | None


def _walk_on_means(strategy: Strategy, runs: PlayedRecording) -> _Walk:
    seen: list[float] = []

    def mean_at(percent: float, _: int) -> PlayedRun | None:
        seen.append(percent)
        return runs.means.get(percent)

    plain = PaperStrategy(
        strategy.halvings,
        1,
        strategy.threshold,
        strategy.target_accuracy,
        accuracy_range=strategy.accuracy_range,
    )
    search = search_with(plain, mean_at)
    missing = next((percent for percent in seen if percent not in runs.means), None)
    return _Walk(tuple(seen), search.switch_percent, missing)


def ratio_of_means(values: Sequence[float], units: Sequence[float]) -> Estimate:
    """Returns the ratio of the means of pairs, with the interval of the linearised ratio."""
    unit = statistics.fmean(units)
    value = statistics.fmean(values) / unit
    half = half_width([a - value * b for a, b in zip(values, units, strict=True)]) / unit
    return Estimate(value, value - half, value + half)


def share(flags: Iterable[bool]) -> Estimate:
    """Returns the percent of flags that are true, with Wilson's interval."""
    from scipy.stats import binomtest

    known = list(flags)
    result = binomtest(sum(known), len(known))
    interval = result.proportion_ci(method="wilson")
    return Estimate(100 * result.statistic, 100 * interval.low, 100 * interval.high)
