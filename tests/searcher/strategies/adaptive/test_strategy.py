"""The adaptive strategy: its runs and its answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncswitch.searcher.strategies.adaptive.strategy import (
    AdaptiveStrategy,
    Assessment,
    counted_runs,
)
from syncswitch.searcher.strategies.base import Decided, NextTrial, Wait
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.planner import PlannedTrial, plan_trial
from tests.searcher.strategies.strategy_contract import (
    FIRST_SECONDS,
    JOBS,
    Job,
    StrategyContract,
    answer_of,
    played,
    searched,
)

TARGET = 0.92
SECOND_SECONDS = 0.4 * FIRST_SECONDS


def made(
    percent: float,
    accuracy: float,
    number: int,
    replicate: int,
    second_seconds: float = SECOND_SECONDS,
) -> Observation:
    """A run as a strategy sees it."""
    share = percent / 100
    return Observation(
        percent,
        accuracy,
        trial_number=number,
        replicate=replicate,
        cost=TrialCost(
            paid_seconds=share * FIRST_SECONDS + (1 - share) * second_seconds,
            first_seconds=FIRST_SECONDS,
            second_seconds=second_seconds if share < 1 else None,
        ),
    )


def steps(
    *accuracies: float, second_seconds: float = SECOND_SECONDS
) -> Callable[[float, int, int], Observation]:
    """Makes runs without noise: accuracies at 100 %, 50 %, 25 %, ...; the last holds below."""

    def run_at(percent: float, replicate: int, number: int) -> Observation:
        halvings = 0
        while percent < 100 / 2**halvings:
            halvings += 1
        accuracy = accuracies[min(halvings, len(accuracies) - 1)]
        return made(percent, accuracy, number, replicate, second_seconds)

    return run_at


class TestAdaptiveStrategy(StrategyContract):
    kind = AdaptiveStrategy
    options: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {
        "guarded": st.booleans(),
        "min_kept_share": st.sampled_from([0.8, 0.95]),
        "expected_runs": st.sampled_from([1, 30, 300]),
        "target_runs": st.sampled_from([1, 5, 30]),
        "least_runs": st.none() | st.integers(1, 3),
        "budget": st.none() | st.sampled_from([0.5, 2.0, 4.0]),
        "switch_points": st.sampled_from([(), (12.5, 25.0, 50.0), (10.0, 20.0, 30.0, 60.0)]),
    }

    # Whoever waits thinks of dozens of histories, and each is a belief of its own.
    test_many_searchers_find_what_one_finds = settings(max_examples=2)(
        StrategyContract.test_many_searchers_find_what_one_finds
    )

    @given(st.data(), JOBS)
    def test_an_answer_has_runs_of_its_own_and_says_probabilities(
        self, data: st.DataObject, job: Job
    ) -> None:
        strategy = self.draw(data)
        finished = searched(strategy, job)
        answer, grid = answer_of(strategy, finished), strategy.grid()
        own = sum(run.switch_percent == answer.switch_percent for run in finished)
        if answer.switch_percent == 100:
            assert answer.promise.reason
        else:
            assert own >= min(strategy.own_runs, strategy.runs) or strategy.budget is not None
            assert answer.promise.reason is None
        if strategy.guarded:
            # It takes the least expected time of those where a run held.
            least = answer.target_accuracy - strategy.threshold - 1e-9
            held = {100.0, *(run.switch_percent for run in finished if run.accuracy >= least)}
            times = dict(zip(grid, Assessment(strategy, finished)._outlook.times, strict=True))
            assert answer.switch_percent in held
            assert answer.promise.expected_time == min(times[percent] for percent in held)
        promise = answer.promise
        shares = [promise.kept_share, promise.delivered_share, promise.baseline_kept_share]
        shares.append(1.0 if answer.switch_percent == 100 else promise.confidence)
        assert all(share is not None and 0 <= share <= 1 for share in shares)
        answers = strategy.answers(finished)
        assert (tuple(answers), sum(answers.values())) == (grid, pytest.approx(1))
        for percent in grid:
            outcomes = strategy.outcomes(finished, percent)
            assert sum(probability for probability, _ in outcomes) == pytest.approx(1)
            accuracies = [accuracy for _, accuracy in outcomes]
            assert accuracies == sorted(accuracies)

    @given(st.data(), JOBS, st.floats(0.01, 6))
    def test_no_run_goes_beyond_the_budget_but_the_first_of_the_baseline(
        self, data: st.DataObject, job: Job, budget: float
    ) -> None:
        # Runs cost what was foreseen: of the pace that is expected, each whole and to its end.
        strategy = self.draw(data, budget=budget, share_prefix=False, early_stop=False)
        finished = searched(strategy, job)
        paid = sum(run.cost.paid_seconds for run in finished if run.cost) / FIRST_SECONDS
        first = 1.0 if strategy.target_accuracy is None else 0.0
        assert paid <= max(budget, first) + 1e-9


def test_a_run_is_made_where_it_saves_more_than_it_costs() -> None:
    uses = 30
    strategy = AdaptiveStrategy(expected_runs=uses, share_prefix=False, early_stop=False)
    grid, last = strategy.grid(), len(strategy.grid()) - 1

    def held(rise: float = 0.0) -> list[int]:
        least = outlook.belief.target_accuracy + rise - 0.01
        runs = [grid.index(run.switch_percent) for run in known if run.accuracy > least]
        return sorted({*runs, last})

    finished = played(strategy, steps(TARGET, TARGET, TARGET, 0.7))
    assert len(finished) > 2
    for count in range(1, len(finished) + 1):
        known = finished[:count]
        outlook = Assessment(strategy, known)._outlook
        without = uses * outlook.least_time(held())
        totals = {}
        for index, percent in enumerate(grid):
            price = percent / 100 + (1 - percent / 100) * outlook.ratio
            least = outlook.least_times(index, held(), 3)
            if index == last:
                least = outlook.least_times_of_target(held, 3)
            totals[percent] = min(n * price + uses * one for n, one in enumerate(least, 1))
        best = min(totals, key=lambda percent: totals[percent])
        if count < len(finished):
            assert strategy.decide(known) == NextTrial(best)
            assert totals[best] < without
        else:
            assert totals[best] >= without


def test_the_first_protocol_is_repeated_where_the_answer_hangs_on_its_one_run() -> None:
    strategy = AdaptiveStrategy(early_stop=False, share_prefix=False)
    runs = [(100.0, TARGET), (25.0, TARGET - 0.023), (50.0, TARGET - 0.012)]
    once = [made(percent, reached, number, 0) for number, (percent, reached) in enumerate(runs)]

    def answer(known: list[Observation]) -> float:
        found = strategy.standing_answer(known)
        assert found is not None
        return found.switch_percent

    assert (answer(once), strategy.decide(once)) == (100.0, NextTrial(100.0))
    # Half of what the switch lost was the luck of that run.
    assert answer([*once, made(100, TARGET - 0.008, 3, 1)]) == 50.0
    assert answer([*once, made(100, TARGET, 3, 1)]) == 100.0


@given(st.floats(0.1, 0.7), st.integers(0, 3))
def test_a_quiet_job_is_not_asked_for_a_second_run_of_the_first_protocol(
    ratio: float, deepest: int
) -> None:
    accuracies = [TARGET] * (1 + deepest) + [0.5]
    run_at = steps(*accuracies, second_seconds=ratio * FIRST_SECONDS)
    finished = played(AdaptiveStrategy(halvings=3), run_at)
    assert [run.switch_percent for run in finished].count(100.0) == 1


@pytest.mark.parametrize(("deviation", "measured"), [(0.006, 1), (0.012, 4), (0.015, 7), (0.02, 9)])
def test_where_runs_differ_by_more_than_may_be_lost_the_first_protocol_is_measured_until_it_tells(
    deviation: float, measured: int
) -> None:
    strategy = AdaptiveStrategy(halvings=6).with_momentum("own")
    reached = [TARGET + deviation * part for part in (1, -1, 0.5, -0.5) * 3]
    known = [made(6.25, accuracy, number, number) for number, accuracy in enumerate(reached[:6])]
    runs, trainings = 0, 36
    while (decision := Assessment(strategy, known, trainings - 6 - runs).decision()) == NextTrial(
        100.0
    ):
        known.append(made(100, reached[runs], 6 + runs, runs))
        runs += 1
    assert runs == measured
    assert isinstance(decision, NextTrial)


def test_the_first_protocol_is_not_measured_again_where_runs_with_a_switch_are_better() -> None:
    """With a mean that is 1.645 standard errors above what may be lost, however runs differ."""
    strategy = AdaptiveStrategy(halvings=6).with_momentum("own")
    alone = made(100, TARGET, 0, 0)
    differing = [made(6.25, TARGET + by, n, n) for n, by in enumerate((-0.03, 0.0, 0.03), 1)]
    better = [replace(run, accuracy=run.accuracy + 0.06) for run in differing]
    assert Assessment(strategy, [alone, *differing], 26).decision() == NextTrial(100.0)
    found = Assessment(strategy, [alone, *better], 26).decision()
    assert found.switch_percent < 25
    # One that failed says that the switch may not be as good as the others show.
    failed = replace(better[0], alarmed=True)
    assert Assessment(strategy, [alone, failed, *better[1:]], 26).decision() != found


def test_a_seed_that_is_trained_again_and_again_ends_the_measuring_all_the_same() -> None:
    strategy = AdaptiveStrategy(halvings=6).with_momentum("own")
    known = [made(6.25, TARGET + by, n, n) for n, by in enumerate((-0.02, 0.02, -0.02, 0.02))]
    for left in range(32, 0, -1):
        if Assessment(strategy, known, left).decision() != NextTrial(100.0):
            break
        known.append(made(100, TARGET, len(known), 0))
    assert [run.switch_percent for run in known].count(100.0) == 9


def test_after_bsp_alone_a_job_with_a_momentum_for_each_worker_is_tried_early() -> None:
    finished, usual = [made(100, TARGET, 0, 0)], AdaptiveStrategy(halvings=6)
    assert usual.with_momentum("zero") == usual
    assert 0.0 not in usual.grid()
    own = usual.with_momentum("own")
    assert own.grid()[0] == 0.0
    for strategy, earliest, latest in ((usual, 12.5, 50), (own, 0, 12.5)):
        first = Assessment(strategy, finished, 10).decision()
        assert isinstance(first, NextTrial)
        assert earliest <= first.switch_percent <= latest


def test_where_all_runs_failed_is_no_answer_however_little_failures_cost() -> None:
    # A tenth of the time: who begins at 25 % and goes on at 50 % loses next to nothing.
    strategy = AdaptiveStrategy(halvings=2, runs=1).among((25.0, 50.0, 100.0))
    second = 0.1 * FIRST_SECONDS
    finished = [made(100, TARGET, 0, 0), made(50, TARGET, 1, 0, second)]
    finished.append(replace(made(25, 0.1, 2, 0, second), diverged=True))
    assert isinstance(found := strategy.decide(finished), Decided)
    assert found.switch_percent == 50
    assert Assessment(strategy, finished)._outlook.times[0] < found.promise.expected_time


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize(
    ("accuracies", "right"),
    [
        ((0.9717, 0.9717, 0.3512, 0.8519), (50.0,)),
        ((0.9648, 0.9648, 0.4962, 0.0965), (50.0,)),
        ((0.95, 0.95, 0.95, 0.10), (25.0, 50.0)),
        ((0.95, 0.95, 0.55, 0.15, 0.10), (50.0,)),
        ((0.95, 0.55, 0.15, 0.10), (75.0, 100.0)),
        ((0.9, 0.9, 0.9, 0.9), (12.5, 25.0, 50.0)),
    ],
)
def test_a_sharp_curve_is_never_answered_against_what_was_measured(
    accuracies: Sequence[float], right: Sequence[float], guarded: bool
) -> None:
    strategy = AdaptiveStrategy(halvings=3, early_stop=False, share_prefix=False, guarded=guarded)
    finished = played(strategy, steps(*accuracies))
    answer = answer_of(strategy, finished)
    assert answer.switch_percent in right
    assert answer.target_accuracy == accuracies[0]
    # One run each leaves the bare share in doubt, which with a guard costs little.
    assert answer.promise.delivered_share > (0.94 if guarded else 0.8)
    measured = {run.switch_percent for run in finished}
    assert {50.0, answer.switch_percent} & measured


@pytest.mark.parametrize(
    ("second", "guarded", "reason"),
    [
        (0.4, True, "no earlier switch is expected to save time"),
        (0.4, False, "likely to keep the accuracy often enough"),
        (1.3, True, "saves no time"),
    ],
)
def test_bsp_alone_has_a_reason(second: float, guarded: bool, reason: str) -> None:
    accuracies = (0.9, 0.5, 0.4, 0.3) if second < 1 else (0.9,)
    strategy = AdaptiveStrategy(halvings=3, guarded=guarded)
    finished = played(strategy, steps(*accuracies, second_seconds=second * FIRST_SECONDS))
    answer = answer_of(strategy, finished)
    assert (answer.switch_percent, answer.promise.confidence) == (100, None)
    assert answer.promise.expected_time == pytest.approx(1.0)
    assert reason in answer.promise.reason
    assert any(run.switch_percent < 100 for run in finished)


def test_more_failures_may_be_allowed() -> None:
    # Every fourth run at 25 % fails.
    history = [made(100, TARGET, 0, 0)]
    for number in range(8):
        history.append(made(25, 0.3 if number % 4 == 3 else TARGET, number + 1, number))
    strict, mild, guarded = (
        AdaptiveStrategy(halvings=2, **options).answers(history)
        for options in ({"guarded": False}, {"guarded": False, "min_kept_share": 0.6}, {})
    )
    assert strict[25] < 0.1
    assert mild[25] > 0.5
    # What is made up for is no matter of `min_kept_share`.
    assert guarded[25] > 0.9


def test_a_dip_in_the_middle_is_seen() -> None:
    # ASP from the start is fine here, and a switch in the middle is not.
    run_at = steps(TARGET, TARGET, TARGET, 0.87, TARGET)
    strategy = AdaptiveStrategy(halvings=5, guarded=False)
    history = [
        run_at(percent, number % 3, number)
        for number, percent in enumerate([100.0, 25.0, 25.0, 25.0, 12.5, 12.5, 12.5, 6.25, 6.25])
    ]
    answers = strategy.answers(history)
    # What was measured at 6.25 % is as good as at 25 %, and yet a switch there is no answer.
    assert sum(probability for percent, probability in answers.items() if percent < 25) < 0.05


def test_a_budget_pays_for_no_run_that_is_only_likely_to_be_needed() -> None:
    strategy, known = AdaptiveStrategy(halvings=3), [made(100, TARGET, 0, 0)]
    first = plan_trial(strategy, known)
    assert isinstance(first, PlannedTrial)
    under_way = [(first.switch_percent, first.replicate)]
    second = plan_trial(strategy, known, under_way)
    assert isinstance(second, PlannedTrial)
    assert second.is_speculative
    assert isinstance(plan_trial(replace(strategy, budget=9.0), known, under_way), Wait)


HISTORY_GRID = (25.0, 50.0, 100.0)
RUNS = st.lists(
    st.builds(
        Observation,
        switch_percent=st.sampled_from([*HISTORY_GRID, 33.0]),
        accuracy=st.floats(0, 1),
        diverged=st.booleans(),
        trial_number=st.integers(0, 50),
        replicate=st.integers(0, 3),
    ),
    max_size=12,
    unique_by=lambda run: run.trial_number,
)


@given(RUNS, st.randoms(use_true_random=False))
def test_the_first_run_of_each_replicate_counts_whatever_the_order(
    runs: list[Observation], chance: random.Random
) -> None:
    first: dict[tuple[float, int], Observation] = {}
    for run in sorted(runs, key=lambda run: run.trial_number):
        if run.switch_percent in HISTORY_GRID:
            first.setdefault((run.switch_percent, run.replicate), run)
    chance.shuffle(runs)
    assert counted_runs(runs, HISTORY_GRID) == tuple(first.values())


def test_only_runs_that_count_say_what_stopping_changes() -> None:
    stopped = Observation(50, 0.80, stopped_early=True)
    whole = Observation(100, 0.90, trial_number=1, plateau_accuracy=0.89)
    again = replace(whole, trial_number=2, plateau_accuracy=0.5)
    foreign = replace(again, switch_percent=33.0)
    corrected, _ = counted_runs([stopped, whole, again, foreign], HISTORY_GRID)
    assert corrected.accuracy == pytest.approx(0.81)
