"""The paper's strategy: known answers, and what follows from a fixed number of runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.strategies.base import Decided, NextTrial
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from tests.searcher.strategies.strategy_contract import (
    JOBS,
    Job,
    StrategyContract,
    answer_of,
    searched,
)

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
    finished: list[Observation] = []
    while isinstance(decision := strategy.decide(finished), NextTrial):
        percent = decision.switch_percent
        finished.append(Observation(percent, means[percent], trial_number=len(finished)))
    return finished


class TestPaperStrategy(StrategyContract):
    kind = PaperStrategy
    options: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {
        "baseline_runs": st.none() | st.integers(1, 5),
    }
    like_ranges = ((0.0, 1.0), (0.1, 0.9), (30.0, 70.0))

    @pytest.mark.parametrize("runs", [1, 5])
    def test_paper_setup_1(self, runs: int) -> None:
        strategy = PaperStrategy(settings=5, runs=runs)
        finished = searched_with_means(strategy, PAPER_SETUP_1)
        answer = answer_of(strategy, finished)
        assert answer.switch_percent == 6.25
        assert answer.target_accuracy == pytest.approx(0.9188)
        assert len(finished) == strategy.most_runs == 6 * runs
        assert [s.accepted for s in strategy.progress(finished).summaries] == [True] * 5 + [False]

    def test_a_candidate_that_is_better_is_accepted(self) -> None:
        means: Mapping[float, float] = {100: 0.90, 50: 0.95}
        strategy = PaperStrategy(settings=1, runs=1)
        assert strategy.decide(searched_with_means(strategy, means)) == Decided(50, 0.90)

    def test_exactly_the_allowed_loss_is_accepted(self) -> None:
        for permille in range(100, 1000):
            target, mean = permille / 1000, (permille - 10) / 1000
            strategy = PaperStrategy(settings=1, runs=3, target_accuracy=target)
            finished = [Observation(50, mean, trial_number=n) for n in range(3)]
            assert strategy.decide(finished) == Decided(50, target)

    def test_a_given_target_saves_the_baseline(self) -> None:
        strategy = PaperStrategy(settings=2, runs=2, target_accuracy=0.9)
        assert strategy.decide([]) == NextTrial(50)
        assert strategy.most_runs == 4

    def test_the_baseline_may_have_its_own_number_of_runs(self) -> None:
        strategy = PaperStrategy(settings=2, runs=3, baseline_runs=1)
        assert strategy.most_runs == 7
        first = strategy.decide([])
        assert isinstance(first, NextTrial)
        assert (first.switch_percent, first.repeats) == (100, 1)
        then = strategy.decide([Observation(100, 0.9)])
        assert isinstance(then, NextTrial)
        assert (then.switch_percent, then.repeats) == (50, 3)

    def test_one_diverged_run_rejects_a_switch_point_whatever_the_mean(self) -> None:
        strategy = PaperStrategy(settings=1, runs=5, target_accuracy=0.5)
        finished = [Observation(50, 0.99, trial_number=n) for n in range(4)]
        assert strategy.decide(finished) == NextTrial(50)
        finished.append(Observation(50, 0.99, diverged=True, trial_number=4))
        assert strategy.decide(finished) == Decided(100, 0.5)
        # The verdict is known after the first one: no further runs are paid for.
        assert strategy.decide(finished[-1:]) == Decided(100, 0.5)

    def test_only_the_first_runs_of_a_switch_point_count(self) -> None:
        strategy = PaperStrategy(settings=1, runs=2, target_accuracy=0.9)
        good = [Observation(50, 0.9, trial_number=n) for n in (0, 1)]
        late = Observation(50, 0.0, diverged=True, trial_number=2)
        assert strategy.decide([late, *good]) == Decided(50, 0.9)

    def test_what_stopping_changes_is_added_to_stopped_runs(self) -> None:
        strategy = PaperStrategy(settings=1, runs=1, early_stop=True)
        whole = Observation(100, 0.920, plateau_accuracy=0.917)
        stopped = Observation(50, 0.908, trial_number=1, stopped_early=True)
        assert strategy.decide([whole, stopped]) == Decided(50, 0.920)
        assert strategy.progress([whole, stopped]).summaries[1].mean_accuracy == pytest.approx(
            0.911
        )

    def test_summaries_of_an_unfinished_search(self) -> None:
        strategy = PaperStrategy(settings=2, runs=2)
        finished = [
            Observation(100, 0.90, trial_number=0),
            Observation(100, 0.92, trial_number=1),
            Observation(50, 0.91, trial_number=2),
        ]
        progress = strategy.progress(finished)
        baseline, candidate = progress.summaries
        assert baseline.mean_accuracy == pytest.approx(0.91)
        assert baseline.standard_deviation == pytest.approx(0.01414, abs=1e-5)
        assert (candidate.runs, candidate.accepted, candidate.standard_deviation) == (1, None, None)
        assert (progress.lower_percent, progress.upper_percent) == (0, 100)
        assert progress.open_percent == 50
        assert progress.target_accuracy == pytest.approx(0.91)

    @given(st.data(), st.builds(Job, st.integers(0, 10_000), st.just(0.3)))
    def test_every_switch_point_is_run_as_often(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data)
        finished = searched(strategy, job)
        assert len(finished) == strategy.most_runs
        candidates = {run.switch_percent for run in finished} - {100.0}
        assert len(candidates) == strategy.settings

    @given(st.data(), JOBS)
    def test_the_bracket_halves_and_holds_the_answer(self, data: st.DataObject, job: Job) -> None:
        # What a run measured has to stay: nothing is stopped, so nothing is corrected.
        strategy = self.draw(data, early_stop=False)
        finished = searched(strategy, job)
        brackets = [strategy.progress(finished[:count]) for count in range(len(finished) + 1)]
        for before, after in itertools.pairwise(brackets):
            assert before.lower_percent <= after.lower_percent
            assert after.upper_percent <= before.upper_percent
        last = brackets[-1]
        assert last.upper_percent - last.lower_percent == 100 / 2**strategy.settings
        accepted = [s.switch_percent for s in last.summaries if s.accepted]
        assert last.upper_percent == min([100.0, *accepted])

    @given(st.data(), JOBS)
    def test_a_decision_is_stable_under_further_runs(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data, early_stop=False)
        assert isinstance(strategy, PaperStrategy)
        finished = searched(strategy, job)
        full = {
            percent
            for percent in strategy.grid()
            if sum(run.switch_percent == percent for run in finished) == strategy.runs_at(percent)
        }
        more = [
            job.run(strategy, run.switch_percent, 50 + number, 1000 + number)
            for number, run in enumerate(finished)
            if run.switch_percent in full
        ]
        assert strategy.decide(finished + more) == strategy.decide(finished)
