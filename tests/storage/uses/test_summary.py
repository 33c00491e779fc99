"""Which runs of the first protocol alone are its target, and which collapsed; invented runs."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.uses.summary import collapse_limit

BETA = 0.01
NEAR = st.floats(0.70, 0.73)
CHANCE = st.floats(0.1, 0.5)


@given(st.lists(NEAR, min_size=1, max_size=6), st.lists(NEAR, max_size=6), CHANCE)
def test_a_run_far_below_all_others_has_collapsed(
    alone: list[float], beside: list[float], low: float
) -> None:
    limit = collapse_limit([*alone, low], beside, BETA)
    if len(alone) + len(beside) < 2:
        assert limit == -math.inf  # which of two is the odd one nobody knows
    else:
        assert limit in {-math.inf, low}
    if len(alone) + len(beside) > 3:
        assert limit == low


@given(st.lists(NEAR, min_size=6, max_size=9), st.lists(CHANCE, min_size=2, max_size=2))
def test_so_have_several_as_long_as_they_are_few(sound: list[float], low: list[float]) -> None:
    assert collapse_limit([*sound, *low], [], BETA) == max(low)


@given(st.lists(CHANCE, min_size=1, max_size=3), st.lists(NEAR, max_size=6), st.booleans())
def test_what_all_runs_of_the_first_protocol_reach_is_its_target(
    alone: list[float], beside: list[float], may_lack_target: bool
) -> None:
    is_lone = may_lack_target and len(alone) == 1
    limit = collapse_limit(alone, beside, BETA, may_lack_target=may_lack_target)
    assert limit == -math.inf or (is_lone and limit == alone[0])


@given(CHANCE, st.lists(NEAR, max_size=6))
def test_unless_the_only_one_is_far_below_all_others(low: float, beside: list[float]) -> None:
    limit = collapse_limit([low], beside, BETA, may_lack_target=True)
    if len(beside) < 2:
        assert limit == -math.inf
    if len(beside) > 3:
        assert limit == low
    # In a search it is what the switches are compared with.
    assert collapse_limit([low], beside, BETA) == -math.inf


@given(st.lists(NEAR, min_size=4, max_size=6), CHANCE)
def test_without_a_threshold_the_others_alone_say_how_much_runs_differ(
    sound: list[float], low: float
) -> None:
    assert collapse_limit([*sound[:2], low], sound[2:3], 0.0) in {-math.inf, low}
    near = [0.72 + 0.1 * (one - 0.72) for one in sound]
    assert collapse_limit([*near[:2], low], near[2:], 0.0) == low
    assert collapse_limit([*near[:2], min(near) - 0.05], near[2:], 0.0) == -math.inf


@given(
    st.lists(st.floats(0, 1), max_size=6),
    st.lists(st.floats(0, 1), max_size=6),
    st.floats(0, 1),
    st.booleans(),
)
def test_the_order_of_runs_and_what_they_all_have_more_do_not_matter(
    alone: list[float], beside: list[float], threshold: float, may_lack_target: bool
) -> None:
    limit = collapse_limit(alone, beside, threshold, may_lack_target=may_lack_target)
    turned = (alone[::-1], beside[::-1], threshold)
    assert collapse_limit(*turned, may_lack_target=may_lack_target) == limit
    lost = [one for one in alone if one <= limit]
    every = [*alone, *beside]
    assert sum(one <= limit for one in every) * 2 < max(1, len(every))
    assert len(lost) < max(1, len(alone)) or (may_lack_target and len(lost) == len(alone) == 1)
    assert bool(lost) == (limit > -math.inf)
    if lost:
        assert max(lost) + 10 * threshold <= min(one for one in every if one > limit)


@pytest.mark.parametrize("runs", [3, 4, 6, 10, 20])
@pytest.mark.parametrize("deviation", [0.005, 0.02, 0.1])
def test_honest_spread_is_hardly_ever_thrown_away(runs: int, deviation: float) -> None:
    random.seed(7)
    drawn = [[random.gauss(0.8, deviation) for _ in range(runs)] for _ in range(2000)]
    for threshold in (BETA, 0.0):
        wrong = sum(collapse_limit(one, [], threshold) > -math.inf for one in drawn)
        assert wrong <= 0.015 * len(drawn)


def test_what_two_runs_and_one_with_a_switch_say_of_a_third() -> None:
    assert collapse_limit([0.7281, 0.4915], [0.7294], BETA) == 0.4915
    assert collapse_limit([0.955, 0.852, 0.729], [], BETA) == -math.inf
    assert collapse_limit([0.7281, 0.4915], [0.7294], 0.0) == -math.inf
    # Losses count as their negatives.
    assert collapse_limit([-2.40, -2.41, -9.2], [], 0.03) == -9.2
