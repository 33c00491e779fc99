"""The contract of all strategies; the tests of each one inherit it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from syncswitch.searcher.strategies.base import Decided, Decision, NextTrial, Strategy
from syncswitch.searcher.strategies.baseline import THRESHOLD_RUNS, measured_threshold
from syncswitch.searcher.strategies.early_stopping import may_stop
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.planner import Key, PlannedTrial, course_of, plan_trial
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.job import Protocols, SearchInfo

# Dyadic, so that no tie depends on a rounded bit.
STEP = 2.0**-12

# Of a training with the first protocol alone; the second needs this part of it, as is expected of
# one of which nothing is known.
FIRST_SECONDS = 60.0
RATIO = 0.3

TARGETS = st.none() | st.sampled_from([0.875, 0.90625])
SEEDS = st.integers(0, 10_000)


@dataclass(frozen=True)
class Job:
    """Imagined training runs, which depend only on switch point and replicate.

    `noise` is the standard deviation of an accuracy, `diverging` the share of the runs that do,
    none of them with the first protocol alone.
    """

    seed: int
    noise: float
    diverging: float = 0.0

    def run(
        self, strategy: Strategy, percent: float, replicate: int, trial_number: int
    ) -> Observation:
        """Returns a run of a search; some are stopped, and some might have been."""
        share = (percent - strategy.lowest_percent) / (
            strategy.highest_percent - strategy.lowest_percent
        )
        chance = random.Random(f"{self.seed} {share:.9f} {replicate}")
        diverged = share < 1 and chance.random() < self.diverging
        accuracy = 0.9 - self._loss(share) + chance.gauss(0, self.noise)
        missing, may_stop = STEP * chance.randrange(8), chance.random() < 0.5
        is_stopped = strategy.early_stop and may_stop and chance.random() < 0.5 and not diverged
        accuracy = STEP * round(min(0.95, max(0.05, accuracy)) / STEP)
        return Observation(
            percent,
            accuracy - missing if is_stopped else accuracy,
            diverged,
            trial_number,
            replicate,
            stopped_early=is_stopped,
            plateau_accuracy=accuracy - missing if may_stop and not is_stopped else None,
            cost=TrialCost(
                paid_seconds=FIRST_SECONDS * (share + RATIO * (1 - share)),
                first_seconds=FIRST_SECONDS,
                second_seconds=RATIO * FIRST_SECONDS,
                reached_percent=80.0 if is_stopped else 100.0,
            ),
        )

    def _loss(self, share: float) -> float:
        chance = random.Random(self.seed)
        knee, slope = 2 ** -chance.uniform(0, 5), chance.uniform(0, 0.03)
        return slope * max(0.0, math.log2(knee / share))


JOBS = st.builds(
    Job, seed=SEEDS, noise=st.sampled_from([0.0, 0.005, 0.3]), diverging=st.sampled_from([0, 0.1])
)


def played(
    strategy: Strategy,
    run_at: Callable[[float, int, int], Observation],
    finished: Sequence[Observation] = (),
    *,
    stops: bool = False,
) -> list[Observation]:
    """Returns the runs of a search to its answer, each made to its end unless `stops`.

    `run_at` makes one with this switch point, replicate and trial number; `finished` come first.
    """
    runs = list(finished)
    while isinstance(decision := strategy.decide(runs), NextTrial):
        percent = decision.switch_percent
        assert percent in strategy.grid()
        run = run_at(percent, sum(one.switch_percent == percent for one in runs), len(runs))
        runs.append(stopped(strategy, runs, run) if stops else run)
        assert len(runs) - len(finished) <= strategy.most_runs
    assert isinstance(decision, Decided)
    return runs


def searched(strategy: Strategy, job: Job, *, stops: bool = False) -> list[Observation]:
    """Returns the runs of a search of this job."""
    return played(strategy, partial(job.run, strategy), stops=stops)


def stopped(strategy: Strategy, known: Sequence[Observation], run: Observation) -> Observation:
    """Returns a run as it is if it may be stopped."""
    if run.diverged or run.plateau_accuracy is None:
        return run
    measured = strategy.with_measured_threshold(known)
    if not may_stop(measured, run.switch_percent, known):
        return run
    return replace(run, accuracy=run.plateau_accuracy, plateau_accuracy=None, stopped_early=True)


def answer_of(strategy: Strategy, finished: Sequence[Observation]) -> Decided:
    decision = strategy.decide(finished)
    assert isinstance(decision, Decided)
    return decision


def switch_point_of(decision: Decision, strategy: Strategy) -> tuple[type[Decision], int]:
    """Returns kind and grid index of a decision, which do not depend on the range."""
    return type(decision), strategy.grid().index(decision.switch_percent)


def info_of(strategy: Strategy) -> SearchInfo:
    """Returns a search as a database gives it back."""
    return SearchInfo(
        study="study",
        fingerprint="0" * 64,
        protocols=Protocols("bsp", "asp"),
        strategy=strategy.name,
        halvings=strategy.halvings,
        runs=strategy.runs,
        threshold=strategy.threshold,
        target_accuracy=strategy.target_accuracy,
        trainer="local",
        base_seed=0,
        options=json.loads(json.dumps(strategy.options, allow_nan=False)),
    )


class StrategyContract:
    kind: ClassVar[Callable[..., Strategy]]
    # Fields of its own, and what to try for them.
    options: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {}
    # Ranges of switch points on which the same accuracies have to lead to the same switch points.
    like_ranges: ClassVar[Sequence[tuple[float, float]]] = ((0.0, 1.0),)

    def draw(self, data: st.DataObject, **fixed: object) -> Strategy:
        """Draws a strategy of this kind."""
        fields: dict[str, st.SearchStrategy[Any]] = {
            "halvings": st.integers(1, 5),
            "runs": st.integers(1, 4),
            "threshold": st.sampled_from([0.0078125, 0.03125]),
            "target_accuracy": TARGETS,
            "share_prefix": st.booleans(),
            "early_stop": st.booleans(),
            **self.options,
        }
        values = data.draw(st.fixed_dictionaries(fields), label="strategy")
        return self.kind(**{**values, **fixed})

    def draw_for(self, data: st.DataObject, job: Job) -> Strategy:
        """Draws a strategy; some measure their threshold, if runs of the job differ."""
        strategy = self.draw(data)
        if not job.noise or not data.draw(st.booleans(), label="measures its threshold"):
            return strategy
        if "budget" in strategy.given_options:
            budget: dict[str, Any] = {"budget": None}
            strategy = replace(strategy, **budget)
        highest = strategy.highest_percent
        runs = data.draw(st.integers(THRESHOLD_RUNS, 5))
        known = [job.run(strategy, highest, number, number) for number in range(runs)]
        assume(len({run.accuracy for run in known}) > 1)
        return strategy.with_allowed(AllowedLoss(0.0, runs))

    @given(st.data(), JOBS)
    def test_a_threshold_that_nobody_gave_is_measured_first_and_never_changes(
        self, data: st.DataObject, job: Job
    ) -> None:
        strategy = self.draw_for(data, job)
        assume(strategy.threshold_runs > 0)
        finished = searched(strategy, job)
        first = finished[: strategy.threshold_runs]
        assert {run.switch_percent for run in first} == {strategy.highest_percent}
        assert strategy.with_measured_threshold(first[1:]).threshold == 0
        told = strategy.with_measured_threshold(first)
        accuracies = [run.accuracy for run in first]
        assert told.threshold == measured_threshold(accuracies, 1.0, strategy.threshold_runs)
        assert strategy.with_measured_threshold(finished[::-1]) == told
        given = replace(told, threshold_runs=0)
        if given.runs_at(strategy.highest_percent) == strategy.runs_at(strategy.highest_percent):
            assert given.decide(finished) == strategy.decide(finished)

    @given(st.data(), JOBS)
    def test_every_search_ends(self, data: st.DataObject, job: Job) -> None:
        ends = data.draw(st.sampled_from([(0.0, 100.0), (0.1, 0.9)]))
        strategy = self.draw_for(data, job).between(*ends)
        finished = searched(strategy, job)
        grid = strategy.grid()
        assert list(grid) == sorted(set(grid))
        assert grid[-1] == strategy.highest_percent
        for percent in grid[:-1]:
            assert sum(run.switch_percent == percent for run in finished) <= strategy.runs
        answer, progress = answer_of(strategy, finished), strategy.progress(finished)
        assert answer.switch_percent == progress.upper_percent
        assert answer.target_accuracy == progress.target_accuracy
        assert progress.open_percent is None
        assert answer.promise.confidence is None or 0 <= answer.promise.confidence <= 1
        assert strategy.standing_answer(finished) == answer
        beliefs = strategy.beliefs(finished)
        assert [one.switch_percent for one in beliefs] in ([], list(grid))
        for one in beliefs:
            assert 0 <= one.good_probability <= 1
            assert 0 <= one.kept_share <= 1
            assert one.low_accuracy <= one.high_accuracy

    @given(st.data(), JOBS, st.randoms(use_true_random=False))
    def test_only_the_history_decides(
        self, data: st.DataObject, job: Job, chance: random.Random
    ) -> None:
        strategy = self.draw_for(data, job)
        finished = searched(strategy, job)
        for count, run in enumerate(finished):
            known = finished[:count]
            progress = strategy.progress(known)
            chance.shuffle(known)
            again = strategy.decide(known)
            assert isinstance(again, NextTrial)
            assert again.switch_percent == run.switch_percent == progress.open_percent
            assert strategy.progress(known) == progress
            assert strategy.lowest_percent <= progress.lower_percent < progress.upper_percent
        part = finished[: chance.randint(0, len(finished))]
        assert strategy.decide(part) == strategy.decide(part[::-1])

    @given(st.data(), JOBS, st.integers(2, 6), st.randoms(use_true_random=False))
    def test_many_searchers_find_what_one_finds(
        self, data: st.DataObject, job: Job, searchers: int, chance: random.Random
    ) -> None:
        strategy = self.draw_for(data, job)
        alone = searched(strategy, job, stops=True)
        finished: list[Observation] = []
        under_way: list[Key] = []
        while not isinstance(planned := plan_trial(strategy, finished, under_way), Decided):
            if isinstance(planned, PlannedTrial) and len(under_way) < searchers:
                key = (planned.switch_percent, planned.replicate)
                assert key not in under_way
                assert key not in {(run.switch_percent, run.replicate) for run in finished}
                assert not planned.is_speculative or under_way
                under_way.append(key)
            else:
                assert under_way  # nobody waits for nothing
                percent, replicate = under_way.pop(chance.randrange(len(under_way)))
                run = job.run(strategy, percent, replicate, len(finished))
                known = course_of(strategy, finished).runs
                finished.append(stopped(strategy, known, run))
        assert planned == strategy.decide(alone)
        needed = {(run.switch_percent, run.replicate) for run in course_of(strategy, finished).runs}
        assert needed == {(run.switch_percent, run.replicate) for run in alone}

    @given(st.data(), JOBS)
    def test_as_many_repeats_as_it_says_are_needed(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data)
        finished: list[Observation] = []
        while isinstance(decision := strategy.decide(finished), NextTrial):
            percent = decision.switch_percent
            first = sum(run.switch_percent == percent for run in finished)
            for repeat in range(decision.repeats):
                run = job.run(strategy, percent, first + repeat, len(finished))
                finished.append(run)
                if run.diverged:
                    break
                is_last = repeat + 1 == decision.repeats
                assert is_last or strategy.decide(finished) == NextTrial(percent)
        assert {run.trial_number for run in finished} == set(range(len(finished)))
        assert finished == searched(strategy, job)

    @given(st.data(), JOBS, SEEDS)
    def test_runs_at_foreign_switch_points_change_nothing(
        self, data: st.DataObject, job: Job, seed: int
    ) -> None:
        strategy = self.draw(data)
        finished = searched(strategy, job)
        known = finished[: data.draw(st.integers(0, len(finished)))]
        other = Job(seed, noise=0.3, diverging=0.2)
        percents = [strategy.lowest_percent, 33.3, 99.9, 100.1]
        runs = [other.run(strategy, 50.0, number, number) for number in range(len(percents))]
        foreign = [
            replace(run, switch_percent=percent)
            for run, percent in zip(runs, percents, strict=True)
        ]
        assert strategy.decide(known + foreign) == strategy.decide(known)
        assert strategy.progress(foreign + known) == strategy.progress(known)

    @given(st.data(), JOBS)
    def test_a_diverged_baseline_is_the_users_to_mend(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data, target_accuracy=None)
        diverged = [
            replace(job.run(strategy, strategy.highest_percent, number, number), diverged=True)
            for number in range(2)
        ]
        candidate = job.run(strategy, strategy.grid()[0], 0, 2)
        for call in (strategy.decide, strategy.progress):
            with pytest.raises(UserError, match="lower the learning rate") as caught:
                call([candidate, *diverged])
            assert len(str(caught.value).splitlines()) == 1

    @given(st.data(), JOBS)
    def test_one_diverged_baseline_is_made_again_with_another_seed(
        self, data: st.DataObject, job: Job
    ) -> None:
        strategy = self.draw(data, target_accuracy=None)
        highest = strategy.highest_percent
        diverged = replace(job.run(strategy, highest, 0, 0), diverged=True)
        assert strategy.decide([diverged]) == NextTrial(highest)
        assert strategy.progress([diverged]).target_accuracy is None
        played(strategy, partial(job.run, strategy), [diverged, job.run(strategy, highest, 1, 1)])

    @given(st.data(), JOBS)
    def test_another_range_is_searched_the_same_way(self, data: st.DataObject, job: Job) -> None:
        strategy = self.draw(data)
        finished = searched(strategy, job)
        for ends in self.like_ranges:
            other = strategy.between(*ends)
            percents = dict(zip(strategy.grid(), other.grid(), strict=True))
            assert (other.lowest_percent, other.grid()[-1]) == ends
            for count in range(len(finished) + 1):
                known = finished[:count]
                there = [replace(run, switch_percent=percents[run.switch_percent]) for run in known]
                here = switch_point_of(strategy.decide(known), strategy)
                assert here == switch_point_of(other.decide(there), other)

    @given(st.data())
    def test_a_search_goes_on_with_the_strategy_that_it_was_begun_with(
        self, data: st.DataObject
    ) -> None:
        strategy = self.draw(data)
        assert stored_strategy(info_of(strategy)) == strategy
