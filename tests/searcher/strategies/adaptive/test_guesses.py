"""What other jobs say of the next one: where it first switches, and how much one odd job counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from syncswitch.searcher.strategies.adaptive.guesses import Experience, Floats, Prior, experience_of
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy, Assessment
from syncswitch.searcher.strategies.base import NextTrial
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.policies.unmeasured import RECORDED

STRATEGY = AdaptiveStrategy(halvings=6, threshold=0.01, owns_momentum=True)
PRIOR = Prior(STRATEGY.grid(), 0.01, owns_momentum=True)
FEW = 3


def job(*runs: tuple[float, float, bool]) -> Floats:
    """What a job says whose runs had these switch points and accuracies, or diverged."""
    observed = [
        Observation(percent, accuracy, diverged, trial_number=number, replicate=number)
        for number, (percent, accuracy, diverged) in enumerate(runs)
    ]
    return Assessment(STRATEGY, observed, 0).tolerance_likelihood()


def bears_nothing() -> Floats:
    return job((6.25, 0.1, True), (25.0, 0.1, True), (100.0, 0.9, False))


def bears_everything() -> Floats:
    return job((0.0, 0.9, False), (0.0, 0.9, False), (100.0, 0.9, False), (100.0, 0.9, False))


def first_percent(jobs: Sequence[Floats]) -> float:
    """Where the first of a few trainings of the next job switches."""
    tolerance = experience_of(PRIOR, jobs).tolerance
    decision = Assessment(replace(STRATEGY, bearing=tolerance), [], FEW).decision()
    assert isinstance(decision, NextTrial)
    return decision.switch_percent


def test_without_own_jobs_the_shares_are_those_of_the_recorded_ones() -> None:
    found = experience_of(PRIOR, [])
    assert found.jobs == 0
    assert found.share(100.0) == pytest.approx(1.0)
    assert first_percent([]) == 6.25


def test_a_single_odd_job_counts_as_one_beside_the_recorded_ones() -> None:
    usual, found = experience_of(PRIOR, []), experience_of(PRIOR, [bears_nothing()])
    for percent in (0.0, 6.25, 12.5):
        expected = RECORDED * usual.share(percent) / (RECORDED + 1)
        assert found.share(percent) == pytest.approx(expected, abs=0.02)
    # A bad one makes the next begin a halving later, and a good one makes it begin no earlier.
    assert first_percent([bears_nothing()]) == 12.5
    assert first_percent([bears_everything()]) == 6.25


def test_many_jobs_decide() -> None:
    assert first_percent([bears_nothing()] * 10) == 100.0
    assert first_percent([bears_everything()] * 10) == 3.125


def test_a_run_without_a_target_says_only_that_nothing_was_wrong() -> None:
    """So the many jobs that are trained once do not make each other bolder."""
    quiet = job((6.25, 0.9, False))
    assert first_percent([quiet] * 10) == 6.25
    share = experience_of(PRIOR, [quiet] * 10).share(6.25)
    assert share == pytest.approx(experience_of(PRIOR, []).share(6.25), abs=0.03)


def test_the_share_is_of_jobs_that_bear_a_switch_there_or_earlier() -> None:
    assert Experience(2, ((0.0, 0.5), (25.0, 0.25), (100.0, 0.25))).share(25.0) == 0.75
