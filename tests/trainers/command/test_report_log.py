from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.report_log import ReportLog
from syncswitch.trainers.command.results import Report
from tests.identities import GENERATED

IDENTITY = replace(
    GENERATED,
    total_worker_steps=100,
    learning_rate_boundaries=None,
    workers=1,
    first_protocol="ddp",
    second_protocol="local-sgd",
)


def course(switch_percent: float = 50.0, **fields: Any) -> ReportLog:
    return ReportLog(TrialSpec(replace(IDENTITY, **fields), switch_percent, seed=1))


def followed(*reports: tuple[int, float | None, float | None]) -> ReportLog:
    """A run that said (step, seconds, accuracy); each line comes a second after the one before."""
    found = course()
    for now, (step, seconds, accuracy) in enumerate(reports, 1):
        found.add(Report(step, seconds, accuracy), float(now))
    return found


def test_times_are_those_that_the_command_says() -> None:
    result = followed((40, 4.0, 0.5), (50, 5.0, None), (100, 7.5, 0.75)).record()
    assert [e.elapsed_seconds for e in result.evaluations] == [4.0, 7.5]
    assert [(p.protocol, p.end_worker_step, p.seconds) for p in result.phases] == [
        ("ddp", 50, 5.0),
        ("local-sgd", 100, 2.5),
    ]
    assert (result.worker_steps, result.training_seconds) == (100, 7.5)


def test_times_between_reports_are_interpolated() -> None:
    result = followed((40, 4.0, 0.5), (60, 5.0, 0.6), (100, 9.0, 0.75)).record()
    assert [phase.seconds for phase in result.phases] == [4.5, 4.5]


def test_the_clock_on_the_wall_counts_where_the_command_has_none() -> None:
    result = followed((40, None, 0.5), (100, None, 0.75)).record()
    assert [e.elapsed_seconds for e in result.evaluations] == [1.0, 2.0]


def test_a_report_of_step_0_begins_the_training() -> None:
    result = followed((0, None, None), (40, None, 0.5), (100, None, 0.75)).record()
    assert [e.elapsed_seconds for e in result.evaluations] == [1.0, 2.0]
    assert result.training_seconds == 2.0


def test_what_is_reported_again_is_passed_over() -> None:
    """Each process of a training may report, and one may start again from a checkpoint."""
    found = followed((50, 5.0, 0.5), (50, 5.1, 0.4), (40, 6.0, 0.1), (100, 9.0, 0.7))
    assert [(e.worker_step, e.accuracy) for e in found.record().evaluations] == [
        (50, 0.5),
        (100, 0.7),
    ]


def test_a_last_report_before_the_end_is_continued_at_its_speed() -> None:
    found = followed((40, 4.0, 0.5), (80, 6.0, 0.6))
    found.check_whole()
    result = found.record()
    assert result.worker_steps == 100
    assert result.training_seconds == 7.0
    assert result.phases[-1].end_worker_step == 100


@pytest.mark.parametrize("last", [40, 50])
def test_a_command_that_ends_too_early_is_refused(last: int) -> None:
    found = followed((20, 2.0, 0.5), (40, 4.0, 0.5), (last, 5.0, 0.5))
    with pytest.raises(UserError, match=rf"step {last} of --total-steps 100; give the steps"):
        found.check_whole()


def test_a_run_that_is_stopped_ends_with_its_last_report() -> None:
    result = followed((20, 2.0, 0.5), (40, 4.0, 0.5)).record(stopped_early=True)
    assert (result.worker_steps, result.training_seconds) == (40, 4.0)
    assert [phase.protocol for phase in result.phases] == ["ddp"]


@pytest.mark.parametrize(
    "last", [Report(60, 6.0, diverged=True), Report(None, diverged=True), Report(20, diverged=True)]
)
def test_a_diverged_run_ends_with_what_is_known(last: Report) -> None:
    found = followed((40, 4.0, 0.5))
    assert found.add(last, 7.0) is None
    result = found.record()
    assert result.diverged
    assert (result.worker_steps, result.training_seconds) in [(60, 6.0), (40, 4.0)]
    assert len(result.evaluations) == 1


def test_one_that_diverges_at_once_has_nothing() -> None:
    found = course()
    found.add(Report(None, diverged=True), 0.5)
    result = found.record()
    assert (result.worker_steps, result.phases, result.evaluations) == (0, (), ())


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (Report(101, 9.0, 0.5), "step is 101, beyond the 100 of --total-steps"),
        (Report(60, 3.0, 0.5), "seconds is 3 after 4"),
        (Report(60, None, 0.5), "some lines have seconds and others have none"),
    ],
)
def test_what_does_not_fit_is_refused(report: Report, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        followed((40, 4.0, 0.5)).add(report, 9.0)


@given(
    st.lists(st.integers(1, 100), min_size=1, unique=True).map(sorted),
    st.floats(0, 100),
    st.lists(st.floats(0, 10), min_size=100, max_size=100),
)
def test_phases_are_the_whole_run(steps: list[int], percent: float, lasts: list[float]) -> None:
    found, seconds = course(percent), 0.0
    for step, last in zip(steps, lasts, strict=False):
        seconds += last
        found.add(Report(step, seconds, 0.5), math.inf)
    result = found.record()
    assert result.worker_steps == 100
    assert result.training_seconds >= seconds
    assert sum(phase.seconds for phase in result.phases) == pytest.approx(result.training_seconds)
    assert result.phases[0].start_worker_step == 0
    assert result.phases[-1].end_worker_step == 100
    assert [e.worker_step for e in result.evaluations] == steps
