"""The papers' workloads as a whole."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.job.schedule import decay_factor
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.checkpoint import read_checkpoint
from syncswitch.trainers.workloads.resnets import basic_network, bottleneck_network
from syncswitch.trainers.workloads.resnets import resnet32_cifar10 as resnet32
from syncswitch.trainers.workloads.resnets import resnet50_cifar100 as resnet50
from tests.trainers.jobs import RecordingObserver, spec_of

BOTH = pytest.mark.parametrize("workload", [resnet32, resnet50], ids=lambda job: job.name)


@BOTH
class TestBoth:
    def test_have_the_schedule_of_the_paper(self, workload: Any) -> None:
        """Its length, and a test as often as in the authors' logs."""
        half = {"resnet32-cifar10": 32_000, "resnet50-cifar100": 64_000}[workload.name]
        assert (workload.total_worker_steps, workload.batch_size) == (2 * half, 128)
        assert workload.evaluation_interval_worker_steps == half // 16
        assert (workload.learning_rate, workload.momentum) == (0.1, 0.9)
        factors = [
            decay_factor(workload.learning_rate_boundaries, step)
            for decay in (half, half * 3 // 2)
            for step in (decay - 1, decay)
        ]
        assert factors == [1.0, 0.1, 0.1, 0.01]

    def test_leave_room_for_the_converged_accuracy_after_the_last_decay(
        self, workload: Any
    ) -> None:
        last = workload.learning_rate_boundaries[-1][0]
        rest = workload.total_worker_steps - last
        assert rest // workload.evaluation_interval_worker_steps >= 5

    def test_that_cannot_be_downloaded_say_so_in_one_line(
        self, keras: Any, workload: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load_data() -> None:
            raise OSError("URL fetch failure on https://www.cs.toronto.edu")

        for module in (keras.datasets.cifar10, keras.datasets.cifar100):
            monkeypatch.setattr(module, "load_data", load_data)
        with pytest.raises(WorkloadError, match="URL fetch failure on") as error:
            workload.load_data()
        assert "\n" not in str(error.value)

    @pytest.mark.usefixtures("small_cifar")
    def test_labels_fit_the_outputs(self, request: pytest.FixtureRequest, workload: Any) -> None:
        network = "resnet_32" if workload is resnet32 else "resnet_50"
        data = workload.data()
        classes = request.getfixturevalue(network).output.shape[-1]
        assert max(data.train_labels.max(), data.test_labels.max()) == classes - 1


def identity_of(workload: Workload, model: Callable[[], Any]) -> WorkloadIdentity:
    return workload_identity(replace(workload, model=model), 8, "bsp", "asp")


def test_are_different_jobs(resnet_32: Any, resnet_50: Any) -> None:
    one, other = identity_of(resnet32, lambda: resnet_32), identity_of(resnet50, lambda: resnet_50)
    for field in ("name", "model", "data_set", "fingerprint"):
        assert getattr(one, field) != getattr(other, field)


@pytest.mark.parametrize(
    "model", [partial(basic_network, 1, 10), partial(bottleneck_network, (1, 1), 10)]
)
def test_describe_themselves_the_same_every_time(keras: Any, model: Callable[[], Any]) -> None:
    """Though the names of layers count up in a process."""
    assert identity_of(resnet32, model) == identity_of(resnet32, model)


def test_describing_them_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from syncswitch.trainers.job.loading import load_workload\n"
        "load_workload('resnet32-cifar10'), load_workload('resnet50-cifar100')\n"
        "heavy = {'tensorflow', 'keras', 'optuna', 'sqlalchemy'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.usefixtures("small_cifar")
def test_trains_on_the_cluster(make_trainer: Any, tmp_path: Path) -> None:
    """Both protocols, real gradients: it learns, and its statistics move.

    With one block in a stage: five take five times as long to trace.
    """
    workload = replace(
        load_workload("resnet32-cifar10"),
        model=partial(basic_network, 1, 10),
        total_worker_steps=16,
        batch_size=8,
        learning_rate=0.003,
        learning_rate_boundaries=(),
        evaluation_interval_worker_steps=8,
    )
    observer = RecordingObserver()
    spec = spec_of(workload, 2, 50.0, checkpoint_percents=(100.0,), checkpoint_directory=tmp_path)
    record = make_trainer(workload, 2).train(spec, observer)
    assert record.worker_steps == 16
    assert not record.diverged
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
    losses = [evaluation.training_loss for evaluation in observer.evaluations]
    assert all(math.isfinite(loss) for loss in losses)
    # Of 16 small batches it learns little; on which ones it is good differs in the last bits.
    assert losses[-1] < losses[0] + 0.1
    statistics = read_checkpoint(record.checkpoints[100.0]).statistics
    assert len(statistics) == 2 * 7
    for name, values in statistics.items():
        assert np.isfinite(values).all(), name
        assert not np.isin(values, (0.0, 1.0)).any(), f"{name} has values as it was built with"
