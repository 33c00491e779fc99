"""Data in files trains like the same data in memory, even with failures; nested data as well."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief import run
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.members.connected import ConnectedCluster
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.job.data import AnyData, StreamedData
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.job.pipelines import PipelinePieces
from syncswitch.trainers.job.sources import NumpyFiles
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.simulated.profile import load_profile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity
from tests.trainers import jobs
from tests.trainers.cluster.launchers import connected_trainer, new_launcher
from tests.trainers.final import assert_bitwise_equal, final_state, train_to_end
from tests.trainers.jobs import linear_model, pace, spec_of
from tests.trainers.simulated.kinds import workload as workload_of
from tests.trainers.streams import FLAT, streamed

WORKERS = 3
SHORT = replace(FLAT, total_worker_steps=60, evaluation_interval_worker_steps=20)

Trained = tuple[TrialRecord, ModelState]


def trained(workload: Workload, folder: Path) -> Trained:
    with ClusterTrainer(workload, WORKERS) as trainer:
        return train_to_end(trainer, spec_of(SHORT, WORKERS, 100), folder)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(SHORT, tmp_path_factory.mktemp("arrays"))


@pytest.mark.parametrize("kind", ["numpy", "tfrecord", "pipeline"])
def test_whatever_they_are_read_from_the_run_is_the_same(
    kind: str, expected: Trained, tmp_path: Path
) -> None:
    data = streamed(kind, tmp_path)
    record, state = trained(replace(SHORT, data=lambda: data), tmp_path / "run")
    assert_bitwise_equal(state, expected[1])
    found, wanted = ([one.accuracy for one in each.evaluations] for each in (record, expected[0]))
    assert found == wanted


def test_the_simulator_reads_them_as_well(tmp_path: Path) -> None:
    profile = load_profile("uniform")
    states = []
    data = streamed("numpy", tmp_path)
    for workload in (SHORT, replace(SHORT, data=lambda: data)):
        identity = simulated_identity(workload, WORKERS, ("bsp", "asp"), profile)
        spec = replace(spec_of(SHORT, WORKERS, 50), identity=identity)
        with SimulatedTrainer(workload, WORKERS, profile) as trainer:
            states.append(final_state(trainer, spec, tmp_path / str(len(states))))
    assert_bitwise_equal(*states)


# Each example moves a parameter of its own by the same, whenever it comes.
EXAMPLES = 48
EPOCHS = 6


def counting_data() -> AnyData:
    def piece(number: Any) -> Any:
        import tensorflow as tf

        numbers = tf.data.Dataset.range(number * 12, number * 12 + 12)
        return numbers.map(lambda one: (tf.one_hot(one, EXAMPLES), tf.zeros([1])))

    source = PipelinePieces(EXAMPLES // 12, piece, sizes=12, blocks_in_window=2)
    return StreamedData(source, source)


COUNTING = replace(
    jobs.COUNTING,
    model=partial(linear_model, EXAMPLES),
    data=counting_data,
    total_worker_steps=EPOCHS * EXAMPLES // 4,
)

OWN_SOURCE = """
    from dataclasses import replace
    import numpy as np
    from syncswitch import Source, StreamedData
    from tests.trainers.cluster.chief.test_streamed_data import COUNTING

    class Rows(Source):
        examples = 48

        def read(self, numbers):
            return np.eye(48, dtype=np.float32)[numbers], np.zeros((len(numbers), 1), np.float32)

    workload = replace(COUNTING, data=lambda: StreamedData(Rows(), Rows()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipeline", "own"])
def test_a_killed_worker_costs_no_example_and_doubles_none(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is injected comes before the end, though the chief has to wait for a core.
    monkeypatch.setattr(run, "_PROGRESS_SECONDS", 0.01)
    file = tmp_path / "own.py"
    file.write_text(textwrap.dedent(OWN_SOURCE))
    reference = f"{file}:workload"
    workload = load_workload(reference) if kind == "own" else COUNTING
    launcher = new_launcher(tmp_path, 2, reference=reference)
    injections = ("kill:worker=1,at=30%", "kill:ps,at=60%", *pace(2))
    with connected_trainer(workload, 2, launcher) as trainer:
        spec = spec_of(COUNTING, 2, 50.0, conditions=RunConditions(injections=injections))
        record, state = train_to_end(trainer, spec, tmp_path / "run")
    assert {"lost", "rebuilt"} <= {event.kind for event in record.events}
    step = 2.0**-10 / COUNTING.batch_size
    np.testing.assert_array_equal(state.parameters, np.full(EXAMPLES, 1 - EPOCHS * step))


@pytest.mark.slow
def test_what_a_worker_cannot_read_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "train.npy"
    np.save(path, np.ones((64, EXAMPLES + 1), np.float32))

    def parse(rows: Any) -> Any:
        return rows[:, :-1], rows[:, -1:]

    source = NumpyFiles(path)
    workload = replace(COUNTING, data=lambda: StreamedData(source, source, parse))

    def new_cluster(program: Program, workers: int) -> ConnectedCluster:
        return ConnectedCluster(program, workers, new_launcher(tmp_path, 1))

    def without_file(program: Program, workers: int) -> ConnectedCluster:
        path.rename(tmp_path / "elsewhere")
        return new_cluster(program, workers)

    with pytest.raises(WorkloadError, match=f"^data: {path} cannot be read here .* each machine"):
        ClusterTrainer(workload, 1, without_file)
    (tmp_path / "elsewhere").rename(path)
    with ClusterTrainer(workload, 1, new_cluster) as trainer:
        np.save(path, np.ones((63, EXAMPLES + 1), np.float32))
        with pytest.raises(WorkloadError, match=r"a worker-step fails: data: .*npy has changed"):
            trainer.train(spec_of(COUNTING, 1, 50.0))


@pytest.mark.parametrize("kind", ["structured", "weighted", "ragged text", "bag of words"])
def test_examples_of_each_structure_train_alike_in_processes(kind: str, tmp_path: Path) -> None:
    job, launcher = workload_of(kind), new_launcher(tmp_path, 2)
    spec = TrialSpec(workload_identity(job, 2, "bsp", "asp"), 100.0, 1)
    with ClusterTrainer(job, 2) as trainer:
        record, state = train_to_end(trainer, spec, tmp_path / "threads")
        trainer._cluster = ConnectedCluster(trainer._program, 2, launcher)
        other, same = train_to_end(trainer, spec, tmp_path / "processes")
    assert_bitwise_equal(state, same)
    found, wanted = ([one.accuracy for one in each.evaluations] for each in (other, record))
    assert found == wanted
