"""The adaptive strategy by the mean accuracy: what it needs, costs, and how sure it says it is."""

from __future__ import annotations

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.simulation.simulator import SimulatedSearch, search_with
from syncswitch.searcher.strategies.adaptive.mean.assessment import _CONFIRMATION
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, NextTrial
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from tests.benchmarks.generated_problems import generated_problem
from tests.benchmarks.problems import is_acceptable, is_right
from tests.searcher.strategies.strategy_contract import (
    FIRST_SECONDS,
    JOBS,
    Job,
    StrategyContract,
    answer_of,
    searched,
)

MeanStrategy = functools.partial(AdaptiveStrategy, criterion="mean")
GRID = MeanStrategy().grid()
TARGET = 0.92


def falling_below(edge: float, percent: float) -> float:
    """An accuracy that loses 2 beta for every switch point before an edge."""
    return TARGET - 0.02 * max(0, GRID.index(edge) - GRID.index(percent))


def quiet_search(strategy: AdaptiveStrategy, edge: float) -> list[Observation]:
    finished: list[Observation] = []
    while isinstance(decision := strategy.decide(finished), NextTrial):
        percent = decision.switch_percent
        replicate = sum(run.switch_percent == percent for run in finished)
        accuracy = falling_below(edge, percent) + 0.001 * (-1) ** replicate
        finished.append(
            Observation(percent, accuracy, trial_number=len(finished), replicate=replicate)
        )
    return finished


@functools.cache
def simulated(number: int, is_known: bool, **options: Any) -> SimulatedSearch:
    job = generated_problem(number)
    target = job.known_accuracy if is_known else None
    strategy = MeanStrategy(settings=job.settings, target_accuracy=target, **options)
    return search_with(strategy, job.run_at)


class TestMeanStrategy(StrategyContract):
    kind = MeanStrategy
    options: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {
        "target_runs": st.sampled_from([1, 5, 30]),
        "least_runs": st.none() | st.integers(1, 3),
        "budget": st.none() | st.sampled_from([0.5, 2.0, 4.0]),
    }

    def test_a_job_that_is_always_right_has_a_target_that_is_an_accuracy(self) -> None:
        strategy, finished = MeanStrategy(settings=1, runs=2), list[Observation]()
        while isinstance(decision := strategy.decide(finished), NextTrial):
            percent, number = decision.switch_percent, len(finished)
            replicate = sum(run.switch_percent == percent for run in finished)
            finished.append(Observation(percent, 1.0, trial_number=number, replicate=replicate))
        assert 0.99 < answer_of(strategy, finished).target_accuracy <= 1.0

    @pytest.mark.parametrize("edge", GRID)
    def test_a_plain_edge_is_found_with_few_runs(self, edge: float) -> None:
        new, recurring = MeanStrategy(), MeanStrategy(target_accuracy=TARGET)
        runs = quiet_search(new, edge)
        answer = answer_of(new, runs)
        assert answer.switch_percent == edge
        assert answer.target_accuracy == pytest.approx(TARGET, abs=0.005)
        assert len(runs) <= 10 < PaperStrategy().most_runs
        fewer = quiet_search(recurring, edge)
        assert answer_of(recurring, fewer).switch_percent == edge
        assert len(fewer) < len(runs)

    @given(st.data(), JOBS)
    def test_a_replicate_counts_once(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data)
        finished = searched(strategy, job)
        known = finished[: data.draw(st.integers(0, len(finished)))]
        again = [
            replace(run, accuracy=1 - run.accuracy, trial_number=100 + run.trial_number)
            for run in known
        ]
        assert strategy.decide(again + known) == strategy.decide(known)
        assert strategy.progress(known + again) == strategy.progress(known)

    @given(st.data(), JOBS)
    def test_an_answer_has_runs_of_its_own(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data, budget=None)
        assert isinstance(strategy, AdaptiveStrategy)
        finished = searched(strategy, job)
        for count in range(len(finished) + 1):
            known = finished[:count]
            decision = strategy.decide(known)
            if isinstance(decision, Decided) and decision.switch_percent < 100:
                own = sum(run.switch_percent == decision.switch_percent for run in known)
                assert own >= min(strategy.own_runs, strategy.runs)

    @given(st.data(), JOBS)
    def test_an_unsure_answer_has_a_target_that_was_measured_twice(
        self, data: st.DataObject, job: Job
    ) -> None:
        strategy = self.draw(data, budget=None, target_accuracy=None)
        assert isinstance(strategy, AdaptiveStrategy)
        finished = searched(strategy, job)
        answer = answer_of(strategy, finished)
        assert answer.confidence is not None
        if answer.confidence < _CONFIRMATION:
            baselines = sum(run.switch_percent == strategy.highest_percent for run in finished)
            assert baselines >= min(2, strategy.runs)

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
        assert isinstance(answer_of(strategy, finished).confidence, float)

    @pytest.mark.parametrize("is_known", [False, True])
    def test_a_budget_holds_with_shared_prefixes_and_stopped_runs(self, is_known: bool) -> None:
        for number in range(20):
            free = simulated(number, is_known)
            assert simulated(number, is_known, budget=100.0) == free
            search = simulated(number, is_known, budget=1.5)
            # A run is foreseen to cost what those before it did on average; it may cost more.
            assert search.seconds <= 1.5 + 0.5
            assert search.seconds <= free.seconds or search.seconds <= 1.5

    @pytest.mark.parametrize(("target", "runs"), [(None, 1), (TARGET, 0)])
    def test_a_search_without_means_answers_all_the_same(
        self, target: float | None, runs: int
    ) -> None:
        strategy = MeanStrategy(target_accuracy=target, budget=0.01)
        finished = searched(strategy, Job(seed=1, noise=0.005))
        assert len(finished) == runs
        answer = answer_of(strategy, finished)
        assert answer.switch_percent in GRID
        assert answer.confidence is not None
        assert answer.confidence < 0.5

    @pytest.mark.parametrize(
        "runs",
        [
            {100: 0.9704, 12.5: 0.8286, 25: 0.9468, 50: 0.8875},
            {100: 0.9717, 12.5: 0.8519, 25: 0.3512},
        ],
        ids=["later is worse", "much worse"],
    )
    def test_runs_that_contradict_each_other_make_no_answer_likely(
        self, runs: dict[float, float]
    ) -> None:
        finished = [Observation(percent, accuracy) for percent, accuracy in runs.items()]
        answer = MeanStrategy().standing_answer(finished)
        assert answer is not None
        assert answer.confidence is not None
        assert answer.confidence < 0.5

    def test_what_a_run_may_measure_is_what_is_believed(self) -> None:
        strategy = MeanStrategy()
        assert strategy.outcomes([], 100) == [(1.0, 0.5)]
        known = [Observation(100, TARGET, replicate=n, trial_number=n) for n in range(4)]
        known += [Observation(50, TARGET, replicate=0, trial_number=4)]
        known += [Observation(6.25, TARGET - 0.2, replicate=0, trial_number=5)]
        at = {percent: strategy.outcomes(known, percent) for percent in (100.0, 50.0, 6.25)}
        for found in at.values():
            assert math.isclose(sum(probability for probability, _ in found), 1)
            accuracies = [accuracy for _, accuracy in found]
            assert accuracies == sorted(accuracies)
        assert abs(at[100.0][1][1] - TARGET) < 0.005
        assert at[6.25][-1][1] < TARGET - 0.1 < at[50.0][0][1]

    def test_the_bracket_of_an_open_search_is_what_is_sure(self) -> None:
        strategy = MeanStrategy()
        start = strategy.progress([])
        assert (start.lower_percent, start.upper_percent, start.open_percent) == (0, 100, 100)
        assert (start.target_accuracy, start.summaries) == (None, ())
        finished = quiet_search(strategy, 12.5)[:1]
        for percent, accuracy in ((25.0, 0.925), (6.25, 0.85)):
            finished += [
                Observation(percent, accuracy, trial_number=len(finished) + n, replicate=n)
                for n in range(2)
            ]
        progress = strategy.progress(finished)
        assert (progress.lower_percent, progress.upper_percent) == (6.25, 25)
        assert progress.open_percent == 12.5
        verdicts = {s.switch_percent: s.accepted for s in progress.summaries}
        assert verdicts == {100: True, 25: True, 6.25: False}
        assert [s.runs for s in progress.summaries] == [1, 2, 2]

    def test_it_costs_a_third_of_the_papers_search_and_loses_accuracy_less_often(self) -> None:
        costs, losses = defaultdict(list), defaultdict(list)
        for number in range(60):
            job = generated_problem(number)
            paper = search_with(PaperStrategy(settings=job.settings), job.run_at)
            for name, search in (("adaptive", simulated(number, False)), ("paper", paper)):
                costs[name].append(search.seconds)
                losses[name].append(not is_acceptable(job, search.switch_percent))
        assert statistics.fmean(costs["adaptive"]) < statistics.fmean(costs["paper"]) / 3
        assert sum(losses["adaptive"]) <= sum(losses["paper"])

    @pytest.mark.parametrize("is_known", [False, True])
    def test_its_confidence_is_how_often_it_is_right(self, is_known: bool) -> None:
        errors = []
        for number in range(100):
            search = simulated(number, is_known)
            assert search.confidence is not None
            is_true = is_right(generated_problem(number), search.switch_percent)
            errors.append(search.confidence - is_true)
        standard_error = statistics.stdev(errors) / len(errors) ** 0.5
        assert abs(statistics.fmean(errors)) < 4 * standard_error
