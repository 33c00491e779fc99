"""Runs on two parameter servers, any of which may be lost; their chief is this process."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.chief import run
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.exchange.handshake import Identity
from syncswitch.trainers.cluster.exchange.parameter_server import Caller
from syncswitch.trainers.cluster.exchange.plans import SERVER, WORKER, Push, Task
from syncswitch.trainers.cluster.exchange.remote import RemoteServer
from syncswitch.trainers.cluster.exchange.vectors import Block
from syncswitch.trainers.cluster.exchange.wire import dial
from syncswitch.trainers.cluster.members import connected
from syncswitch.trainers.cluster.members.cluster import Cluster
from syncswitch.trainers.cluster.members.connected import ConnectedCluster
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.protocols import Exchange
from tests.trainers.cluster.chief.test_lost_parts import (
    COUNTING,
    PAIRS,
    PERCENTS,
    Trained,
    W,
    assert_each_step_is_in_them_once,
    kinds,
    others,
)
from tests.trainers.cluster.members.cluster_contract import (
    ROWS,
    assert_same,
    batch_gradient,
    fresh,
    step,
    task_of,
)
from tests.trainers.final import train_to_end
from tests.trainers.jobs import BRIEF, CONSTANT_GRADIENT, normalized_model

BOTH = {(SERVER, 0), (SERVER, 1)}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    trained = Trained(tmp_path_factory.mktemp("two"), servers=2)
    yield trained
    trained.trainer.close()


@pytest.fixture
def trained(shared: Trained, monkeypatch: pytest.MonkeyPatch) -> Trained:
    monkeypatch.setattr(connected, "_STOPPED_SECONDS", 1.0)
    monkeypatch.setattr(run, "_PROGRESS_SECONDS", 0.01)
    shared.trainer._cluster.repair()
    return shared


@pytest.fixture
def copied_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(run, "_SHARE", 0.0)


def cluster_of(trained: Trained) -> ConnectedCluster:
    cluster = trained.trainer._cluster
    assert isinstance(cluster, ConnectedCluster)
    return cluster


def push_to_the_first(cluster: ConnectedCluster, worker: int, task: Task, gradient: Any) -> None:
    """What a worker does until it dies over its push."""
    shard = cluster._shards[0].model
    computed = Block(1, cluster.program.sizes.model)
    computed.rows[0][:] = gradient
    own = Identity((WORKER, worker), cluster._engine.secret)
    wire = dial(cluster._arrivals[SERVER, 0].address, SERVER, own)
    first = RemoteServer(wire, "the first", shard, computed)
    caller = Caller(worker, cluster._incarnations[worker])
    first.remote.push_update(caller, task.number, None, task.rate, task.momentum, ())
    first.remote.close()


def kill(cluster: ConnectedCluster, part: tuple[str, int]) -> None:
    cluster.signal(part, signal.SIGKILL)


class TestAWorkerThatDiesWhileItPushes:
    def test_has_its_step_made_by_another_for_those_who_lack_it(
        self, connected_of: Callable[..., ConnectedCluster]
    ) -> None:
        cluster = connected_of(ROWS, 3, servers=2)
        fresh(cluster)
        before = task_of(cluster, 0)
        assert cluster.step(1, before).pushed_updates == 1
        late = task_of(cluster, 1)
        push_to_the_first(cluster, 1, late, batch_gradient(cluster, 1))
        assert cluster.mark()[1] == (late.number, before.number)
        assert cluster.fence(1) == (late.number, before.number)
        cluster.revive(1)
        again = replace(task_of(cluster, 1), taken=(0,))
        # Of the second server, as if the first were asked.
        assert cluster.step(0, again) == Push(pytest.approx(again_loss(cluster)), 2, 3)
        assert cluster.mark()[0] == (-1, again.number)
        assert step(cluster, 2, 2).pushed_updates == 3
        gradients = [batch_gradient(cluster, one) for one in range(3)]
        state = cluster.state()
        np.testing.assert_array_equal(state.parameters, 1 - 2.0**-4 * np.sum(gradients, axis=0))
        assert state.updates == 3

    def test_leaves_each_part_with_each_step_once(
        self, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster, struck = cluster_of(trained), list[int]()
        do = cluster.step

        def strike(worker: int, task: Task) -> Push:
            if task.worker_step in (30, 110, 190) and task.worker_step not in struck:
                struck.append(task.worker_step)
                push_to_the_first(cluster, worker, task, CONSTANT_GRADIENT)
                kill(cluster, (WORKER, worker))
            return do(worker, task)

        monkeypatch.setattr(cluster, "step", strike)
        record = trained.train(tmp_path, pair=("asp", "ssp:2"))
        assert len(struck) == 3
        assert kinds(record)["lost"] == 3

    def test_and_a_server_that_dies_then_leave_a_copy_with_a_part_of_the_step(
        self,
        trained: Trained,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        copied_often: None,
    ) -> None:
        cluster, struck, undone = cluster_of(trained), list[Task](), list[Any]()
        do, load = cluster.step, cluster.load

        def strike(worker: int, task: Task) -> Push:
            if task.worker_step == 60:
                struck.append(task)
                if len(struck) == 1:
                    push_to_the_first(cluster, worker, task, CONSTANT_GRADIENT)
                    # Until it is in a copy.
                    time.sleep(0.3)
                    kill(cluster, (SERVER, 1))
            return do(worker, task)

        def loaded(state: Any, found: Any = {}) -> None:  # noqa: B006
            undone.append(dict(found))
            load(state, found)

        monkeypatch.setattr(cluster, "step", strike)
        monkeypatch.setattr(cluster, "load", loaded)
        record = trained.train(tmp_path, pair=("asp", "bsp"))
        assert kinds(record) == {"lost": 1, "rebuilt": 1, "switched": 1}
        assert set(undone[1][60]) == {0}
        assert [task.taken for task in struck] == [(), (0,)]

    @pytest.mark.parametrize("pair", PAIRS, ids=",".join)
    def test_beside_a_server_that_stands_still_is_done_without(
        self,
        trained: Trained,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        pair: tuple[str, str],
        copied_often: None,
    ) -> None:
        """Wherever its push is then; nobody has arranged that."""
        cluster, turns = cluster_of(trained), queue.SimpleQueue[int | None]()
        do = cluster.step

        def disturb() -> None:
            while (turn := turns.get()) is not None:
                server = trained.processes[SERVER, turn % 2]
                server.suspend()
                time.sleep(0.02)
                kill(cluster, (WORKER, turn % 2))
                time.sleep(0.05)
                server.resume()

        def step_and_tell(worker: int, task: Task) -> Push:
            if task.worker_step in (40, 100, 160):
                turns.put(task.worker_step // 60)
            return do(worker, task)

        monkeypatch.setattr(cluster, "step", step_and_tell)
        thread = threading.Thread(target=disturb, daemon=True)
        thread.start()
        trained.train(tmp_path, pair=pair)
        turns.put(None)
        thread.join(30)


def again_loss(cluster: ConnectedCluster) -> float:
    """Of step 1, when the first server has applied 0 and 1, the second only 0."""
    gradients = [batch_gradient(cluster, one) for one in range(2)]
    parameters = 1 - 2.0**-4 * gradients[0]
    parameters[:2] -= 2.0**-4 * gradients[1][:2]
    return float(parameters @ gradients[1])


class TestAServerThatIsLost:
    @pytest.mark.parametrize("pair", PAIRS, ids=",".join)
    def test_takes_all_back_to_a_copy_from_the_middle_of_the_training(
        self, trained: Trained, tmp_path: Path, pair: tuple[str, str], copied_often: None
    ) -> None:
        before = trained.processes
        record = trained.train(tmp_path, "kill:ps=1,at=30%", "hang:ps,at=70%", pair=pair)
        assert kinds(record) == {"injected": 2, "lost": 2, "rebuilt": 2, "switched": 1}
        lost = [event.reason for event in record.events if event.kind == "lost"]
        assert lost == [f"parameter server {number} is gone" for number in (1, 0)]
        assert others(trained, before) == BOTH

    def test_may_be_lost_with_all_other_parts(self, trained: Trained, tmp_path: Path) -> None:
        before = trained.processes
        at = "at=40%"
        injections = [f"kill:{part},{at}" for part in ("ps", "ps=1", "worker=0", "worker=1")]
        record = trained.train(tmp_path, *injections, percents=PERCENTS)
        assert kinds(record)["rebuilt"] == 1
        assert others(trained, before) == set(before)

    def test_is_replaced_with_the_mean_once_replicas_have_trained(
        self, trained: Trained, tmp_path: Path
    ) -> None:
        record = trained.train(tmp_path, "kill:ps=1,at=70%", pair=("bsp", "local-sgd:4"))
        assert kinds(record) == {"injected": 1, "lost": 1, "rebuilt": 1, "switched": 1}


def test_a_restart_at_the_switch_is_a_new_cluster(trained: Trained, tmp_path: Path) -> None:
    before = trained.processes
    record = trained.train(tmp_path, mechanism="restart")
    assert record.switch_overhead_seconds > 0.0
    assert others(trained, before) == set(before)


def test_a_checkpoint_does_not_depend_on_how_many_there_were(
    trained: Trained, tmp_path: Path
) -> None:
    record = trained.train(tmp_path, percents=PERCENTS)
    assert_each_step_is_in_them_once(record.checkpoints)
    for percent, path in record.checkpoints.items():
        if percent > 40:
            path.unlink()
    spec = replace(record.spec, resume=True)
    with ClusterTrainer(COUNTING, 2) as alone:
        resumed, state = train_to_end(alone, spec, tmp_path)
    (event,) = [one for one in resumed.events if one.kind == "resumed"]
    assert event.worker_step == 0.4 * W
    np.testing.assert_array_equal(state.parameters, 1 - W * 2.0**-10 * CONSTANT_GRADIENT)


def nadam() -> Any:
    from keras import optimizers

    # With a scalar of its own, and a norm of each variable.
    return optimizers.Nadam(0.01, clipnorm=0.1, weight_decay=0.01, use_ema=True)


def clipped() -> Any:
    from keras import optimizers

    return optimizers.SGD(global_clipnorm=1.0)


def secretive() -> Any:
    from keras import optimizers

    class Secretive(optimizers.SGD):
        def build(self, variables: Any) -> None:
            super().build(variables)
            self.history = self.add_variable((5,), name="history")

    return Secretive()


class TestUpdates:
    @pytest.mark.parametrize(
        ("optimizer", "servers"), [(None, 3), (nadam, 2)], ids=["momentum", "nadam"]
    )
    def test_do_not_depend_on_how_many_share_them(
        self,
        threads_of: Callable[..., Cluster],
        connected_of: Callable[..., ConnectedCluster],
        optimizer: Any,
        servers: int,
    ) -> None:
        """Of BSP: to the last bit; statistics are among what is shared."""
        workload = replace(BRIEF, name="shared", model=normalized_model, optimizer=optimizer)
        shared = connected_of(workload, 2, servers=servers)
        states = []
        for cluster in (threads_of(workload, 2), shared):
            fresh(cluster)
            for first in range(0, 10, 2):
                for worker in range(2):
                    step(cluster, worker, first + worker, Exchange.ROUND)
                cluster.apply_round([0, 1], 0.05, 0.9)
            states.append(cluster.state())
        assert_same(*states)
        assert all(shard.sizes.parameters for shard in shared._shards)

    @pytest.mark.parametrize(
        ("optimizer", "words"),
        [
            (clipped, "SGD with global_clipnorm needs the norm of the whole gradient"),
            (secretive, "Secretive has variables of which it does not say to which"),
        ],
    )
    def test_that_need_all_in_one_place_are_refused(self, optimizer: Any, words: str) -> None:
        workload = replace(BRIEF, optimizer=optimizer)
        program = Program(workload, workload.load_data())
        assert len(program.shards(1)) == 1
        with pytest.raises(UserError, match=f"--parameter-servers is 2, .* {words}") as caught:
            program.shards(2)
        assert "\n" not in str(caught.value)
