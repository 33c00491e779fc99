"""Parts that are killed or hang while a run is under way, as threads and as real processes.

Their chief is this process.
"""

from __future__ import annotations

import functools
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import RunEvent, TrialRecord
from syncswitch.trainers.cluster.chief import recovery, run
from syncswitch.trainers.cluster.chief.clock import LostChief
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.exchange.plans import SERVER, WORKER, Caller, Push, Task
from syncswitch.trainers.cluster.exchange.remote import RemoteServer
from syncswitch.trainers.cluster.exchange.security import Identity, Part
from syncswitch.trainers.cluster.exchange.vectors import Block
from syncswitch.trainers.cluster.exchange.wire import dial
from syncswitch.trainers.cluster.members import connected
from syncswitch.trainers.cluster.members.connected import ConnectedCluster
from syncswitch.trainers.cluster.processes.this_machine import LocalLauncher
from syncswitch.trainers.model.state import read_checkpoint
from tests.failing import fails
from tests.trainers.cluster.launchers import connected_trainer, new_launcher, processes_of
from tests.trainers.final import train_to_end
from tests.trainers.jobs import (
    CONSTANT_GRADIENT,
    COUNTING,
    RecordingObserver,
    counted,
    pace,
    spec_of,
)

W = COUNTING.total_worker_steps
PERCENTS = tuple(range(20, 101, 20))
PAIRS = [("bsp", "asp"), ("ssp:2", "gba:1000")]
OTHER_PAIR = ("dssp:1-4", "ssp:0")
REPLICAS = ("local-sgd:4:semi-sync", "ds-sync:2")


class Trained:
    """A trainer with two workers and so many parameter servers as processes; 0 for threads."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.servers = servers
        self.launcher = new_launcher(folder, 2, servers=servers)
        self.trainer = (
            connected_trainer(COUNTING, 2, self.launcher)
            if servers
            else ClusterTrainer(COUNTING, 2)
        )

    @property
    def processes(self) -> dict[Part, psutil.Process]:
        return processes_of(self.launcher)

    def others(self, before: dict[Part, psutil.Process]) -> set[Part]:
        """The parts that are another process now."""
        return {part for part, process in self.processes.items() if process != before[part]}

    def train(
        self,
        folder: Path,
        *injections: str,
        pair: tuple[str, str] = ("bsp", "asp"),
        mechanism: str = "hot",
        percents: tuple[float, ...] = (),
        observer: RecordingObserver | None = None,
        **fields: Any,
    ) -> TrialRecord:
        """Makes a run in which each gradient has to be applied once, whatever is injected."""
        injections += pace(2)
        conditions = RunConditions(switch_mechanism=mechanism, injections=injections)
        fields |= {"conditions": conditions, "checkpoint_percents": percents}
        spec = spec_of(COUNTING, 2, 50.0, protocols=pair, **fields)
        record, state = train_to_end(self.trainer, spec, folder, observer)
        assert record.worker_steps == W
        steps = [phase.end_worker_step - phase.start_worker_step for phase in record.phases]
        assert sum(steps) == W
        # A round that a lost worker has cut short shifts the ends of those that follow.
        tested = [one.worker_step for one in record.evaluations]
        assert tested == pytest.approx(list(range(50, W + 1, 50)), abs=1)
        # The steps of a lost replica since it was last averaged are lost with it.
        loses_replica = pair == REPLICAS and "kill:worker" in "".join(injections)
        rtol = 0.1 if loses_replica else 0.0
        np.testing.assert_allclose(1 - state.parameters, 1 - counted(), rtol=rtol)
        assert not list(folder.glob(".*")), "nothing half-written stays behind"
        injected = {event.reason for event in record.events if event.kind == "injected"}
        assert injected == set(injections)
        assert all("\n" not in event.reason for event in record.events)
        assert all(one.status() != psutil.STATUS_ZOMBIE for one in self.processes.values())
        # The time of lost steps counts.
        rebuilt = [event for event in record.events if event.kind == "rebuilt"]
        seconds = sum(phase.seconds for phase in record.phases)
        # Attempts that a guard gave up belong to no phase.
        assert "band" in fields or seconds == pytest.approx(record.training_seconds)
        assert record.training_seconds > sum(event.seconds or 0.0 for event in rebuilt)
        if not loses_replica:
            # Each step before a checkpoint is in it exactly once.
            assert set(record.checkpoints) >= {*percents, 100.0}
            for percent, path in record.checkpoints.items():
                (parameters,) = read_checkpoint(path).parameters.values()
                np.testing.assert_array_equal(parameters.ravel(), counted(percent / 100 * W))
        return record


@pytest.fixture(scope="module")
def trained_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Trained]]:
    """Makes a trainer with so many parameter servers, or returns it again."""
    with ExitStack() as made:

        @functools.cache
        def make(servers: int) -> Trained:
            trained = Trained(tmp_path_factory.mktemp("parts"), servers)
            made.enter_context(trained.trainer)
            return trained

        yield make


@pytest.fixture
def trained(
    request: pytest.FixtureRequest,
    trained_with: Callable[[int], Trained],
    monkeypatch: pytest.MonkeyPatch,
) -> Trained:
    """The trainer with one parameter server, or with as many as the test requests."""
    # Parts that hang are given up sooner.
    monkeypatch.setattr(connected, "_STOPPED_SECONDS", 1.0)
    # Injections come as soon as they are due.
    monkeypatch.setattr(run, "_PROGRESS_SECONDS", 0.01)
    found = trained_with(getattr(request, "param", 1))
    found.trainer._cluster.repair()
    return found


@pytest.fixture
def copied_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(run, "_SHARE", 0.0)


def kinds(record: TrialRecord) -> Counter[str]:
    """Counts events by kind, except for those that set the pace."""
    return Counter(event.kind for event in record.events if event.reason not in pace(2))


KILLED_AND_HUNG = ("kill:worker=1,at=15%", "hang:worker=0,at=30%", "kill:worker=1,at=65%")
KILLED = ("kill:worker=1,at=20%", "kill:worker=0,at=45%", "kill:worker=1,at=65%")
RECOVERIES: list[tuple[int, tuple[str, str], tuple[str, ...]]] = [
    *((0, pair, KILLED) for pair in (*PAIRS, OTHER_PAIR)),
    (0, REPLICAS, ("kill:worker=1,at=20%", "kill:worker=0,at=70%")),
    (1, PAIRS[0], KILLED_AND_HUNG),
    (1, REPLICAS, ("kill:worker=1,at=20%", "kill:worker=0,at=70%")),
    *((1, pair, ("kill:ps,at=30%", "kill:ps,at=80%")) for pair in PAIRS),
    (2, PAIRS[-1], ("kill:ps=1,at=30%", "hang:ps,at=70%")),
    (2, ("asp", "bsp"), KILLED),
    (1, REPLICAS, ("kill:ps,at=20%", "kill:ps,at=70%")),
    (2, ("bsp", "local-sgd:4"), ("kill:ps=1,at=70%",)),
]


@pytest.mark.parametrize(("trained", "pair", "injections"), RECOVERIES, indirect=["trained"])
def test_each_gradient_counts_once_whichever_parts_are_lost(
    trained: Trained,
    tmp_path: Path,
    pair: tuple[str, str],
    injections: tuple[str, ...],
    copied_often: None,
) -> None:
    """A copy may hold any of the steps under way, acknowledged or not."""
    before = trained.processes
    record = trained.train(tmp_path, *injections, pair=pair)
    struck = [injection.partition(",")[0].partition(":")[2] for injection in injections]
    servers = {"ps": (SERVER, 0), "ps=1": (SERVER, 1)}
    workers = {f"worker={number}": (WORKER, number) for number in range(2)}
    assert kinds(record) == Counter(
        injected=len(struck),
        lost=len(struck),
        returned=sum(one in workers for one in struck),
        rebuilt=sum(one in servers for one in struck),
        switched=1,
    )
    lost = [event for event in record.events if event.kind == "lost"]
    if struck[0] in servers:
        # All servers go back to the copy.
        assert trained.others(before) == {(SERVER, one) for one in range(trained.servers)}
        assert [event.reason for event in lost] == [
            "the parameter server is gone"
            if trained.servers == 1
            else f"parameter server {servers[one][1]} is gone"
            for one in struck
        ]
    else:
        # Nobody waits for them: on a busy machine a later one may come back first.
        assert Counter(event.worker for event in lost) == Counter(workers[one][1] for one in struck)
        assert trained.others(before) == {workers[one] for one in struck if trained.servers}
    steps = [event.worker_step for event in record.events if event.kind == "rebuilt"]
    assert steps == sorted(steps)
    if steps and pair in PAIRS:
        assert steps[0] > 0, "there was a copy"
        assert steps[-1] > 0.5 * W


@pytest.mark.parametrize("trained", [0, 1, 2], indirect=True)
def test_all_parts_may_be_lost_at_once_and_it_goes_on_from_the_last_checkpoint_at_the_latest(
    trained: Trained, tmp_path: Path
) -> None:
    before = trained.processes
    parts = [*["ps", "ps=1"][: trained.servers], "worker=0", "worker=1"]
    injections = [f"kill:{part},at=75%" for part in parts]
    record = trained.train(tmp_path, *injections, percents=PERCENTS)
    rebuilt = [event.worker_step for event in record.events if event.kind == "rebuilt"]
    assert len(rebuilt) == (trained.servers > 0)
    assert all(step >= 0.6 * W for step in rebuilt)
    assert trained.others(before) == set(before)


def test_copies_of_the_state_need_no_worker(
    trained: Trained, tmp_path: Path, copied_often: None
) -> None:
    """Those of the second phase have the mean of what the workers hold, who are all lost."""
    before = trained.processes
    record = trained.train(tmp_path, "kill:worker=0,at=70%", "kill:worker=1,at=70%")
    assert kinds(record) == {"injected": 2, "lost": 2, "returned": 2, "switched": 1}
    assert trained.others(before) == {(WORKER, 0), (WORKER, 1)}


@pytest.mark.parametrize("trained", [1, 2], indirect=True)
def test_a_restart_at_the_switch_is_a_new_cluster(trained: Trained, tmp_path: Path) -> None:
    before = trained.processes
    record = trained.train(tmp_path, mechanism="restart")
    assert record.switch_overhead_seconds > 0.0
    assert trained.others(before) == set(before)


def test_workers_that_do_not_come_back_are_done_without(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, staying = LocalLauncher.start, [(WORKER, 1)]

    def fail(launcher: LocalLauncher, part: Part, chief: Any) -> None:
        if part in staying:
            raise RetryableError("no room")
        start(launcher, part, chief)

    monkeypatch.setattr(LocalLauncher, "start", fail)
    monkeypatch.setattr(recovery, "_PAUSE_SECONDS", 0.0)
    record = trained.train(tmp_path, "kill:worker=1,at=30%")
    reasons = [event.reason for event in record.events if event.kind == "lost"]
    assert len(reasons) == 2
    assert reasons[1] == "worker 1 stays away: RetryableError: no room"
    staying.clear()
    trained.trainer._cluster.repair()
    staying += (WORKER, 0), (WORKER, 1)
    with fails("cluster-lost", r"^no worker is left: worker \d stays away: "):
        trained.train(tmp_path, "kill:worker=1,at=30%", "kill:worker=0,at=30%")
    staying.clear()
    trained.train(tmp_path)


@pytest.mark.parametrize("when", ["before the alarm", "after it"])
def test_a_parameter_server_is_replaced_in_a_run_that_goes_back_to_its_switch(
    trained: Trained, tmp_path: Path, when: str
) -> None:
    class Killing(RecordingObserver):
        def on_event(self, event: RunEvent) -> None:
            super().on_event(event)
            if event.kind == "alarmed" and when == "after it":
                trained.processes[SERVER, 0].kill()

    is_before = when == "before the alarm"
    injections = ("kill:ps,at=20%", "kill:ps,at=70%") if is_before else ()
    record = trained.train(
        tmp_path,
        *injections,
        mechanism="restart" if is_before else "hot",
        band=Band(2.0, 0.01),
        retry_percents=(60.0,),
        observer=Killing(),
    )
    # What it goes on from may be from before the switch, which is then made again.
    found = [event.kind for event in record.events if event.reason not in pace(2)]
    found = [kind for kind in found if kind != "switched"]
    lost = ["injected", "lost", "rebuilt"] * 2 if is_before else ["lost", "rebuilt"] * 2
    assert sorted(found) == sorted(["alarmed", "alarmed", *lost]), record.events
    assert found[-1 if is_before else 0] == "alarmed"
    assert [phase.protocol for phase in record.phases] == ["bsp"]
    assert record.guard is not None
    assert [one.worker_step for one in record.guard.failed] == [W, W]
    seconds = [one.elapsed_seconds for one in record.evaluations]
    assert seconds == sorted(seconds)


def push_to_the_first(cluster: ConnectedCluster, worker: int, task: Task, gradient: Any) -> None:
    """Does what a worker does that dies after reaching the first server."""
    shard = cluster._shards[0].model
    computed = Block(1, cluster.program.sizes.model)
    computed.rows[0][:] = gradient
    own = Identity((WORKER, worker), cluster._launcher.secret)
    wire = dial(cluster._arrivals[SERVER, 0].address, SERVER, own)
    first = RemoteServer(wire, "the first", shard, computed)
    caller = Caller(worker, cluster._incarnations[worker])
    first.remote.call("push", caller, task, None, ())
    first.remote.close()


@pytest.mark.parametrize("trained", [2], indirect=True)
@pytest.mark.parametrize("who", [WORKER, SERVER])
def test_a_step_that_one_server_has_is_made_again_for_the_other_alone(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied_often: None, who: str
) -> None:
    """Its worker dies while it pushes; or the other server, and a copy has a part of the step."""
    cluster, struck, undone = trained.trainer._cluster, list[Task](), list[Any]()
    assert isinstance(cluster, ConnectedCluster)
    do, load = cluster.step, cluster.load

    def strike(worker: int, task: Task) -> Push:
        if task.worker_step != 60:
            return do(worker, task)
        struck.append(task)
        if len(struck) == 1:
            push_to_the_first(cluster, worker, task, CONSTANT_GRADIENT)
            # Until it is in a copy.
            time.sleep(0.3)
            cluster.signal((WORKER, worker) if who == WORKER else (SERVER, 1), signal.SIGKILL)
        push = do(worker, task)
        assert push.pulled_updates < push.pushed_updates
        return push

    def loaded(state: Any, found: Any = {}) -> None:  # noqa: B006
        undone.append(dict(found))
        load(state, found)

    monkeypatch.setattr(cluster, "step", strike)
    monkeypatch.setattr(cluster, "load", loaded)
    record = trained.train(tmp_path, pair=("asp", "bsp"))
    found = "returned" if who == WORKER else "rebuilt"
    assert kinds(record) == {"lost": 1, found: 1, "switched": 1}
    assert who == WORKER or set(undone[1][60]) == {0}
    assert [task.taken for task in struck] == [(), (0,)]


@pytest.mark.parametrize("percents", [(), (25.0,)])
def test_a_run_says_where_it_goes_on_after_its_chief_was_lost(
    tmp_path: Path, percents: tuple[float, ...]
) -> None:
    spec = spec_of(
        COUNTING, 2, 50.0, checkpoint_directory=tmp_path, checkpoint_percents=(*percents, 100.0)
    )
    with ClusterTrainer(COUNTING, 2) as trainer:
        trainer.train(spec)
        for last in tmp_path.glob("*-at-100.0.npz"):
            last.unlink()
        lost = LostChief(3, 1.0, reason="the chief: it died")
        record = trainer.train(replace(spec, resume=True), lost=lost)
    kinds = [event.kind for event in record.events if event.kind in ("lost", "resumed")]
    assert sorted(kinds) == ["lost", "resumed"]
    (resumed,) = (event for event in record.events if event.kind == "resumed")
    assert resumed.reason.startswith("from seed-" if percents else "from the start, as there was")
