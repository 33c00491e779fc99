"""How surely a policy is faster: the interval from the times of few runs."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from syncswitch.searcher.speed_up import SpeedUp, mean, measured_speed_up, speed_up_of
from tests.records import changed
from tests.storage.conftest import POLICY


@pytest.mark.parametrize(
    ("seconds", "percent", "expected"),
    [
        ({100.0: [6.0], 12.5: [3.0]}, 12.5, SpeedUp(2.0)),  # no two runs anywhere
        ({100.0: [6.0, 6.0], 12.5: [3.0]}, 12.5, SpeedUp(2.0, 2.0, 2.0)),
        ({100.0: [6.0, 7.0]}, 100.0, SpeedUp(1.0, 1.0, 1.0)),
        ({100.0: [1.0, 60.0], 12.5: [3.0]}, 12.5, SpeedUp(30.5 / 3)),  # too wide to say anything
        ({100.0: [6.0, 6.0]}, 12.5, None),
        ({12.5: [3.0], 100.0: [0.0]}, 12.5, None),
    ],
)
def test_known_answers(
    seconds: dict[float, list[float]], percent: float, expected: SpeedUp | None
) -> None:
    assert measured_speed_up(seconds, percent, 100.0) == expected


def test_the_interval_is_students_and_of_the_logarithms() -> None:
    seconds = {100.0: [6.0, 6.6], 12.5: [3.0], 50.0: [4.0, 4.4, 4.2]}
    found = measured_speed_up(seconds, 12.5, 100.0)
    squares = sum(
        statistics.variance(map(math.log, t)) * (len(t) - 1) for t in seconds.values() if len(t) > 1
    )
    # Of three degrees of freedom; one run at the policy, two of the first protocol alone.
    half = 2.353363 * math.sqrt(squares / 3 * (1 + 1 / 2))
    assert found.value == pytest.approx(2.1)
    assert math.log(found.high / found.value) == pytest.approx(half, rel=1e-6)
    assert math.log(found.value / found.low) == pytest.approx(half, rel=1e-6)


def test_it_holds_the_truth_nine_times_of_ten() -> None:
    chance = random.Random(7)
    held = 0
    for _ in range(2000):
        seconds = {
            percent: [mean * math.exp(chance.gauss(0, 0.2)) for _ in range(runs)]
            for percent, mean, runs in ((100.0, 6.0, 2), (50.0, 4.0, 2), (12.5, 3.0, 3))
        }
        found = measured_speed_up(seconds, 12.5, 100.0)
        held += found.low <= 2.0 <= found.high
    assert 0.88 < held / 2000 < 0.92


def test_load_that_differed_between_switch_points_counts() -> None:
    seconds = {100.0: [6.0, 6.1], 12.5: [3.0]}
    quiet = measured_speed_up(seconds, 12.5, 100.0, [[6.0, 6.0], [2.6]])
    assert quiet == measured_speed_up(seconds, 12.5, 100.0)
    loaded = measured_speed_up(seconds, 12.5, 100.0, [[6.0, 6.1, 9.0], [2.6, 2.7]])
    assert loaded.value == quiet.value
    assert loaded.high > 1.3 * quiet.high
    # Even with a run of each switch point it is known how much the first protocol's pace changed.
    assert measured_speed_up({100.0: [6.0], 12.5: [3.0]}, 12.5, 100.0, [[6.0, 6.0]]) == SpeedUp(
        2.0, 2.0, 2.0
    )


def test_a_policy_says_what_it_was_measured_to_gain() -> None:
    stated = changed(POLICY, speed_up_low=1.5, speed_up_high=2.5)
    assert speed_up_of(stated, 8.0) == SpeedUp(2.0, 1.5, 2.5)
    assert speed_up_of(POLICY) == SpeedUp(2.0)
    unmeasured = changed(POLICY, baseline_seconds=None)
    assert speed_up_of(unmeasured) is None
    assert speed_up_of(unmeasured, 8.0) == SpeedUp(8 / 3)


def test_students_interval_of_a_mean() -> None:
    # Student's t with 2 degrees of freedom: 4.3027 standard errors.
    assert mean([1.0, 2.0, 3.0]).high == pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-4)
    alone = mean([7.0])
    assert alone.low == alone.value == alone.high == 7.0
