"""A run tries second phases, and goes on with the fastest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncswitch.storage.records.guard import Band, GuardOutcome
from syncswitch.storage.records.job import Protocols
from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import StalenessCount
from tests.records import changed
from tests.trainers.job.test_schedule import trial
from tests.trainers.jobs import RecordingObserver

ASP = Protocols("bsp", "asp", "own-momentum")
LOCAL = Protocols("bsp", "local-sgd:8:semi-sync", "semi-sync")
W, N = 4_000, 4


def spec_of(*candidates: Protocols, percent: float = 6.25) -> TrialSpec:
    spec = trial(W, N, percent, ())
    own = replace(spec.identity, protocols=ASP)
    return replace(spec, identity=own, band=Band(None, 0.01), candidates=candidates)


def log_of(spec: TrialSpec) -> RunLog:
    return RunLog(spec, RecordingObserver(), lambda accuracy: False)


def trained(log: RunLog, step_seconds: dict[str, float], segments: int = 100) -> list[str]:
    """Trains at these paces; the stretches as `protocol start-end`."""
    found = []
    while len(found) < segments and (segment := log.next_segment()) is not None:
        if log.is_switch(segment):
            log.add_switch(segment.protocol, 0.0, log.elapsed_seconds)
        if log.is_at_guarded_switch:
            log.keep_switch()
        start, end = segment.start_worker_step, segment.end_worker_step
        seconds = log.elapsed_seconds + (end - start) * step_seconds[segment.protocol]
        log.add_phase(segment, end, seconds, StalenessCount())
        found.append(f"{segment.protocol} {start}-{end}")
    return found


TRIALS = ["bsp 0-252", "asp 252-260", "asp 260-292"]
LOCAL_TRIALS = ["local-sgd:8:semi-sync 292-324", "local-sgd:8:semi-sync 324-388"]


def test_the_fastest_goes_on() -> None:
    """Of each a few steps warm up, and those after them are timed."""
    for local_seconds, rest, chosen in (
        (0.003, "local-sgd:8:semi-sync 388-4000", LOCAL),
        (0.0095, "asp 388-4000", ASP),  # not a tenth faster
        (0.0089, "local-sgd:8:semi-sync 388-4000", LOCAL),
        (0.02, "asp 388-4000", ASP),
    ):
        log = log_of(spec_of(ASP, LOCAL))
        paces = {"bsp": 0.018, "asp": 0.01, LOCAL.second_protocol: local_seconds}
        assert trained(log, paces) == [*TRIALS, *LOCAL_TRIALS, rest]
        record = log.record()
        assert record.spec.identity.protocols == chosen
        assert record.guard == GuardOutcome(6.25, ())
        kinds = [one.kind for one in record.events]
        assert kinds == ["tried", "tried", "chosen", *["switched"] * (chosen is ASP)]


def test_what_is_a_little_faster_is_chosen_where_the_usual_phase_is_slower_than_bsp() -> None:
    log = log_of(spec_of(ASP, LOCAL))
    paces = {"bsp": 0.0098, "asp": 0.01, LOCAL.second_protocol: 0.0095}
    assert trained(log, paces)[-1] == "local-sgd:8:semi-sync 388-4000"


def test_what_halves_the_time_is_taken_at_once() -> None:
    paces = {"bsp": 0.021, "asp": 0.01, LOCAL.second_protocol: 0.001}
    assert trained(log_of(spec_of(ASP, LOCAL)), paces) == [*TRIALS, "asp 292-4000"]


def test_it_stays_with_the_first_protocol_where_nothing_is_faster() -> None:
    """Nothing guards it then, and it counts as one of the first protocol alone."""
    log = log_of(spec_of(ASP))
    assert trained(log, {"bsp": 0.01, "asp": 0.011}) == [*TRIALS, "bsp 292-4000"]
    record = log.record()
    assert (record.guard, record.spec.identity.protocols) == (GuardOutcome(100.0, ()), ASP)
    assert record.events[1].reason == (
        "BSP does the rest, as nothing else is faster here: a worker-step takes 0.011 s in ASP,"
        " 0.01 s in BSP"
    )


def test_what_the_first_steps_took_to_compile_does_not_count() -> None:
    log = log_of(spec_of(ASP))
    segment = log.next_segment()
    assert segment is not None
    log.add_evaluation(Evaluation(100, 9.0, 0.5, 1.0))
    log.add_phase(segment, 252, 9.0 + 152 * 0.01, StalenessCount())
    assert trained(log, {"bsp": 0.01, "asp": 0.011})[-1] == "bsp 292-4000"
    assert "0.011 s in ASP, 0.01 s in BSP" in log.record().events[-2].reason


def test_a_trial_of_fast_steps_is_longer() -> None:
    log = log_of(spec_of(ASP))
    assert trained(log, {"bsp": 0.005, "asp": 0.001}, 3)[-1] == "asp 260-320"  # 0.3 s of BSP
    log = log_of(spec_of(ASP))
    assert trained(log, {"bsp": 1e-5, "asp": 1e-6}, 3)[-1] == "asp 260-340"  # 2 % of the job


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (spec_of(), ["bsp 0-252", "asp 252-4000"]),
        # Too short a job for a look at all, and for one at local SGD.
        (changed(spec_of(ASP), total_worker_steps=200), ["bsp 0-12", "asp 12-200"]),
        (
            changed(spec_of(ASP, LOCAL), total_worker_steps=800),
            ["bsp 0-52", "asp 52-60", "asp 60-92", "asp 92-800"],
        ),
        # Nothing is known of the first protocol.
        (spec_of(ASP, percent=0.0), ["asp 0-4000"]),
    ],
)
def test_what_a_run_has_no_room_for_is_not_tried(spec: TrialSpec, expected: list[str]) -> None:
    paces = {"bsp": 0.04, "asp": 0.01, LOCAL.second_protocol: 0.001}
    assert trained(log_of(spec), paces) == expected


def test_who_goes_back_or_is_killed_does_not_try_again() -> None:
    paces = {"bsp": 0.018, "asp": 0.01, LOCAL.second_protocol: 0.003}
    spec = replace(spec_of(ASP, LOCAL), retry_percents=(25.0,))
    log = log_of(spec)
    before = trained(log, paces, 4)
    history, position = log.history(), log.position
    assert log.guarding.catches("it failed")
    log.heed_alarm(log.elapsed_seconds)
    assert trained(log, paces)[:2] == ["bsp 252-1000", "local-sgd:8:semi-sync 1000-1064"]
    resumed = log_of(spec)
    resumed.go_back(position.done, position.first_protocol_done, position.elapsed_seconds, history)
    assert [*before, *trained(resumed, paces)] == [
        *TRIALS,
        *LOCAL_TRIALS,
        "local-sgd:8:semi-sync 388-4000",
    ]
