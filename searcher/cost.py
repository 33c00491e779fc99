"""What a search would have cost: simulated on recorded runs, or forecast from two times.

The measures are those of the Sync-Switch paper's Tables II and IV to VI.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncswitch.searcher.decision import Decided, NextRun, Observation
from syncswitch.searcher.rules.paper import PaperRule
from syncswitch.storage.errors import UserError

__all__ = [
    "BASELINE_PERCENT",
    "CostSummary",
    "Estimate",
    "Forecast",
    "RecordedRun",
    "Reference",
    "SimulatedSearch",
    "deepest_settings",
    "forecast",
    "reference",
    "simulate",
    "summarize",
]

BASELINE_PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One completed run, as a replayed search sees it.

    Attributes:
        setting_percent: The setting that it counts for.
        accuracy: Converged accuracy, 0 to 1; 0 where a diverged run has none.
        seconds: Training time; 0 where nobody recorded how soon a run diverged.
        diverged: Whether the training blew up.
    """

    setting_percent: float
    accuracy: float
    seconds: float
    diverged: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedSearch:
    """How one replayed search went.

    Attributes:
        switch_percent: Its answer.
        seconds: Training time of all its runs.
    """

    switch_percent: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Reference:
    """How the search goes in which each setting's mean over all recorded runs is known.

    Attributes:
        switch_percent: Its answer: the one that counts as success.
        usable_runs: Runs of the baseline and of accepted candidates: effective training, as their
            models can be used.
    """

    switch_percent: float
    usable_runs: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % confidence interval, or a share with that of Wilson."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CostSummary:
    """What many replayed searches cost.

    Attributes:
        search_cost: Training time of all runs of a search, in mean trainings with the first
            protocol alone.
        amortized_recurrences: After so many trainings with the reference's policy the search is
            paid back; infinite where it saves nothing.
        effective_training: The reference's usable runs per unit of search cost.
        success_percent: How often the answer was the reference's.
        simulations: Number of searches.
        reference_percent: The reference's answer.
    """

    search_cost: Estimate
    amortized_recurrences: Estimate
    effective_training: Estimate
    success_percent: Estimate
    simulations: int
    reference_percent: float


_HOPELESS = -2.0  # below any target, by more than any threshold


class _Deck:
    """Recorded runs of each setting, drawn without replacement, and reshuffled when used up."""

    def __init__(
        self, runs: Mapping[float, Sequence[RecordedRun]], random: np.random.Generator
    ) -> None:
        self._runs = runs
        self._random = random
        self._left: dict[float, list[RecordedRun]] = defaultdict(list)

    def draw(self, percent: float) -> RecordedRun | None:
        """A run at this setting; None where nobody recorded one."""
        left = self._left[percent]
        if not left:
            recorded = self._runs.get(percent, ())
            left.extend(recorded[index] for index in self._random.permutation(len(recorded)))
        return left.pop() if left else None


def simulate(
    rule: PaperRule, runs: Iterable[RecordedRun], simulations: int, seed: int = 0
) -> list[SimulatedSearch]:
    """Replays a search many times.

    A search that unlucky draws lead to a setting without a recorded run ends there, with what it
    has accepted so far: its answer is wrong anyway.

    Args:
        rule: Decides; it is asked as in a real search.
        runs: The recorded runs; each simulation draws among those of a setting.
        simulations: How many searches.
        seed: Of the draws.
    """
    by_setting = _by_setting(runs)
    streams = np.random.SeedSequence(seed).spawn(simulations)
    return [_search(rule, _Deck(by_setting, np.random.default_rng(s))) for s in streams]


def reference(rule: PaperRule, runs: Iterable[RecordedRun]) -> Reference:
    """The search without luck.

    Raises:
        UserError: The rule asks for a setting of which there is no run.
    """
    by_setting = _by_setting(runs)
    decision, means = _walk_on_means(rule, by_setting)
    if not isinstance(decision, Decided):
        recorded = ", ".join(f"{known:g}" for known in sorted(by_setting, reverse=True)) or "none"
        raise UserError(
            f"the search asks for runs at {decision.switch_percent:g} %, and none is recorded"
            f" (recorded: {recorded}); lower --settings, or record such runs"
        )
    summaries = _on_means(rule).progress(_observations(means)).summaries
    accepted = [s.switch_percent for s in summaries if s.accepted]
    return Reference(decision.switch_percent, sum(rule.runs_at(percent) for percent in accepted))


def deepest_settings(rule: PaperRule, runs: Iterable[RecordedRun]) -> int:
    """M of the deepest binary search of which every candidate was recorded; 0 for none."""
    by_setting = _by_setting(runs)
    settings = 0
    while isinstance(_walk_on_means(replace(rule, settings=settings + 1), by_setting)[0], Decided):
        settings += 1
    return settings


def summarize(
    searches: Sequence[SimulatedSearch], runs: Iterable[RecordedRun], expected: Reference
) -> CostSummary:
    """The paper's measures over many searches.

    Args:
        searches: At least one.
        runs: The recorded runs that were replayed.
        expected: The search without luck.

    Raises:
        UserError: No run used the first protocol alone.
    """
    seconds = {
        percent: statistics.fmean(run.seconds for run in recorded)
        for percent, recorded in _by_setting(runs).items()
    }
    baseline = seconds.get(BASELINE_PERCENT)
    if not baseline:
        raise UserError(
            "no recorded run used the first protocol alone (setting 100 %), so there is no unit for"
            " the cost; record or import such runs"
        )
    cost = _mean([search.seconds / baseline for search in searches])
    saved = 1 - seconds[expected.switch_percent] / baseline
    usable = expected.usable_runs
    successes = sum(search.switch_percent == expected.switch_percent for search in searches)
    return CostSummary(
        search_cost=cost,
        amortized_recurrences=Estimate(
            *(_ratio(c, saved) for c in (cost.value, cost.low, cost.high))
        ),
        effective_training=Estimate(
            *(_ratio(usable, c) for c in (cost.value, cost.high, cost.low))
        ),
        success_percent=_share(successes, len(searches)),
        simulations=len(searches),
        reference_percent=expected.switch_percent,
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a search will cost if its answer is this one and no run is unlucky.

    Attributes:
        switch_percent: The answer.
        runs: How many trainings.
        search_cost: In trainings with the first protocol alone.
        amortized_recurrences: Trainings with the policy that pay the search back.
        speed_up: Of a training with the policy.
    """

    switch_percent: float
    runs: int
    search_cost: float
    amortized_recurrences: float
    speed_up: float


def forecast(rule: PaperRule, first_seconds: float, second_seconds: float) -> list[Forecast]:
    """The cost of a search for each answer that halving leads to, earliest switch last.

    A run at s % is taken to need s % of the time of the first protocol alone, and for the rest the
    time of the second.

    Args:
        rule: Of the search.
        first_seconds: One training with the first protocol alone.
        second_seconds: One training with the second protocol alone.

    Raises:
        UserError: A time is not above 0.
    """
    for name, value in (("first", first_seconds), ("second", second_seconds)):
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"the training time with the {name} protocol is {value}: give seconds")
    knees = [rule.highest_percent / 2**halvings for halvings in range(rule.settings + 1)]
    return [_foreseen(rule, knee, first_seconds, second_seconds) for knee in knees]


def _foreseen(
    rule: PaperRule, knee_percent: float, first_seconds: float, second_seconds: float
) -> Forecast:
    target = rule.target_accuracy if rule.target_accuracy is not None else 0.5

    def run_at(percent: float) -> RecordedRun:
        share = percent / rule.highest_percent
        accuracy = target if percent >= knee_percent else _HOPELESS
        return RecordedRun(percent, accuracy, share * first_seconds + (1 - share) * second_seconds)

    decision, runs = _walk(rule, run_at)
    paid = math.fsum(run.seconds for run in runs) / first_seconds
    policy = run_at(decision.switch_percent).seconds / first_seconds
    return Forecast(
        switch_percent=decision.switch_percent,
        runs=len(runs),
        search_cost=paid,
        amortized_recurrences=_ratio(paid, 1 - policy),
        speed_up=1 / policy,
    )


def _search(rule: PaperRule, deck: _Deck) -> SimulatedSearch:
    _, runs = _walk(rule, deck.draw)
    answer = rule.progress(_observations(runs)).upper_percent
    return SimulatedSearch(answer, math.fsum(run.seconds for run in runs))


def _on_means(rule: PaperRule) -> PaperRule:
    return replace(rule, runs=1, baseline_runs=None)


def _walk_on_means(
    rule: PaperRule, by_setting: Mapping[float, Sequence[RecordedRun]]
) -> tuple[Decided | NextRun, list[RecordedRun]]:
    def mean_at(percent: float) -> RecordedRun | None:
        runs = by_setting.get(percent)
        if not runs:
            return None
        accuracy = statistics.fmean(run.accuracy for run in runs)
        return RecordedRun(percent, accuracy, 0.0, any(run.diverged for run in runs))

    return _walk(_on_means(rule), mean_at)


def _walk(
    rule: PaperRule, run_at: Callable[[float], RecordedRun | None]
) -> tuple[Decided | NextRun, list[RecordedRun]]:
    """Lets a rule search, to its end or to a setting without a run; the runs that it made."""
    runs: list[RecordedRun] = []
    while isinstance(decision := rule.decide(_observations(runs)), NextRun):
        # All repeats of a setting at once: to ask after each costs most of the time.
        for _ in range(rule.runs_at(decision.switch_percent)):
            run = run_at(decision.switch_percent)
            if run is None:
                return decision, runs
            runs.append(run)
            if run.diverged:
                break
    assert isinstance(decision, Decided)  # nothing is in flight, so nothing is waited for
    return decision, runs


def _observations(runs: Sequence[RecordedRun]) -> list[Observation]:
    return [
        Observation(run.setting_percent, run.accuracy, run.diverged, number)
        for number, run in enumerate(runs)
    ]


def _by_setting(runs: Iterable[RecordedRun]) -> dict[float, list[RecordedRun]]:
    found: dict[float, list[RecordedRun]] = defaultdict(list)
    for run in runs:
        found[run.setting_percent].append(run)
    return dict(found)


def _ratio(value: float, unit: float) -> float:
    return value / unit if unit > 0 else math.inf


def _mean(values: Sequence[float]) -> Estimate:
    mean = statistics.fmean(values)
    if len(values) < 2 or not math.isfinite(mean):
        return Estimate(mean, mean, mean)
    from scipy.special import stdtrit

    half = stdtrit(len(values) - 1, 0.975) * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, max(mean - half, 0.0), mean + half)


def _share(successes: int, number: int) -> Estimate:
    from scipy.stats import binomtest

    interval = binomtest(successes, number).proportion_ci(method="wilson")
    return Estimate(100 * successes / number, 100 * interval.low, 100 * interval.high)
