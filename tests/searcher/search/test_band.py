from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer
from searches import search

from syncswitch.searcher.search.band import measured_band
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.storage.trials.store import TrialStore


def curve_of(*points: tuple[int, float]) -> tuple[Evaluation, ...]:
    """Returns tests with these worker-steps and accuracies."""
    return tuple(Evaluation(step, step / 10, accuracy, 1.0) for step, accuracy in points)


def test_tests_after_the_same_worker_steps_are_put_together() -> None:
    one = curve_of((100, 0.5), (200, 0.75))
    other = curve_of((100, 0.75), (200, 0.75))
    assert measured_band(0.7, 0.01, [one, other]) == Band(
        0.7,
        0.01,
        2,
        (BandPoint(100, 0.625, statistics.stdev((0.5, 0.75))), BandPoint(200, 0.75, 0.0)),
    )


@pytest.mark.parametrize("curves", [[], [()]])
def test_without_tests_only_the_target_is_known(curves: list[tuple[Evaluation, ...]]) -> None:
    assert measured_band(0.7, 0.01, curves) == Band(0.7, 0.01, 0, ())


WHOLE = curve_of((100, 0.25), (200, 0.5), (300, 0.75))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param([], [(100, 0.25), (200, 0.5), (300, 0.75)], id="one run has no deviation"),
        pytest.param(
            [(100, 0.75), (200, 0.5)],
            [(100, 0.5), (200, 0.5), (300, 0.75)],
            id="a stopped run counts as far as it went",
        ),
        pytest.param(
            [(50, 0.0), (150, 0.375), (250, 0.625), (300, 0.75)],
            [(100, 0.21875), (200, 0.5), (300, 0.75)],
            id="between two tests lies what is interpolated",
        ),
    ],
)
def test_the_longest_run_says_where_the_points_are(
    other: list[tuple[int, float]], expected: list[tuple[int, float]]
) -> None:
    points = measured_band(0.7, 0.01, [curve_of(*other), WHOLE]).curve
    assert [(point.worker_step, point.accuracy) for point in points] == expected
    assert points[-1].deviation == 0.0


def test_a_search_with_tests_of_untrained_models_publishes_its_band(url: str) -> None:
    """A command may report an accuracy at step 0."""

    class Untrained(GeneratedTrainer):
        def _record(self, *arguments: Any) -> TrialRecord:
            record = super()._record(*arguments)
            return replace(record, evaluations=(Evaluation(0, 0.0, 0.1, 2.0), *record.evaluations))

    band = search(url, Untrained()).policy.band
    assert band is not None
    assert band.curve[0] == BandPoint(0, 0.1, 0.0)


@pytest.mark.parametrize("tests", [200, 201, 12_345])
def test_of_many_tests_200_stay(tests: int) -> None:
    band = measured_band(0.7, 0.01, [curve_of(*((step, step / tests) for step in range(1, tests)))])
    steps = [point.worker_step for point in band.curve]
    assert len(steps) == min(200, tests - 1)
    assert (steps[0], steps[-1]) == (1, tests - 1)
    gaps = [later - step for step, later in itertools.pairwise(steps)]
    assert max(gaps) - min(gaps) <= 1
    assert all(point.accuracy == point.worker_step / tests for point in band.curve)


def test_a_search_records_the_band_of_its_own_runs_of_the_first_protocol(url: str) -> None:
    policy = search(url).policy
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
    assert len(policy.band.curve) == 5


def test_a_search_that_was_given_its_target_has_no_curve(url: str) -> None:
    policy = search(url, plan=SearchPlan(PaperStrategy(2, 1, target_accuracy=0.95))).policy
    assert policy.band == Band(0.95, 0.01)
