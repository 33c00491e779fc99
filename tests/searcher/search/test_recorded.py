"""Recorded runs: searches of jobs that sweeps have run, and bands of the first protocol alone."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer
from searches import search, swept

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.recorded import measured_band
from syncswitch.searcher.search.search import SearchResult
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore

POINTS = (100.0, 75.0, 50.0, 25.0, 12.5)
RUNS = 5
PLAN = SearchPlan(AdaptiveStrategy(halvings=3))


class FailsNowAndThen(GeneratedTrainer):
    """At 25 % the first two seeds are lucky, and the others lose far too much."""

    def _accuracy(self, spec: TrialSpec) -> float:
        fails = spec.switch_percent == 25.0 and spec.replicate in (2, 3, 4)
        return super()._accuracy(spec) - (0.1 if fails else 0.0)


def found(url: str, trainer: GeneratedTrainer, plan: SearchPlan = PLAN) -> SearchResult:
    trainer.runs.clear()
    return search(url, trainer, plan)


def test_all_of_them_are_looked_at_though_fewer_would_have_done(
    sqlite_url: str, tmp_path: Path
) -> None:
    trainer = FailsNowAndThen(knee_percent=25.0)
    alone = found(f"sqlite:///{tmp_path / 'alone.db'}", trainer).policy
    assert alone.switch_percent == 25.0
    swept(sqlite_url, trainer, (*POINTS, 33.0), RUNS)
    result = found(sqlite_url, trainer)
    assert trainer.runs == []
    assert result.cost.paid_seconds == 0
    evidence = Counter(run.switch_percent for run in result.policy.evidence)
    assert evidence == dict.fromkeys(POINTS, RUNS)
    # With a guard three failures of five are made up for, and said.
    assert result.policy.switch_percent == 25.0
    assert alone.promise.kept_share is not None
    assert result.policy.promise.kept_share is not None
    assert result.policy.promise.kept_share < 0.75 < alone.promise.kept_share
    assert found(sqlite_url, trainer) == result


def test_another_search_takes_what_a_sweep_had_left_to_the_first(sqlite_url: str) -> None:
    """It begins with the sweep's replicates, and makes the missing ones that it wants."""
    trainer = FailsNowAndThen(knee_percent=25.0)
    policy = found(sqlite_url, trainer).policy
    made = {(run.switch_percent, run.replicate) for run in policy.evidence}
    trainer.runs.clear()
    swept(sqlite_url, trainer, POINTS, RUNS)
    compared = set(trainer.runs)
    # Of a decided search nothing changes.
    assert found(sqlite_url, trainer).policy == policy
    assert trainer.runs == []
    assert compared | made >= {(percent, number) for percent in POINTS for number in range(RUNS)}
    assert made.isdisjoint(compared)
    longer = replace(PLAN, strategy=replace(PLAN.strategy, expected_runs=100))
    result = found(sqlite_url, trainer, longer)
    evidence = {(run.switch_percent, run.replicate) for run in result.policy.evidence}
    assert evidence == compared | set(trainer.runs)


def test_other_seeds_and_other_trainers_are_no_runs_of_the_search(sqlite_url: str) -> None:
    trainer = FailsNowAndThen(knee_percent=25.0)
    swept(sqlite_url, trainer, POINTS, 1)
    for plan in (replace(PLAN, base_seed=1), replace(PLAN, trainer="simulated")):
        result = found(sqlite_url, trainer, plan)
        assert len(trainer.runs) == len(result.policy.evidence) > 0


def test_the_strategy_of_the_paper_has_its_number_of_runs(sqlite_url: str) -> None:
    trainer = FailsNowAndThen(knee_percent=25.0)
    swept(sqlite_url, trainer, POINTS, 3)
    result = found(sqlite_url, trainer, SearchPlan(PaperStrategy(halvings=3, runs=2)))
    assert trainer.runs == []
    assert set(Counter(run.switch_percent for run in result.policy.evidence).values()) == {2}


def curve_of(*points: tuple[int, float]) -> tuple[Evaluation, ...]:
    """Returns tests with these worker-steps and accuracies."""
    return tuple(Evaluation(step, step / 10, accuracy, 1.0) for step, accuracy in points)


def test_tests_after_the_same_worker_steps_are_put_together() -> None:
    curves = [curve_of((100, 0.5), (200, 0.75)), curve_of((100, 0.75), (200, 0.75))]
    deviation = statistics.stdev((0.5, 0.75))
    points = (BandPoint(100, 0.625, deviation), BandPoint(200, 0.75, 0.0))
    assert measured_band(0.7, 0.01, curves) == Band(0.7, 0.01, 2, points)
    assert measured_band(0.7, 0.01, [()]) == Band(0.7, 0.01, 0, ())


WHOLE = curve_of((100, 0.25), (200, 0.5), (300, 0.75))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        # One run has no deviation, and one that was stopped counts as far as it went.
        ([], [0.25, 0.5, 0.75]),
        ([(100, 0.75), (200, 0.5)], [0.5, 0.5, 0.75]),
        # Between two tests lies what is interpolated.
        ([(50, 0.0), (150, 0.375), (250, 0.625), (300, 0.75)], [0.21875, 0.5, 0.75]),
    ],
)
def test_the_longest_run_says_where_the_points_are(
    other: list[tuple[int, float]], expected: list[float]
) -> None:
    points = measured_band(0.7, 0.01, [curve_of(*other), WHOLE]).curve
    assert [point.worker_step for point in points] == [100, 200, 300]
    assert [point.accuracy for point in points] == expected
    assert points[-1].deviation == 0.0


def test_a_search_records_the_band_of_its_own_runs_of_the_first_protocol(url: str) -> None:
    class Untrained(GeneratedTrainer):
        """A command may report an accuracy at step 0."""

        def _record(self, *arguments: Any) -> TrialRecord:
            record = super()._record(*arguments)
            return replace(record, evaluations=(Evaluation(0, 0.0, 0.1, 2.0), *record.evaluations))

    policy = search(url, Untrained()).policy
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        baseline = [
            store.evaluations(policy.study, run.trial_number)
            for run in policy.evidence
            if run.switch_percent == 100
        ]
        assert PolicyRegistry(database).policies() == [policy]
    assert len(baseline) == 2
    assert policy.band == measured_band(policy.target_accuracy, policy.threshold, baseline)
    assert policy.band.curve[0] == BandPoint(0, 0.1, 0.0)
    assert len(policy.band.curve) == 6


@pytest.mark.parametrize("tests", [200, 201, 12_345])
def test_of_many_tests_200_stay(tests: int) -> None:
    band = measured_band(0.7, 0.01, [curve_of(*((step, step / tests) for step in range(1, tests)))])
    steps = [point.worker_step for point in band.curve]
    assert len(steps) == min(200, tests - 1)
    assert (steps[0], steps[-1]) == (1, tests - 1)
    gaps = [later - step for step, later in itertools.pairwise(steps)]
    assert max(gaps) - min(gaps) <= 1
    assert all(point.accuracy == point.worker_step / tests for point in band.curve)
