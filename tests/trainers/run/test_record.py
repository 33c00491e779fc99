"""From what a run leaves behind to its record."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialSpec
from syncswitch.trainers.run.record import (
    Position,
    RunTimes,
    cut_phases,
    merge_phases,
    trial_record,
)
from tests.storage.conftest import IDENTITY

NOW = datetime.now(timezone.utc)
TESTS = tuple(
    Evaluation(step, step / 10, accuracy, 0.1)
    for step, accuracy in zip(range(550, 900, 50), (0.1, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7), strict=True)
)


def test_a_fork_converges_to_the_mean_of_five_tests_inherited_ones_included() -> None:
    whole = TrialSpec(IDENTITY, 100.0, seed=1)
    fork = replace(whole, inherited_evaluations=TESTS[:5])
    own = TESTS[5:]
    end = Position(850, elapsed_seconds=85.0, inherited_seconds=75.0)
    record = trial_record(fork, NOW, end, own, stopped_early=True)
    assert record.evaluations == own
    assert record.converged_accuracy == pytest.approx(0.7)
    assert record.converged
    assert not trial_record(fork, NOW, end, own, diverged=True).converged
    fewer = trial_record(replace(fork, inherited_evaluations=TESTS[1:3]), NOW, end, own)
    assert fewer.converged_accuracy == pytest.approx((0.6 + 3 * 0.7) / 4)
    assert not fewer.converged


PHASES = (PhaseRecord("bsp", 0, 100, 50.0, 0.0, 0), PhaseRecord("asp", 100, 300, 40.0, 3.0, 9))


def evaluation(worker_step: int, seconds: float) -> Evaluation:
    return Evaluation(worker_step, seconds, 0.5, 1.0)


def clock(*evaluations: Evaluation) -> RunTimes:
    return RunTimes(PHASES, evaluations, 90.0, 300)


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        # It is linear within a phase, and stands still after the run.
        (clock(), {0: 0, 50: 25, 100: 50, 200: 70, 300: 90, 400: 90}),
        (
            clock(evaluation(0, 0.0), evaluation(40, 30.0), evaluation(300, 89.9)),
            {20: 15, 40: 30, 70: 40, 300: 90},
        ),
        # It never goes back, nor beyond the end.
        (clock(evaluation(99, 51.0), evaluation(299, 95.0)), {99: 51, 100: 51, 299: 90, 300: 90}),
        (RunTimes((), (), 0.0, 0), {0: 0, 100: 0}),
    ],
)
def test_the_clock_goes_through_what_was_measured(
    measured: RunTimes, seconds: dict[int, float]
) -> None:
    assert {step: measured.seconds_at(step) for step in seconds} == pytest.approx(seconds)


class TestCut:
    def test_a_part_costs_its_own_time(self) -> None:
        assert cut_phases(PHASES, 0, 300, clock()) == PHASES
        assert cut_phases(PHASES, 50, 200, clock()) == (
            PhaseRecord("bsp", 50, 100, 25.0, 0.0, 0),
            PhaseRecord("asp", 100, 200, pytest.approx(20.0), 3.0, 9),
        )
        for empty in ((0, 0), (100, 100), (300, 500)):
            assert cut_phases(PHASES, *empty, clock()) == ()

    @given(st.integers(0, 300), st.integers(1, 299), st.floats(0, 1))
    def test_two_parts_make_the_whole(self, cut: int, tested: int, share: float) -> None:
        start, end = (0.0, 50.0) if tested < 100 else (50.0, 90.0)
        measured = clock(evaluation(tested, start + share * (end - start)))
        parts = [cut_phases(PHASES, *span, measured) for span in ((0, cut), (cut, 300))]
        joined = merge_phases((*parts[0], *parts[1]))
        assert [(p.protocol, p.start_worker_step, p.end_worker_step) for p in joined] == [
            (p.protocol, p.start_worker_step, p.end_worker_step) for p in PHASES
        ]
        assert [p.seconds for p in joined] == pytest.approx([50.0, 40.0])
        assert sum(p.seconds for p in parts[0]) == pytest.approx(measured.seconds_at(cut))


@pytest.mark.parametrize(
    ("phases", "joined"),
    [
        # The staleness is the mean of all worker-steps, and unknown where a part of it is.
        (
            (PhaseRecord("asp", 0, 100, 1.0, 2.0, 4), PhaseRecord("asp", 100, 400, 3.0, 4.0, 5)),
            (PhaseRecord("asp", 0, 400, 4.0, 3.5, 5),),
        ),
        (
            (PhaseRecord("asp", 0, 9, 1.0, None, None), PhaseRecord("asp", 9, 40, 3.0, 4.0, 4)),
            (PhaseRecord("asp", 0, 40, 4.0, None, None),),
        ),
        (PHASES, PHASES),
        ((PhaseRecord("asp", 5, 5, 0.0, 0.0, 0),) * 2, (PhaseRecord("asp", 5, 5, 0.0, 0.0, 0),)),
    ],
)
def test_neighbouring_phases_of_one_protocol_are_joined(
    phases: tuple[PhaseRecord, ...], joined: tuple[PhaseRecord, ...]
) -> None:
    assert merge_phases(phases) == joined
