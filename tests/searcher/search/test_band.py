from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer
from searches import search

from syncswitch.searcher.search.recorded import measured_band
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.storage.trials.store import TrialStore


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
