"""What a run has to reach, and what a guard lets through beyond it."""

from __future__ import annotations

import pytest

from syncswitch.storage.records.goal import AllowedLoss, Goal, deviation_of, is_kept


def test_a_loss_is_given_or_measured() -> None:
    given, measured = AllowedLoss(0.02), AllowedLoss(0.0, 4)
    assert (given.is_known, given.is_from_runs) == (True, False)
    assert (given.parameter, given.stated) == ("threshold", 0.02)
    assert (measured.is_known, measured.is_from_runs) == (False, True)
    assert (measured.parameter, measured.stated) == ("threshold_runs", 4)
    assert AllowedLoss(0.1 + 0.2).stated == 0.3


@pytest.mark.parametrize(
    ("goal", "accuracy", "kept"),
    [
        (Goal(0.95, 0.01), 0.94, True),  # 0.95 - 0.01 is not 0.94 in binary
        (Goal(0.95, 0.01), 0.9399, False),
        (Goal(0.95, 0.0), 0.1, True),  # runs that measure the threshold are held to nothing
        (None, 0.1, None),
    ],
)
def test_a_run_keeps_what_is_at_most_the_threshold_below(
    goal: Goal | None, accuracy: float, kept: bool | None
) -> None:
    assert is_kept(goal, accuracy, diverged=False) is kept
    assert is_kept(goal, accuracy, diverged=True) is False


def test_a_guard_lets_through_what_few_runs_do_not_know() -> None:
    """A mean of n runs is too high by 2 sd / sqrt(n), and 1 in 20 loses 1.645 sd sqrt(1 + 1/n)."""
    assert Goal(0.9, 0.01).margin == 0.0  # a given target is known
    goal = Goal.mean_of([0.90, 0.92], 0.01)
    deviation = deviation_of(0.01, 0.0002, 2)
    assert (goal.runs, goal.threshold) == (2, 0.01)
    assert (goal.accuracy, goal.deviation) == pytest.approx((0.91, deviation))
    assert goal.error == pytest.approx(2 * deviation / 2**0.5)
    assert goal.spread == pytest.approx(1.645 * deviation * 1.5**0.5)
    assert goal.margin == pytest.approx(goal.error)
    noisy = Goal(0.9, 0.001, 100, 0.01)
    assert noisy.margin == pytest.approx(noisy.spread - 0.001)
    assert noisy.margin > noisy.error
