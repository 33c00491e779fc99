from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.metrics import (
    converged_accuracy,
    is_at_chance,
    is_converged,
    time_to_accuracy_seconds,
    whole_run_seconds,
)
from syncswitch.storage.records.trial import Evaluation, PhaseRecord


def evaluations(*accuracies: float, first_step: int = 10) -> list[Evaluation]:
    return [
        Evaluation(first_step + 10 * index, float(index), accuracy, 0.5)
        for index, accuracy in enumerate(accuracies)
    ]


class TestConvergedAccuracy:
    def test_is_the_mean_of_the_last_five(self) -> None:
        assert converged_accuracy(evaluations(0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9)) == pytest.approx(
            0.7
        )

    def test_takes_what_there_is_when_there_are_fewer(self) -> None:
        assert converged_accuracy(evaluations(0.4, 0.8)) == pytest.approx(0.6)

    def test_is_zero_without_evaluations(self) -> None:
        assert converged_accuracy([]) == 0.0

    @given(st.lists(st.floats(0, 1) | st.just(math.nan) | st.just(math.inf), max_size=8))
    def test_is_finite_and_an_accuracy_whatever_the_run_did(self, accuracies: list[float]) -> None:
        assert 0.0 <= converged_accuracy(evaluations(*accuracies)) <= 1.0 + 1e-12


class TestIsConverged:
    def test_a_span_of_a_tenth_of_a_point_is_converged(self) -> None:
        assert is_converged(evaluations(0.1, 0.900, 0.901, 0.9005, 0.9, 0.901), 15)

    def test_a_wider_span_is_not(self) -> None:
        assert not is_converged(evaluations(0.900, 0.9012, 0.9005, 0.9, 0.901), 5)

    def test_the_span_is_between_any_two_of_the_five_not_between_neighbours(self) -> None:
        assert not is_converged(evaluations(0.900, 0.9004, 0.9008, 0.9012, 0.9016), 5)

    def test_four_evaluations_are_too_few(self) -> None:
        assert not is_converged(evaluations(0.9, 0.9, 0.9, 0.9), 0)

    def test_all_five_must_come_after_the_last_decay(self) -> None:
        flat = evaluations(0.9, 0.9, 0.9, 0.9, 0.9, first_step=100)
        assert is_converged(flat, 99)
        assert not is_converged(flat, 100)


class TestIsAtChance:
    def test_two_standard_errors_above_chance_are_allowed(self) -> None:
        # sqrt(0.1 * 0.9 / 900) = 0.01
        assert is_at_chance(0.1199, 0.1, 900)
        assert not is_at_chance(0.1201, 0.1, 900)

    def test_worse_than_chance_is_chance(self) -> None:
        assert is_at_chance(0.0, 0.1, 900)


class TestTimeToAccuracy:
    def test_is_the_first_time_at_or_above_the_target(self) -> None:
        assert time_to_accuracy_seconds(evaluations(0.5, 0.8, 0.7, 0.9), 0.8) == 1.0

    def test_a_run_that_never_gets_there_is_censored(self) -> None:
        assert time_to_accuracy_seconds(evaluations(0.5, 0.8), 0.81) is None

    def test_a_diverged_evaluation_reaches_nothing(self) -> None:
        assert time_to_accuracy_seconds(evaluations(math.nan), 0.0) is None


def phase(protocol: str, start: int, end: int, seconds: float) -> PhaseRecord:
    return PhaseRecord(protocol, start, end, seconds, None, None)


class TestWholeRun:
    @given(
        first_step_seconds=st.floats(1e-3, 1e3),
        second_step_seconds=st.floats(1e-3, 1e3),
        switch=st.integers(0, 900),
        fork=st.integers(0, 900),
        stop=st.integers(901, 1000),
    )
    def test_a_stopped_run_of_even_pace_would_have_taken_what_the_whole_takes(
        self,
        first_step_seconds: float,
        second_step_seconds: float,
        switch: int,
        fork: int,
        stop: int,
    ) -> None:
        def phases(start: int, end: int) -> list[PhaseRecord]:
            both = (
                ("bsp", start, min(switch, end), first_step_seconds),
                ("asp", max(switch, start), end, second_step_seconds),
            )
            return [phase(name, a, b, (b - a) * pace) for name, a, b, pace in both if b > a]

        def seconds(end: int) -> float:
            return sum(one.seconds for one in phases(0, end))

        found = whole_run_seconds(seconds(stop), phases(fork, stop), stop, 1000)
        assert found == pytest.approx(seconds(1000))

    def test_a_fork_has_its_prefix_in_its_time_alone(self) -> None:
        assert whole_run_seconds(13.0, [phase("asp", 500, 800, 3.0)], 800, 1000) == 15.0

    @pytest.mark.parametrize("worker_steps", [1000, 1003])
    def test_who_is_told_to_stop_at_the_end_was_whole(self, worker_steps: int) -> None:
        assert whole_run_seconds(13.0, [], worker_steps, 1000) == 13.0

    @pytest.mark.parametrize(
        "phases",
        [
            [],
            [phase("asp", 500, 500, 1.0)],
            [phase("asp", 500, 800, 0.0)],
            [phase("asp", 500, 800, 1e-12)],
            [phase("bsp", 0, 500, 5.0), phase("asp", 500, 500, 0.0)],
        ],
    )
    def test_without_a_pace_nobody_knows(self, phases: list[PhaseRecord]) -> None:
        assert whole_run_seconds(5.0, phases, 800, 1000) is None
