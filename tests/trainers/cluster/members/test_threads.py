from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from syncswitch.storage.errors import FatalError
from syncswitch.trainers.cluster.exchange.plans import SERVER
from syncswitch.trainers.cluster.members.cluster import WorkerLostError
from tests.trainers.cluster.members.cluster_contract import (
    ROWS,
    ClusterContract,
    MakeCluster,
    assert_same,
    fresh,
    in_parallel,
    step,
)
from tests.trainers.jobs import CONSTANT, Gate, constant_data


@pytest.fixture
def make_cluster(threads_of: MakeCluster) -> MakeCluster:
    return threads_of


class TestThreadsCluster(ClusterContract):
    def test_there_is_nobody_to_send_a_signal_to(self, make_cluster: MakeCluster) -> None:
        with pytest.raises(FatalError, match="ps 0 is not a process of its own"):
            make_cluster(ROWS, 3).signal((SERVER, 0), signal.SIGKILL)

    def test_after_a_fence_nothing_counts_of_who_was_there(self, make_cluster: MakeCluster) -> None:
        gate = Gate(worker_step=500)
        data = replace(constant_data(), transform=gate.transform)
        cluster = make_cluster(replace(CONSTANT, data=lambda: data), 2)
        state = fresh(cluster)

        def be_late() -> None:
            with pytest.raises(WorkerLostError, match="worker 1 was replaced"):
                step(cluster, 1, 500)

        def fence() -> None:
            assert gate.entered.wait(30)
            cluster.fence(1)
            gate.open.set()

        in_parallel(be_late, fence)
        assert_same(cluster.state(), state)
        assert step(cluster, 1, 0).pushed_updates == 1

    def test_a_new_one_begins_anew(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster(ROWS, 3)
        state = fresh(cluster)
        cluster.renew()
        cluster.load(state)
        assert_same(cluster.state(), state)
        assert step(cluster, 2, 0).pushed_updates == 1
