"""A run that is killed while it goes back to its switch, and resumed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.records.trial import TrialSpec
from tests.trainers.final import assert_bitwise_equal, train_to_end
from tests.trainers.guard_contract import STRICT
from tests.trainers.jobs import BRIEF
from tests.trainers.simulated.clusters import spec_of
from tests.warm_program import run_code

PERCENTS = (20.0, 40.0, 45.0, 70.0, 100.0)

# Before one of the calls by which files are renamed or removed after the alarm.
KILLED = """
import os, signal, sys
from pathlib import Path
from syncswitch.trainers.simulated import trainer
from tests.trainers.jobs import RecordingObserver
from tests.trainers.simulated.clusters import VARIED
from tests.trainers.simulated.test_killed_guarded_runs import BRIEF, guarded

trainer._MOST_AT_ONCE = 1
left = [int(sys.argv[1])]

class Watching(RecordingObserver):
    def on_event(self, event):
        if event.kind == "alarmed":
            sys.addaudithook(count)

def count(event, arguments):
    if event in ("os.rename", "os.remove") and ".npz" in str(arguments[0]):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

trainer.SimulatedTrainer(BRIEF, 4, VARIED).train(guarded(Path(sys.argv[2])), Watching())
"""


def guarded(folder: Path, **fields: Any) -> TrialSpec:
    return spec_of(
        BRIEF,
        4,
        30.0,
        band=STRICT,
        checkpoint_percents=PERCENTS,
        checkpoint_directory=folder,
        **fields,
    )


def percents_of(folder: Path) -> list[float]:
    return sorted(float(path.stem.split("-at-")[1]) for path in folder.glob("s*.npz"))


@pytest.mark.parametrize(
    ("calls", "left", "is_known"),
    [
        # The checkpoint of the switch, as it was.
        (0, [20.0, 30.0, 40.0, 45.0], False),
        # It knows of the alarm, and one of the failed part is still there.
        (3, [20.0, 30.0, 45.0], True),
        # The first protocol has written one.
        (6, [20.0, 30.0, 40.0], True),
    ],
)
def test_killed_at_any_moment_it_goes_on_in_the_first_protocol(
    make_trainer: Callable[..., Any],
    tmp_path: Path,
    calls: int,
    left: list[float],
    is_known: bool,
) -> None:
    folder = tmp_path / "killed"
    done = run_code(KILLED, calls, folder, folder=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert percents_of(folder) == left
    trainer = make_trainer(BRIEF, 4)
    record, state = train_to_end(trainer, guarded(folder, resume=True), tmp_path)
    alone = replace(guarded(tmp_path / "alone"), switch_percent=100.0, band=None)
    expected, end = train_to_end(trainer, alone, tmp_path)
    assert_bitwise_equal(state, end)
    assert [(one.worker_step, one.accuracy) for one in record.evaluations] == [
        (one.worker_step, one.accuracy) for one in expected.evaluations
    ]
    assert record.guard is not None
    assert record.guard.alarm is not None
    assert record.phases[0].end_worker_step == BRIEF.total_worker_steps
    kinds = [event.kind for event in record.events]
    assert kinds.count("alarmed") == 1
    assert (kinds.index("resumed") > kinds.index("alarmed")) is is_known
    assert percents_of(folder) == [20.0, 30.0, 40.0, 45.0, 70.0, 100.0]
    seconds = [one.elapsed_seconds for one in record.evaluations]
    assert seconds == sorted(seconds)
    assert record.training_seconds > record.phases[0].seconds
