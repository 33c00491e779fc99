"""What the next run is expected to cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.trial_costs import TrialCosts

FIRST, SECOND = 100.0, 40.0

PERCENTS = st.floats(0.1, 100)


def run(
    percent: float, *, replicate: int = 0, reached_percent: float = 100.0, paid_seconds: float = 0
) -> Observation:
    cost = TrialCost(paid_seconds, FIRST, SECOND if percent < 100 else None, reached_percent)
    return Observation(percent, 0.9, replicate=replicate, cost=cost)


def test_a_new_job_is_taken_to_have_a_fast_second_protocol() -> None:
    costs = TrialCosts.of([], 100.0, share_prefix=True)
    assert costs.paid == 0
    assert costs.next(100, 0) == 1
    assert costs.next(25, 0) == pytest.approx(0.25 + 0.75 * 0.3)


def test_the_pace_of_both_protocols_is_learned() -> None:
    runs = [run(100, paid_seconds=100), run(50, paid_seconds=70)]
    costs = TrialCosts.of(runs, 100.0, share_prefix=False)
    assert costs.paid == pytest.approx(1.7)
    assert costs.next(100, 0) == 1
    assert costs.next(25, 0) == costs.next(25, 1) == pytest.approx(0.25 + 0.75 * 0.4)


def test_a_switch_does_not_save_the_start_of_a_run() -> None:
    """It takes 20 s here; of the runs that switch, the first phase holds it."""
    runs = [Observation(100.0, 0.9, cost=TrialCost(0, FIRST + 20, None))]
    for percent in (2.0, 25.0):
        cost = TrialCost(0, FIRST + 20 / (percent / 100), SECOND)
        runs.append(Observation(percent, 0.9, cost=cost))
        costs = TrialCosts.of(runs, 100.0, share_prefix=False)
    measured = 20 + 0.02 * FIRST + 0.98 * SECOND
    assert costs.until(2.0, 1.0) == pytest.approx(measured / (FIRST + 20), rel=0.02)


def test_a_replicate_does_not_pay_for_what_it_has() -> None:
    costs = TrialCosts.of([run(50), run(12.5)], 100.0, share_prefix=True)
    assert costs.next(100, 0) == pytest.approx(0.5)
    assert costs.next(50, 0) == pytest.approx(0.5 * 0.4)
    assert costs.next(25, 0) == pytest.approx(0.75 * 0.4)
    assert costs.next(50, 1) == pytest.approx(0.5 + 0.5 * 0.4)


def test_runs_are_expected_to_end_where_others_did() -> None:
    costs = TrialCosts.of([run(100, reached_percent=80), run(50, reached_percent=60)], 100.0, True)
    assert costs.next(100, 1) == pytest.approx(0.7)
    assert costs.next(25, 1) == pytest.approx(0.25 + (0.7 - 0.25) * 0.4)
    # One more of the replicate that was stopped at 80 % would cost next to nothing.
    assert costs.next(100, 0) == 0.02


def test_a_stopped_run_has_checkpoints_up_to_where_it_ended() -> None:
    runs = [run(100, reached_percent=50), run(100, replicate=1)]
    costs = TrialCosts.of(runs, 100.0, share_prefix=True)
    assert costs.next(100, 0) == pytest.approx(0.75 - 0.5)


def test_a_diverged_run_is_paid_and_says_nothing_of_the_pace() -> None:
    diverged = Observation(25, 0.1, diverged=True, cost=TrialCost(30.0, None, None))
    costs = TrialCosts.of([run(100, paid_seconds=100), diverged], 100.0, share_prefix=False)
    assert costs.paid == pytest.approx(1.3)
    assert costs.next(50, 0) == pytest.approx(0.5 + 0.5 * 0.3)


def test_where_nobody_says_what_runs_cost_each_counts_as_one() -> None:
    costs = TrialCosts.of([Observation(100, 0.9), Observation(25, 0.9)], 100.0, share_prefix=True)
    assert costs.paid == 2
    assert costs.next(50, 0) == pytest.approx(0.5 * 0.3)


@given(
    st.lists(st.tuples(PERCENTS, st.integers(0, 2), st.floats(1, 100)), max_size=5),
    PERCENTS,
    PERCENTS,
    st.booleans(),
)
def test_no_run_is_free_and_sharing_never_makes_one_dearer(
    made: list[tuple[float, int, float]], one: float, other: float, is_unit: bool
) -> None:
    highest = 1.0 if is_unit else 100.0
    scale = highest / 100
    runs = [run(p * scale, replicate=r, reached_percent=reached) for p, r, reached in made]
    shared, alone = (TrialCosts.of(runs, highest, share) for share in (True, False))
    earlier, later = sorted((one * scale, other * scale))
    assert 0.02 <= alone.next(earlier, 7) <= alone.next(later, 7) <= 1
    for replicate in range(3):
        assert 0.02 <= shared.next(later, replicate) <= alone.next(later, replicate)
    assert shared.next(later, 7) == alone.next(later, 7)
