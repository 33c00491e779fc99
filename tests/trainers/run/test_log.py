from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

import pytest

from syncswitch.storage.records.guard import Band, BandPoint, FailedSwitch, GuardOutcome
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import StalenessCount
from tests.records import changed
from tests.trainers.job.test_schedule import trial
from tests.trainers.jobs import RecordingObserver


def spec_of() -> TrialSpec:
    return trial(1000, 4, 50, ())


def log_of(observer: RecordingObserver | None = None) -> RunLog:
    return RunLog(spec_of(), observer or RecordingObserver(), lambda accuracy: accuracy < 0.2)


def timeless(log: RunLog) -> TrialRecord:
    """What it measured; whoever measured it, and when."""
    record = log.record()
    return replace(record, spec=spec_of(), started_at=datetime.min, ended_at=datetime.min)


def play(log: RunLog, done: int, seconds: float) -> None:
    """Trains a segment, or a part of it."""
    segment = log.next_segment(is_detour=log.is_detour)
    assert segment is not None
    log.add_phase(segment, done, seconds, StalenessCount())


def second_since(log: RunLog) -> int | None:
    segment = log.next_segment(is_detour=log.is_detour)
    assert segment is not None
    return log.second_since(segment)


def test_a_detour_counts_towards_the_job_and_not_towards_the_first_share() -> None:
    log = log_of()
    assert second_since(log) is None
    play(log, 100, 1.0)
    log.is_detour = True
    assert second_since(log) == 100
    play(log, 300, 2.0)
    assert second_since(log) == 100
    play(log, 400, 3.0)
    log.is_detour = False
    assert (log.done, log.first_protocol_done, second_since(log)) == (400, 100, None)
    segment = log.next_segment()
    assert segment is not None
    assert (segment.protocol, segment.end_worker_step) == ("bsp", 800)
    play(log, 800, 6.0)
    assert not log.is_before_switch
    assert second_since(log) == 800
    play(log, 900, 7.0)
    other = log_of()
    other.go_back(900, 500, 7.0, log.history())
    assert second_since(log) == second_since(other) == 800
    play(log, 1000, 8.0)
    assert log.next_segment() is None
    result = log.record()
    assert [(phase.protocol, phase.seconds) for phase in result.phases] == [
        *(("bsp", 1.0), ("asp", 2.0)),
        *(("bsp", 3.0), ("asp", 2.0)),
    ]
    assert (result.worker_steps, result.training_seconds) == (1000, 8.0)


@pytest.mark.parametrize(
    ("switch_percent", "first_done", "expected"), [(100, 600, None), (50, 500, 500), (0, 0, 0)]
)
def test_a_fork_inherits_its_time_and_when_the_second_protocol_began(
    switch_percent: float, first_done: int, expected: int | None
) -> None:
    spec = replace(spec_of(), switch_percent=switch_percent)
    log = RunLog(spec, RecordingObserver(), lambda accuracy: False)
    log.fork(600, first_done, 3.0)
    assert (log.done, log.record().inherited_seconds, log.record().phases) == (600, 3.0, ())
    assert second_since(log) == expected
    play(log, 700, 4.0)
    assert second_since(log) == expected


def test_gone_back_it_is_where_it_was_but_remembers_what_happened() -> None:
    observer = RecordingObserver()
    log = log_of(observer)
    play(log, 300, 3.0)
    log.add_evaluation(Evaluation(300, 3.0, 0.5, math.nan))
    log.add_event(RunEvent("lost", 300, 3.0, "worker 1: no answer", 1))
    history, before = log.history(), timeless(log)
    other = log_of()
    other.go_back(300, 300, 3.0, history)
    # Not compared as NaN is equal to nothing.
    assert str(timeless(other)) == str(before)
    play(log, 500, 5.0)
    log.add_evaluation(Evaluation(500, 5.0, 0.7, 0.1))
    log.add_event(RunEvent("returned", 400, 4.0, "worker 1 takes part again", 1, 1.0))
    log.go_back(300, 300, 3.0, history)
    result = log.record()
    assert (log.done, log.first_protocol_done, log.elapsed_seconds) == (300, 300, 3.0)
    assert log.record().inherited_seconds == 0.0
    assert [one.worker_step for one in result.evaluations] == [300]
    assert math.isnan(result.evaluations[0].training_loss)
    assert [event.kind for event in result.events] == ["lost", "returned"]
    # Made again, a test is recorded again, and nobody is told twice.
    log.add_evaluation(Evaluation(500, 9.0, 0.7, 0.1))
    assert [one.worker_step for one in log.record().evaluations] == [300, 500]
    assert [one.worker_step for one in observer.evaluations] == [300, 500]


def test_fallen_back_it_is_where_it_was_marked_but_remembers_what_happened() -> None:
    observer = RecordingObserver()
    log = log_of(observer)
    play(log, 500, 5.0)
    log.add_switch("asp", 0.25, 5.25)
    log.add_evaluation(Evaluation(500, 5.0, 0.5, 0.1))
    log.is_detour = True
    mark = log.position
    before = timeless(log)
    log.is_detour = False
    play(log, 900, 8.0)
    for step in (600, 800):
        log.add_evaluation(Evaluation(step, step / 100, 0.7, 0.1))
    log.add_event(RunEvent("lost", 900, 8.0, "the parameter server is gone"))
    log.fall_back(mark)
    assert log.is_detour
    found = timeless(log)
    assert [event.kind for event in found.events] == ["switched", "lost"]
    assert replace(found, events=before.events) == before
    # Made again, a test is recorded again, and nobody is told twice.
    assert [log.is_due(549), log.is_due(550)] == [False, True]
    log.add_evaluation(Evaluation(600, 9.0, 0.7, 0.1))
    assert [one.worker_step for one in log.record().evaluations] == [500, 600]
    assert [one.worker_step for one in observer.evaluations] == [500, 600, 800]


def test_a_mark_in_the_middle_of_a_segment_is_as_if_it_had_ended_there() -> None:
    marked, ended = log_of(), log_of()
    for log in (marked, ended):
        play(log, 300, 3.0)
    segment = marked.next_segment()
    assert segment is not None
    staleness = StalenessCount()
    staleness.add(4)
    mark = marked.mark(segment, 420, 4.5, staleness)
    assert marked.record().worker_steps == 300, "it has not ended"
    play(marked, 500, 9.0)
    marked.add_evaluation(Evaluation(410, 4.4, 0.5, 0.1))
    marked.add_evaluation(Evaluation(430, 4.6, 0.5, 0.1))
    marked.fall_back(mark)
    ended.add_phase(segment, 420, 4.5, staleness)
    ended.add_evaluation(Evaluation(410, 4.4, 0.5, 0.1))
    assert timeless(marked) == timeless(ended)
    assert marked.first_protocol_done == ended.first_protocol_done == 420


def test_a_test_that_nobody_had_asked_for_is_made_though_its_step_was_done() -> None:
    log = log_of()
    play(log, 500, 5.0)
    for done in range(50, 501, 50):
        assert log.is_due(done)
        log.add_evaluation(Evaluation(done, done / 100, 0.5, 0.1))
    segment = log.next_segment()
    assert segment is not None
    # The servers had taken one more step than the chief knew of.
    mark = log.mark(segment, 551, 9.0, StalenessCount())
    assert log.is_due(550)
    log.fall_back(mark)
    assert [log.is_due(552), log.is_due(553)] == [True, False]


def test_what_was_only_kept_is_told_with_the_next_progress() -> None:
    observer = RecordingObserver()
    log = log_of(observer)
    event = RunEvent("lost", 3, 0.1, "worker 1: no answer", 1)
    log.keep_event(event)
    assert observer.events == []
    assert log.record().events == (event,)
    log.progress(4)
    log.progress(5)
    assert observer.events == [event]
    assert log.record().events == (event,)


def guarded() -> RunLog:
    """With a guard that wants to see an accuracy that no test has; the switch is at 500."""
    points = (BandPoint(0, 2.0, 0.0), BandPoint(1000, 2.0, 0.0))
    identity = changed(spec_of().identity, learning_rate_boundaries=((900, 0.1),))
    spec = replace(spec_of(), identity=identity, band=Band(0.5, 0.01, 3, points))
    return RunLog(spec, RecordingObserver(), lambda accuracy: accuracy < 0.2)


@pytest.mark.parametrize(
    ("accuracies", "alarm", "last"),
    [
        ([math.nan], "the parameters are not finite", None),
        ([0.1], "after the first decay the accuracy is 0.1000: chance", 0.1),
        # At the end it states what it converged to.
        ([0.5, 0.51, 0.52, 0.53, 0.54, 0.55], "3 evaluations in a row are below ", 0.53),
    ],
)
def test_what_fails_after_the_switch_goes_back(
    accuracies: list[float], alarm: str, last: float | None
) -> None:
    log = guarded()
    play(log, 500, 5.0)
    log.keep_switch()
    play(log, 1000, 8.0)
    start = 1000 - 50 * (len(accuracies) - 1)
    for step, accuracy in zip(range(start, 1001, 50), accuracies, strict=True):
        log.add_evaluation(Evaluation(step, 8.0, accuracy, 0.1))
    log.diverge("and once more")
    assert log.has_to_go_back
    assert not log.diverged
    log.return_to_switch(8.0)
    outcome = log.record().guard
    assert outcome is not None
    (failed,) = outcome.failed
    assert failed.alarm.startswith(alarm)
    assert failed == FailedSwitch(50.0, failed.alarm, 1000, 8.0, 3.0, pytest.approx(last), "asp")
    assert outcome == GuardOutcome(100.0, (failed,))


def test_a_run_that_is_stopped_before_its_switch_has_not_failed() -> None:
    log = guarded()
    play(log, 400, 4.0)
    assert log.record().guard == GuardOutcome(50.0)


def test_another_process_looks_at_the_tests_since_the_switch() -> None:
    """Those of the process before it were perhaps not looked at any more."""
    log = guarded()
    play(log, 900, 8.0)
    for step in (400, 600, 700, 800):
        log.add_evaluation(Evaluation(step, step / 100, 0.6, 0.1))
    for step, has_to in ((900, True), (500, False)):
        other = guarded()
        other.go_back(step, 500, 9.0, log.history())
        mark = guarded().position
        other.keep_switch(replace(mark, done=500 if has_to else 700))
        assert other.has_to_go_back is has_to


def test_the_tests_that_a_fork_inherits_count_for_where_it_ends() -> None:
    """All five that converge, of which it has made two."""
    for inherited, has_to in ((0.6, False), (0.4, True)):
        before = tuple(Evaluation(step, 1.0, inherited, 0.1) for step in (300, 400, 500))
        spec = replace(spec_of(), band=Band(0.5, 0.01), inherited_evaluations=before)
        log = RunLog(spec, RecordingObserver(), lambda accuracy: False)
        log.fork(500, 500, 3.0)
        assert log.is_at_guarded_switch
        log.keep_switch()
        play(log, 1000, 8.0)
        log.add_evaluation(Evaluation(900, 7.0, 0.48, 0.1))
        assert not log.has_to_go_back
        log.add_evaluation(Evaluation(1000, 8.0, 0.48, 0.1))
        assert log.has_to_go_back is has_to
