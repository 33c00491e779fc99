"""Whether a policy still holds after its uses."""

from __future__ import annotations

import random

import pytest

from syncswitch.searcher.learning.revision import revised
from syncswitch.searcher.strategies.observation import Observation
from tests.searcher.learning.conftest import STRATEGY, use

SEARCH = [
    Observation(percent, 0.9 + 0.001 * replicate, trial_number=number, replicate=replicate)
    for number, (percent, replicate) in enumerate(
        [(100.0, 0), (50.0, 0), (25.0, 0), (12.5, 0), (12.5, 1), (100.0, 1)]
    )
]


def after(kept: list[bool]) -> list[Observation]:
    runs = [
        one for number, is_kept in enumerate(kept) for one in use(12.5, number, fails=not is_kept)
    ]
    return [*SEARCH, *runs]


def test_a_policy_that_fails_again_and_again_is_left_for_a_later_switch() -> None:
    kept = [True, False, False, True, False, False]
    found = revised(STRATEGY, after(kept), 12.5, kept)
    assert found is not None
    assert (found.switch_percent, found.uses, found.failed) == (12.5, 6, 4)
    assert found.good_probability < 0.1
    assert found.answer.switch_percent > 12.5
    assert found.answer.confidence is not None
    assert found.answer.confidence >= 0.7


@pytest.mark.parametrize("kept_before", [0, 1, 10])
def test_one_failure_is_bad_luck(kept_before: int) -> None:
    kept = [True] * kept_before + [False]
    assert revised(STRATEGY, after(kept), 12.5, kept) is None


def test_the_first_protocol_alone_is_never_left() -> None:
    kept = [False] * 5
    assert revised(STRATEGY, after(kept), 100.0, kept) is None


def test_between_good_and_bad_it_stays() -> None:
    """One of ten fails: less than a search wants for an answer, and no reason to leave one."""
    chance = random.Random(1)
    kept = [chance.random() < 0.9 for _ in range(40)]
    assert kept.count(False) >= 2
    assert revised(STRATEGY, after(kept), 12.5, kept) is None
