from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.model.steering import FALL, OVERSHOOT, RISE, Steering


def factors(most: float, cosines: list[float]) -> list[float]:
    """The factors for gradients at these angles to a movement along the first axis."""
    steering, found = Steering(most), []
    for number, cosine in enumerate(cosines):
        gradient = np.array([cosine, math.sqrt(1 - cosine**2)], np.float32)
        found.append(steering.factor(np.array([number, 0.0], np.float32), gradient))
    return found


def test_it_rises_downhill_up_to_the_most_and_falls_faster_where_all_went_too_far() -> None:
    rising = factors(1.5, [-1.0] * 20)
    np.testing.assert_allclose(rising, np.minimum(1.5, RISE ** np.arange(20)))
    # The mean over ten gradients turns after a few.
    both = factors(10.0, [-0.1] * 30 + [1.0] * 40)
    assert both[30] == max(both)
    np.testing.assert_allclose(both[31:35], both[30] / FALL ** np.arange(1, 5))
    assert both[-1] == 1.0


def test_one_worker_or_sgd_keeps_its_rate() -> None:
    assert factors(1.0, [-1.0] * 5) == [1.0] * 5


def test_a_gradient_across_the_movement_says_nothing_against_a_higher_rate() -> None:
    assert factors(2.0, [OVERSHOOT / 2] * 4)[-1] > 1
    assert factors(2.0, [OVERSHOOT * 2] * 4)[-1] == 1


@given(st.lists(st.floats(-1, 1), max_size=50), st.floats(1, 8))
def test_it_stays_between_one_and_the_most(cosines: list[float], most: float) -> None:
    assert all(1 <= one <= most for one in factors(most, cosines))


def test_what_is_not_finite_counts_as_too_far_and_no_movement_as_none() -> None:
    steering = Steering(4.0)
    still = np.ones(3, np.float32)
    rising = [steering.factor(still, still) for _ in range(5)]
    assert rising[-1] > rising[0] == 1.0
    assert steering.factor(np.full(3, np.inf, np.float32), still) < rising[-1]


def test_of_long_vectors_it_looks_at_some_values_of_all_parts() -> None:
    size = (1 << 18) * 3 + 5
    steering, seen = Steering(4.0), []
    theta = np.zeros(size, np.float32)
    gradient = np.zeros(size, np.float32)
    gradient[size // 2 :] = 1.0
    for _ in range(4):
        seen.append(steering.factor(theta, gradient))
        theta = theta + gradient  # uphill
    assert seen == [1.0] * 4
    again: Any = Steering(4.0)
    assert [again.factor(theta - number * gradient, gradient) for number in range(3)][-1] > 1
