"""A run tries second phases, goes on with the fastest, and leaves one that becomes slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from syncswitch.storage.records.guard import Band, GuardOutcome
from syncswitch.storage.records.job import Protocols, protocol_text
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import StalenessCount
from tests.records import changed
from tests.trainers.job.test_schedule import trial
from tests.trainers.jobs import RecordingObserver

ASP = Protocols("bsp", "asp", "own")
LOCAL = Protocols("bsp", "local-sgd:8:semi-sync", "semi-sync")
LOCAL_NAME = LOCAL.second_protocol
W, N = 4_000, 4

Paces = Mapping[str, float | Callable[[int], float]]
"""Seconds of a worker-step by protocol, or by the worker-steps that are done."""


def spec_of(*candidates: Protocols, percent: float = 6.25) -> TrialSpec:
    spec = trial(W, N, percent, ())
    own = replace(spec.identity, protocols=ASP)
    return replace(spec, identity=own, band=Band(None, 0.01), candidates=candidates)


def later(**changes: object) -> TrialSpec:
    """A run with a policy."""
    return replace(spec_of(), leaves_slow=True, **changes)  # type: ignore[arg-type]


def log_of(spec: TrialSpec) -> RunLog:
    return RunLog(spec, RecordingObserver(), lambda accuracy: False)


def trained(
    log: RunLog, paces: Paces, segments: int = 100, compute: Mapping[int, float] | None = None
) -> list[str]:
    """Trains at these paces, and with what workers compute; the stretches as `protocol start-end`.

    Whether a segment ends is asked after each step.
    """
    found = []
    while len(found) < segments and (segment := log.next_segment()) is not None:
        name = segment.protocol
        if log.is_switch(segment):
            log.add_switch(name, 0.0, log.elapsed_seconds)
        if log.is_at_guarded_switch:
            log.keep_switch()
        done, seconds, pace = segment.start_worker_step, log.elapsed_seconds, paces[name]
        size = N if name == "bsp" else 1
        while done < segment.end_worker_step:
            steps = min(size, segment.end_worker_step - done)
            done, seconds = done + steps, seconds + steps * (pace(done) if callable(pace) else pace)
            for worker, own_seconds in (compute or {}).items():
                log.add_step(worker, own_seconds, own_seconds + 0.001)
            if log.count_steps(done, seconds):
                break
        log.add_phase(segment, done, seconds, StalenessCount())
        found.append(f"{name} {segment.start_worker_step}-{done}")
    return found


LOCAL_TRIALS = [f"{LOCAL_NAME} 292-324", f"{LOCAL_NAME} 324-388"]


def test_the_fastest_goes_on() -> None:
    """Of each a few steps warm up, and those after them are timed."""
    for local_seconds, rest, chosen in (
        (0.003, f"{LOCAL_NAME} 388-4000", LOCAL),
        (0.0095, "asp 388-4000", ASP),  # not a tenth faster
        (0.0089, f"{LOCAL_NAME} 388-4000", LOCAL),
        (0.02, "asp 388-4000", ASP),
    ):
        log = log_of(spec_of(ASP, LOCAL))
        paces = {"bsp": 0.018, "asp": 0.01, LOCAL_NAME: local_seconds}
        assert trained(log, paces) == ["bsp 0-252", "asp 252-292", *LOCAL_TRIALS, rest]
        record = log.record()
        assert record.spec.identity.protocols == chosen
        assert record.guard == GuardOutcome(6.25, ())
        kinds = [one.kind for one in record.events]
        assert kinds == ["tried", "tried", "chosen", *["switched"] * (chosen is ASP)]


def test_what_is_a_little_faster_is_chosen_where_the_usual_phase_is_slower_than_bsp() -> None:
    log = log_of(spec_of(ASP, LOCAL))
    paces = {"bsp": 0.0098, "asp": 0.01, LOCAL_NAME: 0.0095}
    assert trained(log, paces)[-1] == f"{LOCAL_NAME} 388-4000"


def test_what_halves_the_time_goes_on_without_a_break() -> None:
    paces = {"bsp": 0.021, "asp": 0.01, LOCAL_NAME: 0.001}
    log = log_of(spec_of(ASP, LOCAL))
    assert trained(log, paces) == ["bsp 0-252", "asp 252-4000"]
    events = log.record().events
    assert [(one.kind, one.worker_step) for one in events] == [("tried", 252), ("chosen", 292)]
    assert events[1].reason == (
        "ASP does the rest, the fastest here: a worker-step takes 0.01 s in ASP, 0.021 s in BSP"
    )


def test_it_stays_with_the_first_protocol_where_nothing_is_faster() -> None:
    """Nothing guards it then, and it counts as one of the first protocol alone."""
    log = log_of(spec_of(ASP))
    assert trained(log, {"bsp": 0.01, "asp": 0.011}) == ["bsp 0-252", "asp 252-292", "bsp 292-4000"]
    record = log.record()
    assert (record.guard, record.spec.identity.protocols) == (GuardOutcome(100.0, ()), ASP)
    assert record.events[1].reason == (
        "BSP does the rest, as nothing else is faster here: a worker-step takes 0.011 s in ASP,"
        " 0.01 s in BSP"
    )


def test_local_sgd_is_not_tried_where_computing_takes_all_of_asps_time() -> None:
    paces = {"bsp": 0.018, "asp": 0.01, LOCAL_NAME: 0.0085}
    compute = dict.fromkeys(range(N), 0.038)  # local SGD takes 0.0095 s at least
    assert trained(log_of(spec_of(ASP, LOCAL)), paces, compute=compute) == [
        "bsp 0-252",
        "asp 252-4000",
    ]
    compute[3] = 0.035  # all wait for the slowest
    assert trained(log_of(spec_of(ASP, LOCAL)), paces, compute=compute)[1:] == ["asp 252-4000"]
    compute = dict.fromkeys(range(N), 0.03)
    log = log_of(spec_of(ASP, LOCAL))
    assert trained(log, paces, compute=compute)[-1] == f"{LOCAL_NAME} 388-4000"
    assert (
        log.record()
        .events[-1]
        .reason.endswith(
            "; in a round of BSP a worker computes for 0.03 s, sends and receives for 0.001 s and"
            " waits for 0.041 s"
        )
    )


def test_what_sends_seldom_is_tried_first_where_sending_takes_most() -> None:
    """Five times as long as to compute, and nothing else is tried where that halves the time."""
    paces = {"bsp": 0.03, "asp": 0.02, LOCAL_NAME: 0.0149}
    compute = dict.fromkeys(range(N), 0.0002)
    log = log_of(spec_of(ASP, LOCAL))
    assert trained(log, paces, compute=compute) == ["bsp 0-252", f"{LOCAL_NAME} 252-4000"]
    assert log.record().spec.identity.protocols == LOCAL
    log = log_of(spec_of(ASP, LOCAL))
    paces[LOCAL_NAME] = 0.019  # not a tenth faster than ASP
    assert trained(log, paces, compute=compute) == [
        "bsp 0-252",
        f"{LOCAL_NAME} 252-348",
        "asp 348-356",
        "asp 356-388",
        "asp 388-4000",
    ]


def test_nothing_is_tried_where_bsp_waits_for_nobody_and_sends_for_free() -> None:
    paces = {"bsp": 0.01, "asp": 0.001, LOCAL_NAME: 0.001}
    log = log_of(spec_of(ASP, LOCAL))
    compute = dict.fromkeys(range(N), 0.0361)
    assert trained(log, paces, compute=compute) == ["bsp 0-252", "bsp 252-4000"]
    record = log.record()
    assert record.guard == GuardOutcome(100.0, ())
    assert [one.reason for one in record.events] == [
        "BSP does the rest, as nothing else can be a tenth faster here: a worker-step takes 0.01 s"
        " in BSP; in a round of BSP a worker computes for 0.0361 s, sends and receives for 0.001 s"
        " and waits for 0.0029 s"
    ]
    compute = dict.fromkeys(range(N), 0.0359)
    assert trained(log_of(spec_of(ASP, LOCAL)), paces, compute=compute)[1] == "asp 252-4000"


def test_what_the_first_steps_took_to_compile_does_not_count() -> None:
    log = log_of(spec_of(ASP))
    paces: Paces = {"bsp": lambda done: 5.0 if done < 2 * N else 0.01, "asp": 0.011}
    assert trained(log, paces)[-1] == "bsp 292-4000"
    assert "0.011 s in ASP, 0.01 s in BSP" in log.record().events[-2].reason


def test_a_trial_of_fast_steps_is_longer() -> None:
    for bsp, asp, end in (
        (0.0049, 0.0051, 320),  # 0.3 s of BSP
        (1e-5, 2e-5, 340),  # 2 % of the job
    ):
        log = log_of(spec_of(ASP))
        assert trained(log, {"bsp": bsp, "asp": asp}, 2)[-1] == f"asp 252-{end}"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (spec_of(), ["bsp 0-252", "asp 252-4000"]),
        # Too short a job for a look at all, and for one at local SGD.
        (changed(spec_of(ASP), total_worker_steps=200), ["bsp 0-12", "asp 12-200"]),
        (changed(spec_of(ASP, LOCAL), total_worker_steps=800), ["bsp 0-52", "asp 52-800"]),
        # Nothing is known of the first protocol.
        (spec_of(ASP, percent=0.0), ["asp 0-4000"]),
    ],
)
def test_what_a_run_has_no_room_for_is_not_tried(spec: TrialSpec, expected: list[str]) -> None:
    paces = {"bsp": 0.04, "asp": 0.03, LOCAL_NAME: 0.001}
    assert trained(log_of(spec), paces) == expected


def test_who_goes_back_or_is_killed_does_not_try_again() -> None:
    paces = {"bsp": 0.018, "asp": 0.01, LOCAL_NAME: 0.003}
    spec = replace(spec_of(ASP, LOCAL), retry_percents=(25.0,))
    log = log_of(spec)
    before = trained(log, paces, 3)
    history, position = log.history(), log.position
    assert log.guard.try_going_back("it failed")
    log.return_to_switch(log.elapsed_seconds)
    assert trained(log, paces)[:2] == ["bsp 252-1000", f"{LOCAL_NAME} 1000-1064"]
    resumed = log_of(spec)
    resumed.go_back(position.done, position.first_protocol_done, position.elapsed_seconds, history)
    assert [*before, *trained(resumed, paces)] == [
        "bsp 0-252",
        "asp 252-292",
        *LOCAL_TRIALS,
        f"{LOCAL_NAME} 388-4000",
    ]


def guarded(*candidates: Protocols, **changes: object) -> TrialSpec:
    """A run that may fall back to ASP and local SGD."""
    fields = {"fallbacks": (ASP, LOCAL), "retry_percents": (25.0,), "leaves_slow": True, **changes}
    return replace(spec_of(*candidates), **fields)  # type: ignore[arg-type]


def fail(log: RunLog) -> None:
    assert log.guard.try_going_back("it failed")
    log.return_to_switch(log.elapsed_seconds)


def said(log: RunLog) -> list[str]:
    return [one.reason for one in log.record().events if one.kind in ("alarmed", "chosen")]


def test_a_run_that_fails_goes_on_in_another_phase_if_that_is_expected_to_take_less_time() -> None:
    """Than ASP again from 25 % on, which is expected to take 0.69."""
    paces = {"bsp": 0.018, "asp": 0.0108, LOCAL_NAME: 0.0115}
    log = log_of(guarded(ASP, LOCAL))
    assert trained(log, paces)[-1] == "asp 388-4000"
    fail(log)
    assert trained(log, paces) == [f"{LOCAL_NAME} 252-4000"]
    record = log.record()
    assert record.spec.identity.protocols == LOCAL
    guard = record.guard
    assert guard is not None
    assert guard.held_percent == 6.25
    failed = [(one.switch_percent, one.second_protocol) for one in guard.failed]
    assert failed == [(6.25, "asp")]
    assert record.step_seconds == pytest.approx(paces, rel=0.01)
    name = protocol_text(LOCAL_NAME)
    assert said(log)[1:] == [
        f"it failed; {name} continues from the switch, after 252 worker-steps",
        f"{name} does the rest from 6.25 % on, as ASP failed: that is expected to take 0.67 of a"
        " whole run in BSP, where BSP would take 0.94",
    ]
    assert [one.kind for one in record.events][-3:] == ["alarmed", "chosen", "switched"]


def test_another_phase_that_is_too_slow_for_that_is_not_taken() -> None:
    paces = {"bsp": 0.018, "asp": 0.0108, LOCAL_NAME: 0.0125}
    log = log_of(guarded(ASP, LOCAL))
    trained(log, paces)
    fail(log)
    assert trained(log, paces) == ["bsp 252-1000", "asp 1000-4000"]
    assert said(log)[1:] == [
        "it failed; BSP continues from the switch, after 252 worker-steps, and the next switch is"
        " at 25 %"
    ]


def test_what_was_not_tried_is_expected_to_take_what_workers_compute_and_seldom_send() -> None:
    """Computing takes 0.01 s here, and sending 0.001 s once in eight steps."""
    for compute, follows in ((0.04, [f"{LOCAL_NAME} 252-4000"]), (0.07, ["bsp 252-4000"])):
        log = log_of(guarded(retry_percents=()))
        paces = {"bsp": 0.018, "asp": 0.0174, LOCAL_NAME: 0.01}
        assert trained(log, paces, compute=dict.fromkeys(range(N), compute))[1:] == ["asp 252-4000"]
        fail(log)
        assert trained(log, paces) == follows
    assert said(log)[-1] == (
        "BSP does the rest, as ASP failed: no other switch is expected to take less time"
    )


def test_a_phase_of_unknown_pace_is_not_taken_nor_any_from_the_start_on() -> None:
    paces = {"bsp": 0.018, "asp": 0.01, LOCAL_NAME: 0.001}
    log = log_of(guarded(retry_percents=()))
    trained(log, paces)
    fail(log)
    assert trained(log, paces) == ["bsp 252-4000"]
    log = log_of(guarded(switch_percent=0.0))
    compute = dict.fromkeys(range(N), 0.001)
    trained(log, paces, compute=compute)
    fail(log)
    assert trained(log, paces, compute=compute) == ["bsp 0-1000", "asp 1000-4000"]


def test_who_fails_three_times_stays_with_bsp_and_counts_for_what_failed_first() -> None:
    paces = {"bsp": 0.018, "asp": 0.0108, LOCAL_NAME: 0.0115}
    log = log_of(guarded(ASP, LOCAL))
    for rest in (
        ["bsp 0-252", "asp 252-292", *LOCAL_TRIALS, "asp 388-4000"],
        [f"{LOCAL_NAME} 252-4000"],
        ["bsp 252-1000", "asp 1000-4000"],
    ):
        assert trained(log, paces) == rest
        fail(log)
    assert trained(log, paces) == ["bsp 1000-4000"]
    record = log.record()
    assert record.guard is not None
    failed = [(one.switch_percent, one.second_protocol) for one in record.guard.failed]
    assert failed == [(6.25, "asp"), (6.25, LOCAL_NAME), (25.0, "asp")]
    assert record.guard.held_percent == 100.0
    assert record.spec.identity.protocols == ASP


def test_who_is_killed_after_it_fell_back_goes_on_so() -> None:
    paces = {"bsp": 0.018, "asp": 0.0108, LOCAL_NAME: 0.0115}
    spec = guarded(ASP, LOCAL)
    log = log_of(spec)
    trained(log, paces)
    fail(log)
    history, position = log.history(), log.position
    resumed = log_of(replace(spec, candidates=(ASP, LOCAL)))
    resumed.go_back(position.done, position.first_protocol_done, position.elapsed_seconds, history)
    for one in (log, resumed):
        assert trained(one, paces) == [f"{LOCAL_NAME} 252-4000"]
        fail(one)
        assert trained(one, paces) == ["bsp 252-1000", "asp 1000-4000"]
    assert resumed.record().guard == log.record().guard
    assert resumed.record().step_seconds == log.record().step_seconds


def slower_from(step: int, before: float, after: float) -> Callable[[int], float]:
    return lambda done: before if done < step else after


@pytest.mark.parametrize("spec", [later(), replace(spec_of(ASP))])
def test_a_phase_that_becomes_slower_than_bsp_is_left_for_it(spec: TrialSpec) -> None:
    """Three stretches of 0.3 s in a row have to be slow; BSP is timed anew, and does the rest."""
    paces = {"bsp": 0.02, "asp": slower_from(1_000, 0.01, 0.03)}
    log = log_of(spec)
    stretches = trained(log, paces)
    left = int(stretches[1].rpartition("-")[2])
    assert 1_036 <= left <= 1_064
    assert stretches == [
        "bsp 0-252",
        f"asp 252-{left}",
        f"bsp {left}-{left + 8}",
        f"bsp {left + 8}-{left + 24}",
        f"bsp {left + 24}-4000",
    ]
    record = log.record()
    assert record.events[-1].kind == "chosen"
    assert record.events[-1].reason == (
        "BSP does the rest, as ASP is slower by now: a worker-step takes 0.03 s in ASP, 0.02 s in"
        " BSP"
    )
    assert [one.protocol for one in record.phases] == ["bsp", "asp", "bsp"]
    assert record.guard == GuardOutcome(6.25, ())


def test_a_hiccup_is_no_reason_to_leave() -> None:
    stalled: Paces = {"bsp": 0.02, "asp": lambda done: 10.0 if done == 1_000 else 0.01}
    slow: Paces = {"bsp": 0.02, "asp": lambda done: 0.1 if 1_000 <= done < 1_016 else 0.01}
    for paces in (stalled, slow):
        log = log_of(later())
        assert trained(log, paces) == ["bsp 0-252", "asp 252-4000"]
        assert [one.kind for one in log.record().events] == ["switched"]


def test_a_phase_goes_on_where_bsp_is_slower_by_now_as_well() -> None:
    """The next time it has to be slow for twice as long."""
    paces = {"bsp": slower_from(1_000, 0.02, 0.06), "asp": slower_from(1_000, 0.01, 0.03)}
    log = log_of(later())
    stretches = trained(log, paces)
    left = int(stretches[1].rpartition("-")[2])
    assert stretches[4:] == [f"asp {left + 24}-4000"]
    record = log.record()
    assert record.events[-2].reason == (
        "ASP goes on, as nothing else is faster by now: a worker-step takes 0.03 s in ASP, 0.06 s"
        " in BSP"
    )
    # The guard goes back to the switch, not to the end of the comparison.
    assert log.guard.switch is not None
    assert log.guard.switch.done == 252


def test_asp_is_left_once_the_worker_is_gone_for_which_bsp_waited() -> None:
    """What BSP would take is what it took, less what its slowest worker takes less to compute."""
    for now, expected in ((0.02, 5), (0.08, 2)):
        log = log_of(later())
        paces = {"bsp": slower_from(900, 0.03, 0.015), "asp": 0.018}
        trained(log, paces, 1, {0: 0.02, 1: 0.02, 2: 0.02, 3: 0.08})
        assert len(trained(log, paces, compute={0: 0.02, 1: 0.02, 2: 0.02, 3: now})) + 1 == expected


def test_another_candidate_is_taken_where_it_is_the_fastest_by_now() -> None:
    """A link that gets busy slows BSP and ASP alike."""
    paces = {
        "bsp": slower_from(1_000, 0.03, 0.06),
        "asp": slower_from(1_000, 0.01, 0.04),
        LOCAL_NAME: 0.005,
    }
    log = log_of(spec_of(ASP, LOCAL))
    stretches = trained(log, paces)
    left = int(stretches[1].rpartition("-")[2])
    assert stretches[2:] == [
        f"bsp {left}-{left + 8}",
        f"bsp {left + 8}-{left + 24}",
        f"{LOCAL_NAME} {left + 24}-{left + 56}",
        f"{LOCAL_NAME} {left + 56}-{left + 120}",
        f"{LOCAL_NAME} {left + 120}-4000",
    ]
    assert log.record().spec.identity.protocols == LOCAL


def test_a_candidate_that_was_lucky_in_its_trial_is_left_for_the_other() -> None:
    paces = {"bsp": 0.03, "asp": 0.016, LOCAL_NAME: slower_from(1_000, 0.01, 0.025)}
    log = log_of(spec_of(ASP, LOCAL))
    stretches = trained(log, paces)
    assert stretches[4].startswith(f"{LOCAL_NAME} 388-")
    assert stretches[-1].startswith("asp ")
    assert stretches[-1].endswith("-4000")
    assert log.record().spec.identity.protocols == ASP


def test_a_job_without_room_to_make_sure_is_not_left() -> None:
    spec = changed(later(), total_worker_steps=120)
    assert trained(log_of(spec), {"bsp": 0.1, "asp": 1.0})[-1].startswith("asp")


def test_who_is_killed_while_it_compares_goes_on_as_it_would_have() -> None:
    paces = {"bsp": 0.02, "asp": slower_from(1_000, 0.01, 0.03)}
    spec = later()
    alone = trained(log_of(spec), paces)
    for segments in range(1, len(alone)):
        log = log_of(spec)
        before = trained(log, paces, segments)
        position, resumed = log.position, log_of(spec)
        place = position.done, position.first_protocol_done, position.elapsed_seconds
        resumed.go_back(*place, log.history())
        assert [*before, *trained(resumed, paces)] == alone
        assert [one.kind for one in resumed.record().events] == ["switched", "tried", "chosen"]


def test_a_run_that_left_its_second_phase_and_fails_stays_with_the_first_protocol() -> None:
    paces = {"bsp": 0.02, "asp": slower_from(1_000, 0.01, 0.03)}
    log = log_of(later(retry_percents=(25.0,)))
    trained(log, paces, 4)
    assert log.next_segment() is not None
    assert log.guard.try_going_back("it failed")
    log.return_to_switch(log.elapsed_seconds)
    assert trained(log, paces) == ["bsp 252-1000", "bsp 1000-4000"]
    guard = log.record().guard
    assert guard is not None
    assert (guard.held_percent, [one.switch_percent for one in guard.failed]) == (100.0, [6.25])
