"""The sequential strategy: when a candidate's runs end, and that they are fewer."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.simulation.simulator import search_with
from syncswitch.searcher.strategies.base import Decided, NextRun, Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.sequential import SequentialStrategy
from tests.benchmarks.generated_problems import generated_problem
from tests.searcher.strategies.strategy_contract import (
    JOBS,
    Job,
    StrategyContract,
    answer_of,
    searched,
)


def runs_at(percent: float, *accuracies: float, first: int = 0) -> list[Observation]:
    return [
        Observation(percent, accuracy, trial_number=first + n, replicate=n)
        for n, accuracy in enumerate(accuracies)
    ]


class TestSequentialStrategy(StrategyContract):
    kind = SequentialStrategy
    options: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {
        "baseline_runs": st.none() | st.integers(1, 5),
        "target_runs": st.integers(1, 9),
        "standard_errors": st.sampled_from([0.5, 1.7, 4.0]),
    }
    like_ranges = ((0.0, 1.0), (0.1, 0.9), (30.0, 70.0))

    def test_a_candidate_is_run_until_it_is_clear_of_the_limit(self) -> None:
        # The prior alone gives the noise: beta / 2. One run: 1.7 * 0.005 * sqrt(1 + 1/5) = 0.00931.
        strategy = SequentialStrategy(settings=1, target_accuracy=0.9)
        assert strategy.decide(runs_at(50, 0.89 + 0.0093)) == NextRun(50)
        assert strategy.decide(runs_at(50, 0.89 + 0.0094)) == Decided(50, 0.9)
        assert strategy.decide(runs_at(50, 0.89 - 0.0093)) == NextRun(50)
        assert strategy.decide(runs_at(50, 0.89 - 0.0094)) == Decided(100, 0.9)
        # Two equal runs: sd = 0.005 * sqrt(4/5), times 1.7 * sqrt(1/2 + 1/5) = 0.00636.
        assert strategy.decide(runs_at(50, *[0.89 + 0.0063] * 2)) == NextRun(50)
        assert strategy.decide(runs_at(50, *[0.89 + 0.0064] * 2)) == Decided(50, 0.9)

    def test_at_the_latest_the_mean_decides_as_the_papers(self) -> None:
        strategy = SequentialStrategy(settings=1, runs=3, target_accuracy=0.9)
        paper = PaperStrategy(settings=1, runs=3, target_accuracy=0.9)
        for mean, answer in ((0.89, 50), (0.8899, 100), (0.8901, 50)):
            finished = runs_at(50, mean - 0.004, mean + 0.004, mean)
            assert strategy.decide(finished[:2]) == NextRun(50)
            assert strategy.decide(finished) == paper.decide(finished) == Decided(answer, 0.9)

    def test_the_noise_is_pooled_over_all_switch_points_and_forgets_diverged_runs(self) -> None:
        strategy = SequentialStrategy(settings=2, baseline_runs=2)
        candidate = runs_at(50, 0.905, first=2)
        # Squares: 4 * 0.005**2 and 0 or 2 * 0.01**2, over 5; 1.7 * sd * sqrt(1 + 1/2) = 0.0093
        # with quiet runs of the baseline, and 0.0161 with noisy ones; the candidate is 0.015 above.
        assert strategy.decide([*runs_at(100, 0.9, 0.9), *candidate]) == NextRun(25)
        assert strategy.decide([*runs_at(100, 0.89, 0.91), *candidate]) == NextRun(50)
        # A switch point that diverged says nothing of the noise: 75 % is as 50 % was.
        diverged = [Observation(50, 0.1, diverged=True, trial_number=2)]
        after = runs_at(75, 0.905, first=3)
        progress = strategy.progress([*runs_at(100, 0.9, 0.9), *diverged, *after])
        assert [summary.accepted for summary in progress.summaries] == [True, False, True]

    def test_one_diverged_run_rejects_a_switch_point_at_once(self) -> None:
        strategy = SequentialStrategy(settings=1, target_accuracy=0.5)
        assert strategy.decide([Observation(50, 0.99, diverged=True)]) == Decided(100, 0.5)

    @pytest.mark.parametrize(("runs", "given", "expected"), [(5, None, 4), (2, None, 2), (2, 3, 3)])
    def test_runs_of_the_baseline(self, runs: int, given: int | None, expected: int) -> None:
        decision = SequentialStrategy(runs=runs, baseline_runs=given).decide([])
        assert isinstance(decision, NextRun)
        assert (decision.switch_percent, decision.repeats) == (100, expected)

    def test_a_surer_target_needs_fewer_runs(self) -> None:
        once, often = (
            SequentialStrategy(settings=1, target_accuracy=0.9, target_runs=n) for n in (1, 99)
        )
        finished = runs_at(50, 0.9)
        assert once.decide(finished) == NextRun(50)
        assert often.decide(finished) == Decided(50, 0.9)

    @given(st.data(), JOBS)
    def test_a_verdict_never_changes(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data, early_stop=False)
        finished = searched(strategy, job)
        brackets = [strategy.progress(finished[:count]) for count in range(len(finished) + 1)]
        for before, after in itertools.pairwise(brackets):
            assert before.lower_percent <= after.lower_percent
            assert after.upper_percent <= before.upper_percent
            known = [summary.accepted for summary in before.summaries]
            then = [summary.accepted for summary in after.summaries]
            assert [v for v in known if v is not None] == then[: sum(v is not None for v in known)]

    @given(st.data(), JOBS)
    def test_without_any_patience_it_is_the_papers_rule(
        self, data: st.DataObject, job: Job
    ) -> None:
        strategy = self.draw(data, standard_errors=1e9)
        assert isinstance(strategy, SequentialStrategy)
        paper = PaperStrategy(
            strategy.settings,
            strategy.runs,
            strategy.threshold,
            strategy.target_accuracy,
            early_stop=strategy.early_stop,
            baseline_runs=strategy.baseline_runs or min(4, strategy.runs),
        )
        finished = searched(strategy, job)
        assert finished == searched(paper, job)
        assert answer_of(strategy, finished) == answer_of(paper, finished)

    def test_it_is_cheaper_than_the_paper_on_jobs_that_it_has_not_seen(self) -> None:
        def seconds(strategy: SequentialStrategy | PaperStrategy) -> float:
            problems = (generated_problem(number) for number in range(100))
            return statistics.fmean(search_with(strategy, job.run_at).seconds for job in problems)

        assert seconds(SequentialStrategy()) < 0.75 * seconds(PaperStrategy())
