"""The adaptive strategy by the share of later runs that keep the accuracy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import NextTrial
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from tests.searcher.strategies.strategy_contract import (
    FIRST_SECONDS,
    JOBS,
    Job,
    StrategyContract,
    answer_of,
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


def played(
    strategy: AdaptiveStrategy,
    accuracy_at: Callable[[float, int], float],
    second_seconds: float = SECOND_SECONDS,
) -> list[Observation]:
    """The runs of a whole search; an accuracy for each switch point and replicate."""
    finished: list[Observation] = []
    while isinstance(decision := strategy.decide(finished), NextTrial):
        percent = decision.switch_percent
        replicate = sum(run.switch_percent == percent for run in finished)
        accuracy = accuracy_at(percent, replicate)
        finished.append(made(percent, accuracy, len(finished), replicate, second_seconds))
    return finished


def steps(*accuracies: float) -> Callable[[float, int], float]:
    """Accuracies without noise from 100 %, 50 %, 25 % and so on; the last holds below."""

    def accuracy_at(percent: float, _: int) -> float:
        halvings = 0
        while percent < 100 / 2**halvings:
            halvings += 1
        return accuracies[min(halvings, len(accuracies) - 1)]

    return accuracy_at


def alone(accuracy: float) -> list[Observation]:
    return [made(100, accuracy, 0, 0)]


class TestKeptStrategy(StrategyContract):
    kind = AdaptiveStrategy
    options: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {
        "keep": st.sampled_from([0.8, 0.95]),
        "uses": st.sampled_from([1, 30, 300]),
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
    def test_an_answer_has_runs_of_its_own(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data, budget=None)
        assert isinstance(strategy, AdaptiveStrategy)
        finished = searched(strategy, job)
        answer = answer_of(strategy, finished)
        own = sum(run.switch_percent == answer.switch_percent for run in finished)
        if answer.switch_percent < 100:
            assert own >= min(strategy.own_runs, strategy.runs)
            assert answer.reason is None
        else:
            assert answer.reason

    @given(st.data(), JOBS)
    def test_what_it_says_are_probabilities(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data)
        finished = searched(strategy, job)
        answer = answer_of(strategy, finished)
        for share in (answer.confidence, answer.kept_share, answer.baseline_kept_share):
            assert share is not None
            assert 0 <= share <= 1
        answers = strategy.answers(finished)
        assert tuple(answers) == strategy.grid()
        assert sum(answers.values()) == pytest.approx(1)
        for percent in strategy.grid():
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
    accuracies: Sequence[float], right: Sequence[float]
) -> None:
    strategy = AdaptiveStrategy(settings=3, early_stop=False, share_prefix=False)
    accuracy_at = steps(*accuracies)
    finished = played(strategy, accuracy_at)
    answer = answer_of(strategy, finished)
    assert answer.switch_percent in right
    assert answer.target_accuracy == accuracies[0]
    assert answer.kept_share is not None
    assert answer.kept_share > 0.8
    measured = {run.switch_percent for run in finished}
    assert {50.0, answer.switch_percent} & measured


@pytest.mark.parametrize(("second", "reason"), [(0.4, "keep the accuracy"), (1.3, "saves no time")])
def test_bsp_alone_has_a_reason(second: float, reason: str) -> None:
    accuracies = (0.9, 0.5, 0.4, 0.3) if second < 1 else (0.9,)
    strategy = AdaptiveStrategy(settings=3)
    finished = played(strategy, steps(*accuracies), second * FIRST_SECONDS)
    answer = answer_of(strategy, finished)
    assert answer.switch_percent == 100
    assert answer.reason is not None
    assert reason in answer.reason
    assert any(run.switch_percent < 100 for run in finished)


def test_runs_that_scatter_far_more_than_beta_leave_it_unsure() -> None:
    accuracies = (0.365, 0.448, 0.39, 0.43, 0.37, 0.41, 0.44, 0.4)
    strategy = AdaptiveStrategy(settings=3)

    def accuracy_at(percent: float, replicate: int) -> float:
        return accuracies[(replicate + int(percent)) % len(accuracies)]

    answer = answer_of(strategy, played(strategy, accuracy_at))
    assert answer.confidence is not None
    assert answer.confidence < 0.95 or answer.switch_percent == 100
    assert answer.baseline_kept_share is not None
    assert answer.baseline_kept_share < 0.9


def test_more_uses_are_worth_a_dearer_search() -> None:
    chance = [0.004, -0.006, 0.002, -0.003, 0.007, -0.001, 0.0, 0.005]

    def accuracy_at(percent: float, replicate: int) -> float:
        return TARGET + chance[(replicate + round(percent)) % 8]

    runs = [len(played(AdaptiveStrategy(uses=uses), accuracy_at)) for uses in (1, 30, 3000)]
    assert runs == sorted(runs)
    assert runs[0] < runs[2]


def test_more_failures_may_be_allowed() -> None:
    # Every fourth run at 25 % fails.
    history = alone(TARGET) + [
        made(25, 0.3 if number % 4 == 3 else TARGET, number + 1, number) for number in range(8)
    ]
    strict, mild = (
        AdaptiveStrategy(settings=2, keep=keep).answers(history) for keep in (0.95, 0.6)
    )
    assert strict[25] < 0.1
    assert mild[25] > 0.5


def test_a_known_target_needs_fewer_runs() -> None:
    accuracy_at = steps(TARGET, TARGET, TARGET, 0.7)
    new, recurring = AdaptiveStrategy(), AdaptiveStrategy(target_accuracy=TARGET)
    runs, fewer = played(new, accuracy_at), played(recurring, accuracy_at)
    assert 25 <= answer_of(recurring, fewer).switch_percent < 100
    assert sum(run.switch_percent == 100 for run in fewer) == 0
    assert sum(run.switch_percent == 100 for run in runs) >= 1
    assert answer_of(recurring, fewer).target_accuracy == pytest.approx(TARGET)


def test_a_dip_in_the_middle_is_seen() -> None:
    # ASP from the start is fine here, and a switch in the middle is not.
    accuracy_at = steps(TARGET, TARGET, TARGET, 0.87, TARGET)
    strategy = AdaptiveStrategy(settings=5)
    history = [
        made(percent, accuracy_at(percent, 0), number, number % 3)
        for number, percent in enumerate([100.0, 25.0, 25.0, 25.0, 12.5, 12.5, 12.5, 6.25, 6.25])
    ]
    answers = strategy.answers(history)
    # What was measured at 6.25 % is as good as at 25 %, and yet a switch there is no answer.
    assert sum(probability for percent, probability in answers.items() if percent < 25) < 0.05


@pytest.mark.parametrize(
    ("loss", "standard_deviation"), [("slope", 0.003), ("slope", 0.02), ("step", 0.03)]
)
def test_what_it_is_sure_of_is_so(loss: str, standard_deviation: float) -> None:
    """Forty points lost a halving below the knee, or a step of three: never early and sure."""
    right = 0
    for number in range(12):
        knee = (12.5, 25.0, 50.0)[number % 3]

        def accuracy_at(
            percent: float, replicate: int, knee: float = knee, n: int = number
        ) -> float:
            chance = random.Random(f"{n} {percent} {replicate}")
            below = max(0.0, math.log2(knee / percent))
            lost = 0.4 * below if loss == "slope" else 0.03 * (below > 0)
            return 0.95 - lost + chance.gauss(0, standard_deviation)

        strategy = AdaptiveStrategy()
        answer = answer_of(strategy, played(strategy, accuracy_at))
        assert answer.confidence is not None
        right += answer.switch_percent >= knee
        assert answer.switch_percent >= knee or answer.confidence < 0.9
    assert right >= (9 if loss == "slope" else 6)
