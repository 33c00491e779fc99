"""What the last steps of each worker took."""

from __future__ import annotations

import pytest

from syncswitch.trainers.run.step_times import LastSteps, StepTimes


def test_the_medians_of_the_last_sixteen_steps_of_each_worker_count() -> None:
    steps = LastSteps(2)
    for _ in range(16):
        steps.add(0, 9.0, 9.5)  # older than the last sixteen of this worker
    for number in range(16):
        steps.add(0, 1.0 if number else 50.0, 1.5 if number else 60.0)
    assert steps.times() is None  # nothing is known of the other
    for _ in range(4):
        assert steps.times() is None
        steps.add(1, 2.0, 2.1)
    times = steps.times()
    assert times is not None
    assert times.compute == (1.0, 2.0)
    assert times.exchange == pytest.approx(0.3)
    steps.clear()
    assert steps.times() is None


def test_a_clock_that_saw_no_computing_says_nothing() -> None:
    steps = LastSteps(1)
    for _ in range(4):
        steps.add(0, 0.0, 0.1)
    assert steps.times() is None


def test_what_a_worker_step_takes_at_least() -> None:
    """In four seconds the first worker does four steps, the other one; in rounds each does one."""
    times = StepTimes((1.0, 4.0), 0.5)
    assert times.least == pytest.approx(4 / 5)
    assert times.least_in_rounds == 2.0


def test_of_a_round_the_rest_is_waiting() -> None:
    assert StepTimes((1.0, 4.0), 0.5).text("BSP", 2.5) == (
        "in a round of BSP a worker computes for 2.5 s, sends and receives for 0.5 s and waits for"
        " 2 s"
    )
    assert StepTimes((1.0, 4.0), 0.5).text("BSP", 1.0).endswith("waits for 0 s")


def test_what_is_sent_for_free_takes_no_time_at_all() -> None:
    assert "sends and receives for 0 s" in StepTimes((1.0, 4.0), 1.6e-15).text("BSP", 2.5)
