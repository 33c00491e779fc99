"""Data in files train as the same data in memory do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syncswitch.storage.records.trial import TrialRecord
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.checkpoint import read_checkpoint
from tests.trainers.jobs import spec_of
from tests.trainers.streams import FLAT, KINDS, streamed

WORKERS = 3
SHORT = replace(FLAT, total_worker_steps=60, evaluation_interval_worker_steps=20)


def trained(workload: Workload, folder: Path, **fields: object) -> tuple[TrialRecord, np.ndarray]:
    """What was measured, and the parameters in the end."""
    folder.mkdir(exist_ok=True)
    spec = spec_of(
        workload, WORKERS, 100, checkpoint_percents=(100.0,), checkpoint_directory=folder, **fields
    )
    with ClusterTrainer(workload, WORKERS) as trainer:
        record = trainer.train(spec)
    parameters = read_checkpoint(record.checkpoints[100.0]).parameters
    return record, np.concatenate([np.ravel(one) for one in parameters.values()])


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialRecord, np.ndarray]:
    return trained(SHORT, tmp_path_factory.mktemp("arrays"))


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_they_are_read_from_the_run_is_the_same(
    kind: str, expected: tuple[TrialRecord, np.ndarray], tmp_path: Path
) -> None:
    data = streamed(kind, tmp_path)
    record, parameters = trained(replace(SHORT, data=lambda: data), tmp_path / "run")
    np.testing.assert_array_equal(parameters, expected[1])
    found, wanted = ([one.accuracy for one in each.evaluations] for each in (record, expected[0]))
    assert found == wanted
