"""What is left of the logs of a cluster's processes."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.trainer import Verdict
from tests.trainers import jobs
from tests.trainers.jobs import BRIEF, RecordingObserver, spec_of

REFERENCE = f"{jobs.__name__}:BRIEF"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


class _KillTheChief(RecordingObserver):
    def __init__(self, trainer: ProcessTrainer) -> None:
        super().__init__()
        self._trainer = trainer

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        assert self._trainer._process_id is not None
        os.kill(self._trainer._process_id, signal.SIGKILL)
        return super().on_evaluation(evaluation)


@pytest.mark.slow
def test_logs_of_a_cluster_that_died_are_kept_and_named_and_others_are_not(folder: Path) -> None:
    trainer = ProcessTrainer(REFERENCE, 1)
    with pytest.raises(RetryableError, match="died of SIGKILL") as error:
        trainer.train(spec_of(BRIEF, 1, 50.0), _KillTheChief(trainer))
    (kept,) = folder.iterdir()
    assert str(error.value).endswith(f"; its logs are in {kept}")
    assert (kept / "chief.log").is_file()
    record = trainer.train(spec_of(BRIEF, 1, 50.0))
    assert record.worker_steps == BRIEF.total_worker_steps
    trainer.close()
    assert list(folder.iterdir()) == [kept]


@pytest.mark.slow
def test_nothing_is_left_of_a_cluster_that_was_refused(folder: Path) -> None:
    with pytest.raises(UserError):
        ProcessTrainer(f"{jobs.__name__}:NOTHING", 1)
    assert list(folder.iterdir()) == []
