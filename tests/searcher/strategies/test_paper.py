"""The paper's strategy: known answers; and a search by several searchers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from syncswitch.searcher.strategies.base import Decided, NextTrial, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import PlannedTrial, course_of, plan_trial
from tests.searcher.strategies.strategy_contract import StrategyContract, answer_of, played

# Mean converged accuracies of the paper's setup 1 (Sync-Switch, Table II).
PAPER_SETUP_1: Mapping[float, float] = {
    100: 0.9188,
    50: 0.9202,
    25: 0.9178,
    12.5: 0.9142,
    6.25: 0.9182,
    3.125: 0.9037,
}


def searched_with_means(strategy: PaperStrategy, means: Mapping[float, float]) -> list[Observation]:
    """Every run of a switch point measures its mean."""
    return played(
        strategy,
        lambda percent, _, number: Observation(percent, means[percent], trial_number=number),
    )


class TestPaperStrategy(StrategyContract):
    kind = PaperStrategy
    options: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {
        "baseline_runs": st.none() | st.integers(1, 5)
    }
    like_ranges = ((0.0, 1.0), (0.1, 0.9), (30.0, 70.0))

    @pytest.mark.parametrize("runs", [1, 5])
    def test_paper_setup_1(self, runs: int) -> None:
        strategy = PaperStrategy(halvings=5, runs=runs)
        finished = searched_with_means(strategy, PAPER_SETUP_1)
        answer = answer_of(strategy, finished)
        assert answer.switch_percent == 6.25
        assert answer.target_accuracy == pytest.approx(0.9188)
        assert len(finished) == strategy.most_runs == 6 * runs
        progress = strategy.progress(finished)
        assert [s.accepted for s in progress.summaries] == [True] * 5 + [False]
        assert (progress.lower_percent, progress.upper_percent) == (3.125, 6.25)

    def test_a_candidate_that_is_better_is_accepted(self) -> None:
        means: Mapping[float, float] = {100: 0.90, 50: 0.95}
        strategy = PaperStrategy(halvings=1, runs=1)
        assert strategy.decide(searched_with_means(strategy, means)) == Decided(50, 0.90)

    def test_exactly_the_allowed_loss_is_accepted(self) -> None:
        for permille in range(100, 1000):
            target, mean = permille / 1000, (permille - 10) / 1000
            strategy = PaperStrategy(halvings=1, runs=3, target_accuracy=target)
            finished = [Observation(50, mean, trial_number=n) for n in range(3)]
            assert strategy.decide(finished) == Decided(50, target)

    def test_the_target_is_given_or_has_its_own_number_of_runs(self) -> None:
        given = PaperStrategy(halvings=2, runs=2, target_accuracy=0.9)
        assert (given.decide([]), given.most_runs) == (NextTrial(50), 4)
        once = PaperStrategy(halvings=2, runs=3, baseline_runs=1)
        first, then = once.decide([]), once.decide([Observation(100, 0.9)])
        assert (first, then, once.most_runs) == (NextTrial(100), NextTrial(50), 7)
        assert [getattr(one, "repeats", None) for one in (first, then)] == [1, 3]

    def test_one_diverged_run_rejects_a_switch_point_whatever_the_mean(self) -> None:
        strategy = PaperStrategy(halvings=1, runs=5, target_accuracy=0.5)
        finished = [Observation(50, 0.99, trial_number=n) for n in range(4)]
        assert strategy.decide(finished) == NextTrial(50)
        finished.append(Observation(50, 0.99, diverged=True, trial_number=4))
        assert strategy.decide(finished) == Decided(100, 0.5)
        # The verdict is known after the first one: no further runs are paid for.
        assert strategy.decide(finished[-1:]) == Decided(100, 0.5)

    def test_only_the_first_runs_of_a_switch_point_count(self) -> None:
        strategy = PaperStrategy(halvings=1, runs=2, target_accuracy=0.9)
        good = [Observation(50, 0.9, trial_number=n) for n in (0, 1)]
        late = Observation(50, 0.0, diverged=True, trial_number=2)
        assert strategy.decide([late, *good]) == Decided(50, 0.9)

    def test_what_stopping_changes_is_added_to_stopped_runs(self) -> None:
        strategy = PaperStrategy(halvings=1, runs=1, early_stop=True)
        whole = Observation(100, 0.920, plateau_accuracy=0.917)
        stopped = Observation(50, 0.908, trial_number=1, stopped_early=True)
        assert strategy.decide([whole, stopped]) == Decided(50, 0.920)
        _, corrected = strategy.progress([whole, stopped]).summaries
        assert corrected.mean_accuracy == pytest.approx(0.911)

    def test_summaries_of_an_unfinished_search(self) -> None:
        strategy = PaperStrategy(halvings=2, runs=2)
        measured = ((100, 0.90), (100, 0.92), (50, 0.91))
        finished = [Observation(*run, trial_number=n) for n, run in enumerate(measured)]
        progress = strategy.progress(finished)
        baseline, candidate = progress.summaries
        assert baseline.mean_accuracy == pytest.approx(0.91)
        assert baseline.standard_deviation == pytest.approx(0.01414, abs=1e-5)
        assert (candidate.runs, candidate.accepted, candidate.standard_deviation) == (1, None, None)
        assert (progress.lower_percent, progress.upper_percent) == (0, 100)
        assert progress.open_percent == 50
        assert progress.target_accuracy == pytest.approx(0.91)


RULE = PaperStrategy(halvings=1, runs=2, target_accuracy=0.9)
SECOND = Observation(50, 0.1, diverged=True, trial_number=0, replicate=1)
FIRST = Observation(50, 0.9, trial_number=1, replicate=0)


def test_a_run_that_ends_a_switch_point_waits_for_those_that_come_before_it() -> None:
    """A searcher alone would have made the first run, whatever the second measures."""
    assert course_of(RULE, [SECOND]).runs == ()
    assert plan_trial(RULE, [SECOND]) == PlannedTrial(50, 0)
    assert plan_trial(RULE, [SECOND], [(50, 0)]) == Wait(50)
    course = course_of(RULE, [SECOND, FIRST])
    assert course.runs == (FIRST, SECOND)
    assert course.decision == Decided(100, 0.9)
