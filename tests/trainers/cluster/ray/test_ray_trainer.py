"""Real Ray clusters of three nodes, and nodes that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.trainers.cluster.ray.options import RayOptions
from syncswitch.trainers.cluster.ray.trainer import RayTrainer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.checkpoint import read_checkpoint
from tests.benchmarks.ray_failover import search
from tests.trainers.cluster.aborted_chiefs import aborted_chiefs
from tests.trainers.cluster.processes.test_process_trainer import StrikeAtStep
from tests.trainers.cluster.ray.local_cluster import LocalCluster
from tests.trainers.jobs import CONSTANT, momentum_answer, spec_of
from tests.trainers.trainer_contract import ForkContract, MakeTrainer
from tests.warm_program import run_code

pytest.importorskip("ray", reason="the extra syncswitch[ray] brings it")
pytestmark = pytest.mark.slow

W = 400
# Without momentum each gradient moves the parameters by the same, whenever it comes.
COUNTING = replace(
    CONSTANT,
    name="counting on ray",
    total_worker_steps=W,
    momentum=0.0,
    learning_rate=1e-3,
    evaluation_interval_worker_steps=50,
)
PERCENTS = tuple(range(20, 101, 20))
SERVERS = {"ps 0", "worker 0", "worker 1"}


@pytest.fixture(scope="module")
def cluster(devices: Any) -> Iterator[LocalCluster]:
    cluster = LocalCluster(cpus=2, nodes=3)
    yield cluster
    cluster.close()


class InsideTrainer(RayTrainer):
    """Its chief is in the network of the cluster."""

    def __init__(self, cluster: LocalCluster, **options: Any) -> None:
        self._cluster = cluster
        chosen = RayOptions(**{"address": cluster.address, **options})
        super().__init__(f"{__name__}:COUNTING", 2, chosen)

    def program(self, socket_fd: int) -> list[str]:
        return self._cluster.inside(*super().program(socket_fd))


@pytest.fixture(scope="module")
def trainer(cluster: LocalCluster) -> Iterator[RayTrainer]:
    trainer = InsideTrainer(cluster)
    yield trainer
    trainer.close()


@pytest.fixture(scope="module")
def make_trainer(trainer: RayTrainer) -> MakeTrainer:
    def make(workload: Workload, workers: int) -> RayTrainer:
        assert (workload, workers) == (COUNTING, 2)
        return trainer

    return make


# A chief on Ray is the cluster of one process, which keeps to the whole contract.
KEPT = {
    "test_the_record_says_what_when_and_with_what",
    "test_the_observer_is_told_what_the_record_says",
    "test_a_trial_of_another_job_is_refused",
    "test_a_damaged_checkpoint_is_refused",
}


class TestRayTrainer(ForkContract, only=KEPT):
    workload = COUNTING
    workers = 2


def train(
    trainer: RayTrainer, folder: Path, *injections: str, strike: Any = None
) -> tuple[TrialRecord, dict[str, int]]:
    """A run in which each gradient has to be applied once, and how often what happened."""
    record = trainer.train(
        spec_of(
            COUNTING,
            2,
            50.0,
            conditions=RunConditions(injections=injections),
            checkpoint_percents=PERCENTS,
            checkpoint_directory=folder,
        ),
        StrikeAtStep(strike),
    )
    assert record.worker_steps == W
    (parameters,) = read_checkpoint(record.checkpoints[100.0]).parameters.values()
    expected, _ = momentum_answer([COUNTING.learning_rate] * W, 0.0)
    np.testing.assert_allclose(parameters.ravel(), expected, rtol=1e-4)
    kinds = [event.kind for event in record.events]
    return record, {kind: kinds.count(kind) for kind in kinds}


def test_servers_that_hang_or_die_are_replaced(
    trainer: RayTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, kinds = train(trainer, tmp_path, "hang:worker=0,at=15%", "kill:ps,at=65%")
    assert kinds["injected"] >= 2
    if aborted_chiefs(caplog):
        return
    assert kinds["lost"] >= 2
    # By another chief where TensorFlow does not get over both at once.
    assert kinds.get("rebuilt") or kinds.get("resumed")
    assert "ps 0 on 127.0.0.1 ended with status -9; its last words: " in caplog.text


def test_a_worker_whose_node_is_lost_comes_back_on_another(
    cluster: LocalCluster,
    trainer: RayTrainer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = cluster.servers()
    assert set(before) == SERVERS

    def strike() -> None:
        # One of them may be on the head, which holds the cluster together.
        assert any(cluster.ask("kill", before[f"worker {one}"].pid) for one in (1, 0))

    _, kinds = train(trainer, tmp_path / "first", strike=strike)
    assert kinds.get("lost") or aborted_chiefs(caplog)
    # The next run needs all servers, and waits for what is not there yet.
    train(trainer, tmp_path / "second")
    after = cluster.servers()
    assert set(after) == SERVERS
    assert {one.pid for one in after.values()} != {one.pid for one in before.values()}


def test_a_cluster_that_is_too_small_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(UserError, match=r"2 workers with 3 CPUs each: it has \d nodes with 2 CPUs"):
        InsideTrainer(cluster, cpus_per_worker=3)


def test_an_address_where_nobody_listens_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(UserError, match=r"nobody listens at --ray-address 127\.0\.0\.1:9;"):
        InsideTrainer(cluster, address="127.0.0.1:9")


def test_closed_it_leaves_no_server_behind(cluster: LocalCluster, trainer: RayTrainer) -> None:
    servers = cluster.servers()
    assert set(servers) == SERVERS
    trainer.close()
    for process in servers.values():
        process.wait(15)
    assert not cluster.servers()


def test_the_benchmark_of_a_search_that_loses_a_node(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.ask("add")
    found = search(cluster, tmp_path, "tests.trainers.jobs:BRIEF", loses_a_node=True)
    assert found["policy"]["version"] == 1


def test_ray_is_imported_by_the_chief_alone(tmp_path: Path) -> None:
    done = run_code("import sys; print('ray' in sys.modules)", folder=tmp_path)
    assert done.stdout.strip() == "False", "of all that the fork server has imported"
