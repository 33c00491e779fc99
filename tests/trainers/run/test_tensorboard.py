"""Logs for TensorBoard, read back with its own reader."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import (
    Evaluation,
    PhaseRecord,
    RunEvent,
    TrialRecord,
    TrialSpec,
)
from syncswitch.trainers.run.tensorboard import (
    TensorBoardTrainer,
    check_tensorboard,
    logged,
    run_folder_name,
)
from syncswitch.trainers.trainer import Observer, Trainer, Verdict
from tests.failing import fails
from tests.identities import GENERATED
from tests.records import changed

IDENTITY = changed(
    GENERATED,
    name="scripted",
    total_worker_steps=400,
    learning_rate_boundaries=(),
    evaluation_interval_worker_steps=100,
)
SPEC = TrialSpec(IDENTITY, 12.5, seed=2_147_483_646, replicate=1)
PHASES = (PhaseRecord("bsp", 0, 50, 1.0, 0.0, 0), PhaseRecord("asp", 50, 400, 3.5, 1.5, 4))


def measured(step: int, accuracy: float = 0.5, loss: float = 1.0) -> Evaluation:
    return Evaluation(step, step / 100, accuracy, loss)


class ScriptedTrainer(Trainer):
    """Tells its observer what a test wrote down, and then ends or fails."""

    def __init__(self, *told: Evaluation | RunEvent, error: BaseException | None = None) -> None:
        self._told = told
        self._error = error
        self.verdicts: list[Verdict] = []
        self.is_closed = False

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        observer = observer or Observer()
        for one in self._told:
            if isinstance(one, RunEvent):
                observer.on_event(one)
            else:
                observer.on_progress(one.worker_step)
                self.verdicts.append(observer.on_evaluation(one))
        if self._error is not None:
            raise self._error
        now = datetime.now(timezone.utc)
        evaluations = tuple(one for one in self._told if isinstance(one, Evaluation))
        return TrialRecord(
            spec, 400, evaluations, PHASES, 0.9, True, False, False, 4.5, 0.0, 0.01, now, now, "h"
        )

    def close(self) -> None:
        self.is_closed = True


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def read_again(folder: Path, spec: TrialSpec, *told: Evaluation | RunEvent) -> Any:
    """What there is of a run, after these observations of it."""
    TensorBoardTrainer(ScriptedTrainer(*told), folder).train(spec)
    return read(folder / run_folder_name(SPEC))


def scalars(found: Any, name: str) -> list[tuple[int, float]]:
    return [(one.step, pytest.approx(one.value)) for one in found.Scalars(name)]


def texts(found: Any, name: str) -> list[tuple[int, str]]:
    return [(one.step, one.tensor_proto.string_val[0].decode()) for one in found.Tensors(name)]


def hyper_parameters(found: Any) -> dict[str, Any]:
    from tensorboard.plugins.hparams import metadata

    content = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    values = metadata.parse_session_start_info_plugin_data(content).hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


def test_a_run_is_written_as_it_goes(tmp_path: Path) -> None:
    events = (
        RunEvent("switched", 50, 1.0, "from bsp to asp: so it is", seconds=0.01),
        RunEvent("lost", 120, 1.5, "no answer", worker=2),
        RunEvent("lost", 120, 1.5, "the parameter server"),
        RunEvent("returned", 150, 2.0, "is back", worker=2, seconds=0.5),
    )
    told = (events[0], measured(100), *events[1:], measured(200, 0.7, float("nan")))
    trainer = ScriptedTrainer(*told)
    with logged(trainer, tmp_path, "search") as wrapped:
        record = wrapped.train(replace(SPEC, conditions=RunConditions(online="elastic")))
    assert record.converged_accuracy == 0.9
    assert trainer.is_closed
    assert logged(trainer, None, "search") is trainer
    assert trainer.verdicts == [Verdict.CONTINUE] * 2
    (folder,) = (tmp_path / "search").iterdir()
    assert folder.name == run_folder_name(SPEC) == "switch-12.5-run-2"
    found = read(folder)
    assert scalars(found, "accuracy/test") == [(100, 0.5), (200, 0.7)]
    assert scalars(found, "loss/training") == [(100, 1.0)]
    assert scalars(found, "time/training_seconds") == [(100, 1.0), (200, 2.0)]
    assert scalars(found, "throughput/worker_steps_per_second") == [(100, 100), (200, 100)]
    assert scalars(found, "phase bsp/worker_steps_per_second") == [(50, 50)]
    assert scalars(found, "phase asp/worker_steps_per_second") == [(400, 100)]
    assert scalars(found, "phase asp/mean_staleness") == [(400, 1.5)]
    assert scalars(found, "result/converged_accuracy") == [(400, 0.9)]
    switched = "switched at worker-step 50: from bsp to asp: so it is"
    assert texts(found, "events/switched") == [(50, switched)]
    assert texts(found, "events/lost (worker 2)") == [(120, "lost at worker-step 120: no answer")]
    assert len(texts(found, "events/lost")) == 1
    started, ended = record.started_at.timestamp() - 60, record.ended_at.timestamp() + 60
    assert all(started < one.wall_time < ended for one in found.Scalars("accuracy/test"))
    parameters = hyper_parameters(found)
    assert (parameters["switch_percent"], parameters["online"]) == (12.5, "elastic")
    # As a text: TensorBoard would round so large a number.
    assert parameters["seed"] == "2147483646"
    assert (parameters["first_protocol"], parameters["second_protocol"]) == ("bsp", "asp")


def test_a_resumed_run_goes_on_with_its_curve(tmp_path: Path) -> None:
    before = (measured(100, 0.1), measured(200, 0.2), measured(300, 0.3))
    lost = ScriptedTrainer(*before, error=RetryableError("lost"))
    with pytest.raises(RetryableError):
        TensorBoardTrainer(lost, tmp_path).train(SPEC)
    resumed = RunEvent("resumed", 200, 2.0, "from a checkpoint")
    after = (resumed, measured(300, 0.5), measured(400, 0.6))
    found = read_again(tmp_path, replace(SPEC, resume=True), *after)
    assert len(list((tmp_path / run_folder_name(SPEC)).iterdir())) == 2
    expected = [(100, 0.1), (200, 0.2), (300, 0.5), (400, 0.6)]
    assert scalars(found, "accuracy/test") == expected
    assert scalars(found, "throughput/worker_steps_per_second")[-2:] == [(300, 100), (400, 100)]
    # Made again, it begins its curve again.
    assert scalars(read_again(tmp_path, SPEC, measured(100, 0.6)), "accuracy/test") == [(100, 0.6)]


def test_where_there_was_nothing_to_resume_it_begins(tmp_path: Path) -> None:
    found = read_again(tmp_path, replace(SPEC, resume=True), measured(100), measured(200))
    assert scalars(found, "accuracy/test") == [(100, 0.5), (200, 0.5)]
    assert hyper_parameters(found)["switch_percent"] == 12.5


def test_the_throughput_of_a_fork_is_its_own(tmp_path: Path) -> None:
    # It inherited 50 worker-steps that took 0.1 s.
    own = (Evaluation(100, 0.6, 0.5, 1.0), Evaluation(200, 1.6, 0.5, 1.0))
    found = read_again(tmp_path, replace(SPEC, fork_from=Path("checkpoint")), *own)
    assert scalars(found, "throughput/worker_steps_per_second") == [(200, 100)]


def test_a_part_that_failed_is_replaced_by_what_follows(tmp_path: Path) -> None:
    told = (
        measured(100),
        measured(150),
        RunEvent("switched", 150, 1.5, "the switch", seconds=0.0),
        measured(200, 0.1),
        measured(300, 0.1),
        RunEvent("alarmed", 300, 4.0, "it fails; bsp goes on", seconds=2.5),
        Evaluation(200, 4.5, 0.7, 1.0),
        RunEvent("switched", 250, 5.0, "the next switch", seconds=0.0),
        Evaluation(300, 5.5, 0.2, 1.0),
        RunEvent("alarmed", 350, 6.0, "it fails; bsp goes on", seconds=1.0),
        Evaluation(300, 7.0, 0.8, 1.0),
    )
    found = read_again(tmp_path, SPEC, *told)
    assert scalars(found, "accuracy/test") == [(100, 0.5), (150, 0.5), (200, 0.7), (300, 0.8)]
    assert scalars(found, "throughput/worker_steps_per_second") == [
        (100, 100),
        (150, 100),
        (200, 100),
        (300, 50),
    ]
    assert texts(found, "events/alarmed") == [
        (150, "alarmed at worker-step 300: it fails; bsp goes on"),
        (250, "alarmed at worker-step 350: it fails; bsp goes on"),
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.run.tensorboard import BoardLog
from syncswitch.trainers.trainer import Observer
from tests.trainers.run.test_tensorboard import SPEC
log = BoardLog(Path(sys.argv[1]), SPEC, Observer(), print)
log.open()
for step in range(1, 101):
    log.on_evaluation(Evaluation(step, step / 100, step / 100, 1.0))
heavy = {"tensorflow", "keras", "torch"} & set(sys.modules)
print(heavy, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_all_that_it_wrote_and_needs_no_tensorflow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout == "set()\n"
    assert len(scalars(read(tmp_path), "accuracy/test")) == 100


def test_a_log_that_cannot_be_written_costs_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / run_folder_name(SPEC)).write_text("a file where the folder should be")
    record = TensorBoardTrainer(ScriptedTrainer(measured(100)), tmp_path).train(SPEC)
    assert record.worker_steps == 400
    (line,) = caplog.messages
    assert "and the run continues without it: FileExistsError" in line


def test_what_cannot_work_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_tensorboard(tmp_path / "new" / "folder")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with fails("file-unusable", "it cannot be made"):
        check_tensorboard(tmp_path / "file" / "folder")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with fails("package-missing"):
        check_tensorboard(tmp_path)
