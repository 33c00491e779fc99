"""A real Ray cluster of two nodes, one of which is lost at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from syncswitch.cli.run.main import main as train
from syncswitch.cli.search.main import main as search
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Verdict
from tests.trainers.cluster.processes.ray_cluster import InsideLauncher, LocalCluster
from tests.trainers.final import train_to_end
from tests.trainers.jobs import BRIEF, COUNTING, RecordingObserver, counted, spec_of
from tests.trainers.trainer_contract import MakeTrainer, TrainerContract

pytest.importorskip("ray", reason="the extra syncswitch[ray] brings it")
# Nodes and parts import TensorFlow one after the other; on a busy machine that takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTS = {"ps 0", "worker 0", "worker 1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # The parameter server has room on the head alone, which cannot be lost.
    cluster = LocalCluster(4, 1)
    yield cluster
    cluster.close()


def started(cluster: LocalCluster, **options: Any) -> ProcessTrainer:
    """A trainer whose chief is in the network of the cluster."""
    launcher = InsideLauncher(cluster.address, process_id=cluster.process_id, **options)
    return ProcessTrainer(f"{__name__}:COUNTING", 2, launcher)


@pytest.fixture(scope="module")
def trainer(cluster: LocalCluster) -> Iterator[ProcessTrainer]:
    with started(cluster, cpus_per_ps=1.5, gpus_per_worker=0.5) as trainer:
        yield trainer


@pytest.fixture(scope="module")
def make_trainer(trainer: ProcessTrainer) -> MakeTrainer:
    def make(workload: Workload, workers: int) -> ProcessTrainer:
        assert (workload, workers) == (COUNTING, 2)
        return trainer

    return make


# Its chief is that of all clusters of processes, which keep to the whole contract.
KEPT = {"test_the_record_says_what_when_and_with_what", "test_a_trial_of_another_job_is_refused"}


class TestRayTrainer(TrainerContract, only=KEPT):
    workload = COUNTING
    workers = 2


def test_a_part_that_hangs_is_replaced_and_each_gradient_applied_once(
    trainer: ProcessTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conditions = RunConditions(injections=("hang:ps=0,at=45%",))
    record = trained(trainer, tmp_path, conditions=conditions)
    kinds = [event.kind for event in record.events]
    assert [kinds.count(kind) for kind in ("injected", "rebuilt", "resumed")] == [1, 1, 0]
    assert caplog.messages[-1] == (
        "ps 0 of the Ray cluster: on 127.0.0.1 died of SIGKILL; its last output: nothing"
    )


def trained(
    trainer: ProcessTrainer, folder: Path, observer: RecordingObserver | None = None, **fields: Any
) -> TrialRecord:
    """Makes a run in which each gradient has to be applied once."""
    spec = spec_of(*(COUNTING, 2, 50.0), checkpoint_percents=tuple(range(20, 101, 20)), **fields)
    record, state = train_to_end(trainer, spec, folder, observer)
    np.testing.assert_array_equal(state.parameters, counted())
    return record


def test_workers_see_the_gpus_that_ray_gives_them(
    cluster: LocalCluster, trainer: ProcessTrainer
) -> None:
    threads = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    names = ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH", *threads)
    found = {
        part: tuple(process.environ().get(name) for name in names)
        for part, process in cluster.parts().items()
    }
    assert found["ps 0"] == ("-1", None, "1", "1")
    for worker in ("worker 0", "worker 1"):
        assert found[worker] in {("0", "true", "1", "1"), ("1", "true", "1", "1")}


def listening_at(process: psutil.Process) -> set[str]:
    """Returns the addresses, as in /proc, at which a process in another network listens."""
    descriptors = os.scandir(f"/proc/{process.pid}/fd")
    own = {os.readlink(each.path) for each in descriptors}
    tables = [Path(f"/proc/{process.pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    is_listening = "0A"
    return {
        row[1].partition(":")[0]
        for row in rows
        if row[3] == is_listening and f"socket:[{row[9]}]" in own
    }


def test_parts_listen_at_the_address_of_their_node_alone(
    cluster: LocalCluster, trainer: ProcessTrainer
) -> None:
    loopback = "0100007F"
    found = {part: listening_at(process) for part, process in cluster.parts().items()}
    assert found == {part: {loopback} for part in PARTS}


def test_a_cluster_that_is_too_small_is_refused(cluster: LocalCluster) -> None:
    words = "2 workers with 3 CPUs each: it has .*1 node with 4 CPUs and 2 GPUs"
    with pytest.raises(UserError, match=words):
        started(cluster, cpus_per_worker=3)


@pytest.mark.parametrize(("program", "command"), [(search, ["run"]), (train, [])])
def test_a_cluster_where_nobody_listens_is_refused(
    tmp_path: Path, program: click.Command, command: list[str]
) -> None:
    place = ("--trainer", "ray", "--ray-address", "127.0.0.1:9", "--workers", "2")
    words = f"{__name__}:COUNTING", *place, "--storage", f"sqlite:///{tmp_path}/new.db"
    done = CliRunner().invoke(program, [*command, *words])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith(
        "error: --ray-address is '127.0.0.1:9': nobody listens there;"
    )


def test_a_worker_whose_node_is_lost_comes_back_on_another_one(
    cluster: LocalCluster, trainer: ProcessTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = cluster.parts()
    (lost,) = (number for number in range(2) if not is_on_the_head(parts[f"worker {number}"]))

    def lose_a_node(evaluation: Evaluation) -> Verdict:
        if len(observer.evaluations) == 1:
            assert cluster.kill_node_of(parts[f"worker {lost}"])
        return Verdict.CONTINUE

    observer = RecordingObserver(lose_a_node)
    # The other one alone would take minutes: it has to be back for the end.
    slow = RunConditions(injections=(f"straggler:worker={1 - lost},at=20%,for=100%,delay=1s",))
    record = trained(trainer, tmp_path, observer, conditions=slow)
    kinds = [event.kind for event in record.events]
    assert (kinds.count("lost"), kinds.count("returned")) == (1, 1)
    now = cluster.parts()
    assert {name for name in PARTS if now[name] != parts[name]} == {f"worker {lost}"}
    assert is_on_the_head(now[f"worker {lost}"])
    assert caplog.messages[-1] == (
        f"worker {lost} of the Ray cluster: The actor died because its node has died"
    )


def is_on_the_head(part: psutil.Process) -> bool:
    return any("--head" in process.cmdline() for process in part.parents())


def test_closed_it_leaves_no_part_behind(cluster: LocalCluster, trainer: ProcessTrainer) -> None:
    parts = cluster.parts()
    assert set(parts) == PARTS
    # Its chief is killed.
    trainer.close()
    _, alive = psutil.wait_procs(list(parts.values()), timeout=15)
    assert not alive


LOOKING = replace(BRIEF, total_worker_steps=1000, evaluation_interval_worker_steps=200)


def test_a_first_training_looks_and_stays_with_what_waits_for_no_slow_worker(
    cluster: LocalCluster,
) -> None:
    slow = RunConditions(injections=("straggler:worker=1,at=0%,for=100%,delay=50ms",))
    spec = spec_of(LOOKING, 2, 6.25, band=Band(None, 0.01), conditions=slow)
    local = spec_of(LOOKING, 2, 6.25, protocols=("bsp", "local-sgd:4:semi-sync"))
    pairs = spec.identity.protocols, local.identity.protocols
    launcher = InsideLauncher(cluster.address, process_id=cluster.process_id)
    with ProcessTrainer(f"{__name__}:LOOKING", 2, launcher) as trainer:
        record = trainer.train(replace(spec, candidates=pairs, fallbacks=pairs, leaves_slow=True))
    assert record.worker_steps == LOOKING.total_worker_steps
    assert record.spec.identity.protocols in pairs
    chosen = next(one.reason for one in record.events if one.kind == "chosen")
    assert " does the rest, " in chosen
    assert "; in a round of BSP a worker computes for " in chosen
    assert record.step_seconds[pairs[0].second_protocol] < record.step_seconds["bsp"]
    assert record.phases[-1].protocol != "bsp"
