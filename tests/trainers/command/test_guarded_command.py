"""Commands that fail after their switch, in real processes, and what is done then."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.records.guard import (
    Band,
    BandPoint,
    BelievedBand,
    FailedSwitch,
    GuardOutcome,
)
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord
from syncswitch.trainers.command.job import CommandJob, CommandTemplate
from syncswitch.trainers.command.trainer import CommandTrainer
from syncswitch.trainers.loop_switch import LoopSwitch
from syncswitch.trainers.trainer import Verdict
from tests.failing import fails
from tests.trainers.command.programs import GOOD, command, job_of, says, trial
from tests.trainers.jobs import RecordingObserver

# A second for each step before the switch, half of one after it; its accuracy is that of the step,
# in percent, unless it fails. It continues from the switch of another run where it can.
TRAINS = """
import json, sys, time
folder, switch, origin, behaviour = sys.argv[1:]
switch = int(switch)
open(folder + "/given", "w").write(json.dumps([switch, origin]))
start = json.load(open(origin + "/checkpoint")) if origin and behaviour != "forgets" else 0
json.dump(switch, open(folder + "/checkpoint", "w"))
seconds = 0.0
with open(folder + "/metrics.jsonl", "w") as results:
    for step in range(start, 101, 10):
        fails = switch < (60 if behaviour == "early" else 100) and step > switch
        line = {"step": step, "seconds": seconds, "accuracy": step / 100, "loss": 1.0}
        if fails and behaviour in ("low", "early", "forgets"):
            line["accuracy"] /= 2
        elif fails and behaviour == "diverges":
            line["loss"] = float("nan")
        elif fails and behaviour == "ends low" and step == 100:
            line["accuracy"] = 0.7
        elif fails and behaviour == "says so":
            line = {"diverged": True}
        print(json.dumps(line), file=results, flush=True)
        seconds += 10.0 if step < switch else 5.0
waits = switch < 100 and behaviour in ("low", "diverges", "says so")
time.sleep(600 if waits or switch < 60 and behaviour == "early" else 0)
"""

# The same in a loop that goes back by itself; it tests from step 10 on.
LOOPS = """
import sys
from syncswitch.trainers.loop_switch import LoopSwitch

plan, behaviour = sys.argv[1:]
now, step, began = 0.0, 0, 100
switch = LoopSwitch(plan, clock=lambda: now)
while step < 100:
    switch.saves_at(step)
    if switch.is_second(step):
        began = min(began, step)
    now += 1.0 if began == 100 else 0.5
    step += 1
    if step % 10 == 0:
        accuracy, fails = step / 100, began < (60 if behaviour == "early" else 100)
        if fails and behaviour in ("low", "early", "low until 90"):
            accuracy /= 2
        elif fails and behaviour == "diverges" or behaviour == "explodes" and step == 50:
            accuracy = float("nan")
        elif fails and behaviour == "ends low" and step == 100:
            accuracy = 0.7
        if step == 100 and behaviour == "low until 90":
            break
        print("step", step, "accuracy", accuracy)
        if (back := switch.report(step, accuracy, 1.0)) is not None:
            step, began = back, 100
"""

BAND = Band(0.8, 0.01, 3, tuple(BandPoint(step, step / 100, 0.0) for step in range(10, 101, 10)))


def job_that(folder: Path, behaviour: str, *, resumes: bool = False, **fields: Any) -> CommandJob:
    words = ("{output_dir}", "{switch_step}", "{resume_from}" if resumes else "", behaviour)
    return job_of(folder, command(folder, TRAINS, *words), **fields)


def trained(
    job: CommandJob,
    switch_percent: float = 40.0,
    band: Band | None = BAND,
    retry_percents: tuple[float, ...] = (60.0,),
) -> tuple[TrialRecord, RecordingObserver]:
    observer = RecordingObserver()
    spec = trial(job, switch_percent, band=band, retry_percents=retry_percents)
    return CommandTrainer(job).train(spec, observer), observer


def given(job: CommandJob) -> list[list[Any]]:
    """Switch and origin of each run."""
    found = sorted(job.runs_folder.glob("*/given"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(path.read_text()) for path in found]


def told(job: CommandJob) -> list[list[Any]]:
    """The same of a program that prints both, as a file of its own would pass for a checkpoint."""
    found = sorted(job.runs_folder.glob("*/output.log"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(path.read_text().splitlines()[0]) for path in found]


def usual(*steps: int, offset: float) -> list[Evaluation]:
    return [Evaluation(step, offset + step, step / 100, 1.0) for step in steps]


@pytest.mark.parametrize(
    ("behaviour", "alarm", "step", "seconds", "accuracy"),
    [
        ("low", "3 evaluations in a row are below those of runs without a switch", 70, 55.0, 0.35),
        ("diverges", "it diverged", 50, 45.0, None),
        ("says so", "it diverged", 40, 40.0, None),
        ("ends low", "it ends with 0.7", 100, 70.0, sum((0.6, 0.7, 0.8, 0.9, 0.7)) / 5),
    ],
)
def test_it_is_run_again_without_its_switch(
    tmp_path: Path, behaviour: str, alarm: str, step: int, seconds: float, accuracy: float | None
) -> None:
    band = Band(0.8, 0.01) if behaviour == "ends low" else BAND
    job = job_that(tmp_path, behaviour)
    record, observer = trained(job, band=band)
    assert given(job) == [[40, ""], [100, ""]]
    (failed,) = record.guard.failed
    assert failed.alarm.startswith(alarm)
    assert failed == FailedSwitch(40.0, failed.alarm, step, seconds, seconds, accuracy, "second")
    assert record.guard.held_percent == 100.0
    # As if it had never switched, but later.
    assert list(record.evaluations) == usual(*range(0, 101, 10), offset=seconds)
    assert record.phases == (PhaseRecord("first", 0, 100, 100.0, None, None),)
    assert (record.training_seconds, record.worker_steps) == (seconds + 100, 100)
    assert (record.diverged, record.stopped_early) == (False, False)
    assert record.spec.switch_percent == 40.0
    (event,) = record.events
    assert (event.kind, event.worker_step, event.seconds) == ("alarmed", step, seconds)
    assert event.reason == f"{failed.alarm}; the first way starts over"
    assert observer.events == [event]


@pytest.mark.parametrize("behaviour", ["low", "forgets"])
def test_it_goes_on_from_its_own_checkpoint(tmp_path: Path, behaviour: str) -> None:
    """One that begins anew all the same has its first results counted once."""
    job = job_that(tmp_path, behaviour, resumes=True)
    record, _ = trained(job, retry_percents=())
    (_, origin), (switch, resumed_from) = given(job)
    assert (origin, switch) == ("", 100)
    assert Path(resumed_from) == job.runs_folder / "switch-40-replicate-0-seed-1"
    assert record.guard.lost_seconds == 15.0
    rest = 60.0 if behaviour == "low" else 100.0
    offset = 15.0 if behaviour == "low" else 55.0
    assert list(record.evaluations) == [
        *usual(0, 10, 20, 30, 40, offset=0.0),
        *usual(50, 60, 70, 80, 90, 100, offset=offset),
    ]
    assert record.training_seconds == 55.0 + rest
    assert record.phases == (PhaseRecord("first", 0, 100, 40.0 + rest, None, None),)
    reason = record.events[0].reason
    assert reason.endswith("the first way continues from the switch, after 40 steps")


# Dies at step 70, twice, with checkpoints every 40 steps.
CRASHES = """
import json, os, sys
folder, switch, origin, behaviour = sys.argv[1:]
switch = int(switch)
print(json.dumps([switch, origin]))
start = json.load(open(origin + "/checkpoint")) if origin else 0
attempts = len(os.listdir(os.path.dirname(folder)))
is_crash = attempts < (2 if behaviour == "low" else 3)
with open(folder + "/metrics.jsonl", "w") as results:
    for step in range(start + 10, 71 if is_crash else 101, 10):
        is_low = behaviour == "low" and origin and switch < 100
        accuracy = step / (200 if is_low else 100)
        line = {"step": step, "seconds": step - start, "accuracy": accuracy, "loss": 1.0}
        print(json.dumps(line), file=results, flush=True)
        if step % 40 == 0:
            json.dump(step, open(folder + "/checkpoint", "w"))
sys.exit(is_crash)
"""


@pytest.mark.parametrize("behaviour", ["fine", "low"])
def test_after_a_crash_it_goes_on_from_the_checkpoint(tmp_path: Path, behaviour: str) -> None:
    """Where the guard goes back, it is to the attempt that has the checkpoint at the switch."""
    words = ("{output_dir}", "{switch_step}", "{resume_from}", behaviour)
    job = job_of(tmp_path, command(tmp_path, CRASHES, *words))
    spec = trial(job, 40.0, band=BAND if behaviour == "low" else None, retry_percents=())
    trainer = CommandTrainer(job)
    folders = []
    with fails("command-failed", "exit status 1, at step 70 of 100"):
        trainer.train(spec)
    folders.append(str(trainer.last_folder))
    if behaviour == "low":
        record = trainer.train(spec)
        folders.append(str(trainer.last_folder))
        assert [one for _, one in told(job)] == ["", folders[0], folders[0]]
        assert [switch for switch, _ in told(job)] == [40, 40, 100]
        assert record.guard.held_percent == 100.0
        assert list(record.evaluations) == [
            *usual(10, 20, 30, 40, offset=0.0),
            *usual(50, 60, 70, 80, 90, 100, offset=record.guard.lost_seconds),
        ]
        return
    with fails("command-failed", "exit status 1, at step 70 of 100"):
        trainer.train(spec)
    record = trainer.train(spec)
    # The second one has left no checkpoint.
    assert told(job) == [[40, ""], [40, folders[0]], [40, folders[0]]]
    assert list(record.evaluations) == usual(*range(10, 101, 10), offset=0.0)
    assert record.training_seconds == 100.0
    # Another run begins at its start.
    trainer.train(replace(spec, replicate=1))
    assert told(job)[-1] == [40, ""]


def test_it_goes_on_to_a_later_switch(tmp_path: Path) -> None:
    """One that failed without a first part has no checkpoint for that."""
    job = job_that(tmp_path, "early", resumes=True)
    record, _ = trained(job, 0.0, retry_percents=(40.0, 60.0, 80.0))
    folders = [str(job.runs_folder / f"switch-{one}-replicate-0-seed-1") for one in (40, 60)]
    assert given(job) == [[0, ""], [40, ""], [60, folders[0]]]
    assert record.guard.held_percent == 60.0
    tries = [(one.switch_percent, one.worker_step) for one in record.guard.failed]
    assert tries == [(0.0, 40), (40.0, 70)]
    assert [one.lost_seconds for one in record.guard.failed] == [20.0, 15.0]
    assert [one.elapsed_seconds for one in record.guard.failed] == [20.0, 75.0]
    assert list(record.evaluations) == [
        *usual(0, 10, 20, 30, 40, offset=20.0),
        *usual(50, 60, offset=35.0),
        *(Evaluation(step, 65 + step / 2, step / 100, 1.0) for step in (70, 80, 90, 100)),
    ]
    assert record.phases == (
        PhaseRecord("first", 0, 60, 60.0, None, None),
        PhaseRecord("second", 60, 100, 20.0, None, None),
    )
    assert record.training_seconds == 115.0
    assert [event.reason.partition("; ")[2] for event in record.events] == [
        "the first way starts over, and the next switch is at 40 %",
        "the first way continues from the switch, after 40 steps, and the next switch is at 60 %",
    ]


@pytest.mark.parametrize(
    ("behaviour", "percent", "band", "guard"),
    [
        ("fine", 40.0, BAND, GuardOutcome(40.0)),
        ("ends low", 40.0, None, None),
        ("fine", 100.0, BAND, None),
    ],
)
def test_it_is_left_alone(
    tmp_path: Path, behaviour: str, percent: float, band: Band | None, guard: GuardOutcome | None
) -> None:
    job = job_that(tmp_path, behaviour)
    record, observer = trained(job, percent, band, ())
    assert given(job) == [[percent, ""]]
    assert (record.guard, record.events, observer.events) == (guard, (), [])


def loop_that(folder: Path, behaviour: str, plan: str = "{plan}", **fields: Any) -> CommandJob:
    path = folder / "loop.py"
    path.write_text(LOOPS)
    return job_of(folder, CommandTemplate((sys.executable, str(path), plan, behaviour)), **fields)


@pytest.mark.parametrize("plan", ["{plan}", ""], ids=["in the command", "in the environment"])
def test_a_loop_goes_back_by_itself(tmp_path: Path, plan: str) -> None:
    job = loop_that(tmp_path, "early", plan)
    assert job.template.can_go_back == (plan != "")
    record, observer = trained(job)
    assert len(list(job.runs_folder.iterdir())) == 1
    alarm = record.guard.failed[0].alarm
    assert alarm.startswith("3 evaluations in a row are below")
    failed = FailedSwitch(40.0, alarm, 70, 55.0, 15.0, 0.35, "second")
    assert record.guard == GuardOutcome(60.0, (failed,))
    assert list(record.evaluations) == [
        *usual(10, 20, 30, 40, offset=0.0),
        *usual(50, 60, offset=15.0),
        *(Evaluation(step, 45 + step / 2, step / 100, 1.0) for step in (70, 80, 90, 100)),
    ]
    assert record.phases == (
        PhaseRecord("first", 0, 60, 60.0, None, None),
        PhaseRecord("second", 60, 100, 20.0, None, None),
    )
    assert (record.training_seconds, record.worker_steps) == (95.0, 100)
    assert record.spec == trial(job, 40.0, band=BAND, retry_percents=(60.0,))
    assert (record.diverged, record.stopped_early) == (False, False)
    # Told while it trains.
    assert observer.events == list(record.events)
    (event,) = record.events
    assert event.reason.endswith("after 40 steps, and the next switch is at 60 %")
    assert observer.evaluations[-1].worker_step == 100


# How the loop's tests are read, beside what it says of itself.
READ = {
    "by its reports": {},
    "from its output": {"metric_pattern": r"step (?P<step>\d+) accuracy (?P<accuracy>\S+)"},
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize(
    ("behaviour", "at"), [("ends low", [100, 100]), ("low", [70, 90]), ("diverges", [50, 70])]
)
def test_what_a_loop_repeats_after_an_alarm_comes_from_no_second_process(
    tmp_path: Path, read: str, behaviour: str, at: list[int]
) -> None:
    band = Band(0.8, 0.01) if behaviour == "ends low" else BAND
    record, observer = trained(loop_that(tmp_path, behaviour, **READ[read]), band=band)
    assert [one.worker_step for one in record.guard.failed] == at
    assert record.guard.held_percent == 100
    assert observer.events == list(record.events)
    kept = [(step, step / 100) for step in range(10, 101, 10)]
    assert [(one.worker_step, one.accuracy) for one in record.evaluations] == kept
    # Whoever watches sees the steps again that are trained again.
    assert [(one.worker_step, one.accuracy) for one in observer.evaluations[-4:]] == kept[-4:]


BANDS = {
    "measured": BAND,
    "of one run": BelievedBand(0.8, 0.01, 3, BAND.curve, 0.02),
    "of one run, without a curve": BelievedBand(0.8, 0.01, error=0.02),
    "unmeasured": Band(None, 0.01),
    "without a threshold": Band(None, 0.0),
    "none": None,
}


@pytest.mark.parametrize("band", BANDS)
def test_a_loop_takes_all_that_a_plan_may_hold(tmp_path: Path, band: str) -> None:
    record, _ = trained(loop_that(tmp_path, "good"), band=BANDS[band])
    assert (record.worker_steps, record.spec.band) == (100, BANDS[band])
    assert [one.seconds for one in record.phases] == [40.0, 30.0]


def test_a_loop_that_does_not_test_after_its_last_step_has_told_its_alarms(tmp_path: Path) -> None:
    record, observer = trained(loop_that(tmp_path, "low until 90"))
    assert [one.switch_percent for one in record.guard.failed] == [40.0, 60.0]
    assert record.guard.held_percent == 100
    assert (list(record.events), len(record.events)) == (observer.events, 2)
    lost = sum(one.lost_seconds for one in record.guard.failed)
    (phase,) = record.phases
    assert (phase.protocol, phase.seconds + lost) == ("first", record.training_seconds)
    assert [one.accuracy for one in record.evaluations] == [n / 10 for n in range(1, 10)]


def test_a_loop_that_diverges_in_its_first_way_is_a_result(tmp_path: Path) -> None:
    record, _ = trained(loop_that(tmp_path, "explodes"), 60.0, retry_percents=())
    assert (record.diverged, record.worker_steps, record.guard) == (True, 50, GuardOutcome(60.0))


@pytest.mark.parametrize("make", [job_that, loop_that])
def test_whoever_watches_it_may_still_stop_it(
    tmp_path: Path, make: Callable[[Path, str], CommandJob]
) -> None:
    job = make(tmp_path, "low")
    stopping = RecordingObserver(lambda _: Verdict.STOP)
    record = CommandTrainer(job).train(trial(job, 40.0, band=BAND), stopping)
    assert (record.stopped_early, len(list(job.runs_folder.iterdir()))) == (True, 1)


GOLDEN_PLAN, GOLDEN_LOOP = (
    Path(__file__).with_name(f"golden_{name}") for name in ("plan_1.json", "loop_1.jsonl")
)


def later_fields(text: str) -> str:
    """As a later version may add them."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        parts = [line, line.get("event", {}), line.get("failed", {}), line.get("guard", {})]
        for part in [*parts, *line.get("phases", ()), *line.get("evaluations", ())]:
            part["later"] = [1]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize("change", [str, later_fields])
def test_a_loop_of_the_first_version_is_understood(
    tmp_path: Path, change: Callable[[str], str]
) -> None:
    told = change(GOLDEN_LOOP.read_text())
    record, _ = trained(says(tmp_path, GOOD, f"open(folder + '/loop.jsonl', 'w').write({told!r})"))
    assert [one.switch_percent for one in record.guard.failed] == [40.0, 60.0]
    assert (record.guard.held_percent, record.training_seconds) == (100, 130.0)
    assert [one.accuracy for one in record.evaluations] == [n / 10 for n in range(1, 11)]


def test_a_plan_of_the_first_version_is_understood(tmp_path: Path) -> None:
    switch = LoopSwitch(shutil.copy(GOLDEN_PLAN, tmp_path / "plan.json"))
    assert (switch.switch_step, switch.total_steps) == (40, 100)


def test_a_plan_and_a_loop_of_a_newer_version_say_so(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({**json.loads(GOLDEN_PLAN.read_text()), "schema_version": 2}))
    newer = "was written by a newer syncswitch: its schema version is 2; allowed: 1; update"
    with fails("newer-version", rf"^the plan {plan} {newer}"):
        LoopSwitch(plan)
    told = "open(folder + '/loop.jsonl', 'w').write('{\"schema_version\": 2}')"
    with fails("newer-version", rf"^line 1 of .*loop\.jsonl {newer}"):
        trained(says(tmp_path, GOOD, told))


@pytest.mark.parametrize("line", ["oops", "[]", '{"guard": null}', '{"event": {"kind": "x"}}'])
def test_what_no_loop_of_this_version_says_is_one_line(tmp_path: Path, line: str) -> None:
    told = f"open(folder + '/loop.jsonl', 'w').write({line!r})"
    with fails("result-invalid", r"^line 1 of .*loop\.jsonl was not written by LoopSwitch "):
        trained(says(tmp_path, GOOD, told))
