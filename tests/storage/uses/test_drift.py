"""Whether a job has changed, by how often its runs keep the accuracy."""

from __future__ import annotations

import random

import pytest

from syncswitch.storage.uses.drift import Drift, drift_of


def outcomes(kept: int, failed: int) -> list[bool]:
    return [True] * kept + [False] * failed


def test_the_newest_ten_are_held_against_all_before() -> None:
    kept = outcomes(38, 2) + outcomes(4, 6)
    assert drift_of(kept) == Drift(newest=10, newest_kept=4, former=40, former_kept=38)
    assert drift_of(outcomes(38, 2) + outcomes(8, 2)) is None


def test_what_always_failed_is_no_drift() -> None:
    assert drift_of(outcomes(10, 30) + outcomes(1, 9)) is None


@pytest.mark.parametrize(("former", "is_said"), [(4, False), (5, True)])
def test_a_few_former_runs_say_nothing(former: int, is_said: bool) -> None:
    assert (drift_of(outcomes(former, 0) + outcomes(0, 10)) is not None) == is_said


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_a_job_that_stays_as_it_is_is_seldom_called_changed(share: float) -> None:
    """In a hundred uses, asked after each of them."""
    chance = random.Random(5)
    called = 0
    for _ in range(200):
        kept = [chance.random() < share for _ in range(100)]
        called += any(drift_of(kept[:end]) for end in range(15, 101))
    assert called <= 6


def test_a_job_that_changes_is_found_out() -> None:
    chance = random.Random(6)
    found = 0
    for _ in range(100):
        kept = [chance.random() < 0.95 for _ in range(30)]
        kept += [chance.random() < 0.3 for _ in range(20)]
        found += any(drift_of(kept[:end]) for end in range(31, 51))
    assert found >= 90
