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


def evaluations(*accuracies: float) -> list[Evaluation]:
    return [
        Evaluation(10 + 10 * index, float(index), accuracy, 0.5)
        for index, accuracy in enumerate(accuracies)
    ]


def test_the_converged_accuracy_is_the_mean_of_the_last_five_or_of_all() -> None:
    last_five = converged_accuracy(evaluations(0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9))
    assert last_five == pytest.approx(0.7)
    assert converged_accuracy(evaluations(0.4, 0.8)) == pytest.approx(0.6)
    assert converged_accuracy([]) == 0.0


@given(st.lists(st.floats(0, 1) | st.just(math.nan) | st.just(math.inf), max_size=8))
def test_it_is_finite_and_an_accuracy_whatever_the_run_did(accuracies: list[float]) -> None:
    assert 0.0 <= converged_accuracy(evaluations(*accuracies)) <= 1.0 + 1e-12


@pytest.mark.parametrize(
    ("accuracies", "last_decay", "is_so"),
    [
        ((0.1, 0.900, 0.901, 0.9005, 0.9, 0.901), 15, True),
        ((0.900, 0.9012, 0.9005, 0.9, 0.901), 5, False),
        # Between any two of the five, not between neighbours.
        ((0.900, 0.9004, 0.9008, 0.9012, 0.9016), 5, False),
        ((0.9, 0.9, 0.9, 0.9), 0, False),
        # All five come after the last decay.
        ((0.9, 0.9, 0.9, 0.9, 0.9), 9, True),
        ((0.9, 0.9, 0.9, 0.9, 0.9), 10, False),
    ],
)
def test_a_span_of_a_tenth_of_a_point_is_converged(
    accuracies: tuple[float, ...], last_decay: int, is_so: bool
) -> None:
    assert is_converged(evaluations(*accuracies), last_decay) == is_so


def test_two_standard_errors_above_chance_are_chance() -> None:
    # sqrt(0.1 * 0.9 / 900) = 0.01
    found = [is_at_chance(accuracy, 0.1, 900) for accuracy in (0.0, 0.1199, 0.1201)]
    assert found == [True, True, False]


@pytest.mark.parametrize(
    ("accuracies", "target", "seconds"),
    [((0.5, 0.8, 0.7, 0.9), 0.8, 1.0), ((0.5, 0.8), 0.81, None), ((math.nan,), 0.0, None)],
)
def test_the_first_test_at_or_above_the_target_reaches_it(
    accuracies: tuple[float, ...], target: float, seconds: float | None
) -> None:
    assert time_to_accuracy_seconds(evaluations(*accuracies), target) == seconds


def phase(protocol: str, start: int, end: int, seconds: float) -> PhaseRecord:
    return PhaseRecord(protocol, start, end, seconds, None, None)


@pytest.mark.parametrize(
    ("phases", "worker_steps", "seconds"),
    [
        ([phase("asp", 500, 800, 3.0)], 800, 15.0),  # of a fork, whose prefix took 10 s
        ([phase("bsp", 0, 500, 10.0), phase("asp", 500, 800, 3.0)], 800, 15.0),
        ([], 1000, 13.0),  # told to stop at the end
        ([], 1003, 13.0),
        # Without a pace nobody knows.
        ([], 800, None),
        ([phase("asp", 500, 500, 1.0)], 800, None),
        ([phase("asp", 500, 800, 0.0)], 800, None),
        ([phase("asp", 500, 800, 1e-12)], 800, None),
        ([phase("bsp", 0, 500, 5.0), phase("asp", 500, 500, 0.0)], 800, None),
    ],
)
def test_the_rest_goes_on_at_the_pace_of_the_last_phase(
    phases: list[PhaseRecord], worker_steps: int, seconds: float | None
) -> None:
    assert whole_run_seconds(13.0, phases, worker_steps, 1000) == seconds
