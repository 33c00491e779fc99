"""Guarded runs on a virtual clock; one is killed on its way back to its switches, and resumed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.trainer import Trainer
from tests.trainers.final import assert_bitwise_equal, train_to_end
from tests.trainers.guard_contract import STRICT, GuardContract
from tests.trainers.jobs import BRIEF
from tests.trainers.simulated.clusters import EVEN, spec_of
from tests.warm_program import run_code

LONGER = replace(BRIEF, total_worker_steps=483)


class TestGuardedRuns(GuardContract):
    is_repeatable = True

    spec_of = staticmethod(spec_of)


def test_after_an_alarm_no_straggler_makes_it_leave_the_first_protocol(
    make_trainer: Callable[..., Any],
) -> None:
    """As after a switch: online policies act before it alone."""
    slow = "straggler:worker={},at={}%,for=60s,slowdown=4"
    conditions = RunConditions(online="greedy", injections=(slow.format(1, 5), slow.format(2, 60)))
    band = Band(2.0, 0.01, 3, (BandPoint(1, 2.0, 0.0), BandPoint(483, 2.0, 0.0)))
    spec = spec_of(LONGER, 4, 30.0, profile=EVEN, band=band, conditions=conditions)
    record = make_trainer(LONGER, 4, EVEN).train(spec)
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp", "bsp"]
    kinds = [event.kind for event in record.events]
    after = kinds[kinds.index("alarmed") :]
    assert "detected" in after
    assert "switched" not in after
    seconds = sum(phase.seconds for phase in record.phases)
    assert record.guard is not None
    assert record.training_seconds == pytest.approx(seconds + record.guard.lost_seconds)


def test_asp_is_left_for_bsp_where_updates_take_longest(make_trainer: Callable[..., Any]) -> None:
    """A round is one update, and every gradient of ASP is one."""
    profile = ClusterProfile(compute_seconds=0.01, apply_seconds=0.1)
    job = replace(BRIEF, total_worker_steps=1000)
    spec = spec_of(job, 4, 6.25, profile=profile, band=Band(None, 0.01))
    record = make_trainer(job, 4, profile).train(replace(spec, leaves_slow=True))
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp", "bsp"]
    assert record.phases[1].end_worker_step - record.phases[1].start_worker_step <= 100
    assert record.events[-1].reason == (
        "BSP does the rest, as ASP is slower by now: a worker-step takes 0.1 s in ASP, 0.0275 s in"
        " BSP"
    )
    alone = make_trainer(job, 4, profile).train(spec_of(job, 4, 100.0, profile=profile))
    assert record.training_seconds < 1.3 * alone.training_seconds


PERCENTS = (20.0, 40.0, 45.0, 70.0, 100.0)

# Keeps the files as they are before some of the calls that rename or remove one after the first
# alarm, and dies before another one.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from syncswitch.trainers.simulated import trainer
from tests.trainers.jobs import RecordingObserver
from tests.trainers.simulated.clusters import VARIED
from tests.trainers.simulated.test_guarded_runs import BRIEF, guarded

trainer._MOST_AT_ONCE = 1
folder = Path(sys.argv[1])
seen = []

class Watching(RecordingObserver):
    def on_event(self, event):
        if event.kind == "alarmed" and not seen:
            sys.addaudithook(count)

def count(event, arguments):
    if event in ("os.rename", "os.remove") and ".npz" in str(arguments[0]):
        if len(seen) in (0, 3, 11, 13):
            shutil.copytree(folder, folder.with_name(f"after-{len(seen)}"))
        if len(seen) == 16:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(event)

trainer.SimulatedTrainer(BRIEF, 4, VARIED).train(guarded(folder), Watching())
"""


def guarded(folder: Path, **fields: Any) -> TrialSpec:
    return spec_of(
        BRIEF,
        4,
        30.0,
        band=STRICT,
        retry_percents=(60.0,),
        checkpoint_percents=PERCENTS,
        checkpoint_directory=folder,
        **fields,
    )


def percents_of(folder: Path) -> list[float]:
    return sorted(float(path.stem.split("-at-")[1]) for path in folder.glob("s*.npz"))


def test_killed_at_any_moment_it_goes_on_in_the_first_protocol(
    make_trainer: Callable[..., Any], tmp_path: Path
) -> None:
    done = run_code(KILLED, tmp_path / "after-16", folder=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL, done.stderr
    trainer = make_trainer(BRIEF, 4)
    alone = replace(guarded(tmp_path / "alone"), switch_percent=100.0, band=None, retry_percents=())
    expected = train_to_end(trainer, alone, tmp_path)
    # The checkpoint of the switch, as it was.
    assert_goes_on(trainer, expected, tmp_path / "after-0", [20.0, 30.0, 40.0, 45.0], 0)
    # It knows of the alarm, and one of the failed part is still there.
    assert_goes_on(trainer, expected, tmp_path / "after-3", [20.0, 30.0, 45.0], 1)
    # In the middle of the second try; then as above.
    second_try = [20.0, 30.0, 40.0, 45.0, 60.0, 70.0]
    assert_goes_on(trainer, expected, tmp_path / "after-11", second_try, 1)
    assert_goes_on(trainer, expected, tmp_path / "after-13", second_try, 2)
    # The first protocol has written one.
    assert_goes_on(trainer, expected, tmp_path / "after-16", second_try, 2)


def assert_goes_on(
    trainer: Trainer,
    expected: tuple[TrialRecord, ModelState],
    folder: Path,
    left: list[float],
    known_alarms: int,
) -> None:
    assert percents_of(folder) == left
    record, state = train_to_end(trainer, guarded(folder, resume=True), folder)
    alone, end = expected
    assert_bitwise_equal(state, end)
    assert [(one.worker_step, one.accuracy) for one in record.evaluations] == [
        (one.worker_step, one.accuracy) for one in alone.evaluations
    ]
    assert record.guard is not None
    assert [one.switch_percent for one in record.guard.failed] == [30.0, 60.0]
    assert record.guard.held_percent == 100.0
    assert record.phases[0].end_worker_step == BRIEF.total_worker_steps
    kinds = [event.kind for event in record.events]
    assert kinds.count("alarmed") == 2
    assert kinds[: kinds.index("resumed")].count("alarmed") == known_alarms
    assert percents_of(folder) == [20.0, 30.0, 40.0, 45.0, 60.0, 70.0, 100.0]
    seconds = [one.elapsed_seconds for one in record.evaluations]
    assert seconds == sorted(seconds)
    assert record.training_seconds > record.phases[0].seconds
