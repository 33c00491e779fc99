"""Real processes on this machine, over Unix sockets and over loopback."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from syncswitch.trainers.cluster.exchange.plans import CHIEF, SERVER, WORKER, Hello, Hold
from syncswitch.trainers.cluster.exchange.remote import RemotePeer
from syncswitch.trainers.cluster.exchange.security import Address, Identity, Part
from syncswitch.trainers.cluster.exchange.wire import Wire, dial
from syncswitch.trainers.cluster.members import connected
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError, WorkerLostError
from syncswitch.trainers.cluster.members.connected import Arrival, ConnectedCluster, Rendezvous
from syncswitch.trainers.cluster.members.launcher import ProcessState, ProcessStatus, tail_of_log
from syncswitch.trainers.cluster.processes.this_machine import LocalLauncher
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group
from tests.failing import fails
from tests.processes import until
from tests.trainers.clicks import of_keras
from tests.trainers.cluster.launchers import all_gone, new_launcher, process_of, processes_of
from tests.trainers.cluster.members.cluster_contract import (
    NORMALIZED,
    ROWS,
    WORKERS,
    ClusterContract,
    fresh,
    in_parallel,
    replica_of,
    replicas_that_differ,
    step,
    taken_in,
    task_of,
)
from tests.trainers.final import assert_bitwise_equal
from tests.trainers.jobs import CONSTANT, constant_data

SERVER_IS_GONE = r"^(the parameter server|parameter server 1) is gone$"
DIED = (
    r"^worker 1 does not start: ended with status 1; its last output:"
    r" .* \| FileNotFoundError: \[Errno 2\] No such file or directory$"
)


@pytest.fixture(params=["unix", "tcp of two"])
def make_cluster(
    request: pytest.FixtureRequest, connected_of: Callable[..., Any]
) -> Callable[..., ConnectedCluster]:
    """With one parameter server, or two on a network."""
    wires, _, number = request.param.partition(" of ")
    return lambda *arguments: connected_of(
        *arguments, by_network=wires == "tcp", servers=2 if number else 1
    )


@pytest.fixture
def rows(make_cluster: Callable[..., ConnectedCluster]) -> ConnectedCluster:
    return make_cluster(ROWS, WORKERS)


def launcher_of(cluster: ConnectedCluster) -> LocalLauncher:
    assert isinstance(cluster._launcher, LocalLauncher)
    return cluster._launcher


def processes(cluster: ConnectedCluster) -> dict[Part, psutil.Process]:
    return processes_of(launcher_of(cluster))


def kill(cluster: ConnectedCluster, part: Part) -> None:
    cluster.signal(part, signal.SIGKILL)


def kill_a_server(cluster: ConnectedCluster) -> None:
    """Kills the last parameter server."""
    kill(cluster, (SERVER, len(cluster.servers) - 1))


class TestConnectedCluster(ClusterContract):
    """The contract, over all kinds of wires."""


# With a scalar of its own, and a norm of each variable.
nadam = of_keras("Nadam", learning_rate=0.01, clipnorm=0.1, weight_decay=0.01, use_ema=True)


@pytest.mark.parametrize(("optimizer", "servers"), [(None, 3), (nadam, 2)])
def test_updates_do_not_depend_on_how_many_servers_share_them(
    threads_of: Callable[..., Cluster],
    connected_of: Callable[..., ConnectedCluster],
    optimizer: Any,
    servers: int,
) -> None:
    """With BSP, to the last bit, statistics included."""
    workload = replace(NORMALIZED, name="shared", optimizer=optimizer)
    shared = connected_of(workload, 2, servers=servers)
    states = []
    for cluster in (threads_of(workload, 2), shared):
        fresh(cluster)
        for first in range(0, 10, 2):
            for worker in range(2):
                step(cluster, worker, first + worker, Exchange.ROUND)
            cluster.apply(Group((0, 1)), 0.05, 0.9)
        states.append(cluster.state())
    assert_bitwise_equal(*states)
    assert all(shard.sizes.parameters for shard in shared._shards)


class TestWorkersThatAreLost:
    def test_but_are_there_yet_count_no_more_after_the_fence(self, rows: ConnectedCluster) -> None:
        state = fresh(rows)
        late = task_of(rows, 1, hold=Hold(seconds=1000.0))

        # Replaced, if the fence came before the step.
        def be_late() -> None:
            with pytest.raises(WorkerLostError, match=r"worker 1 (is gone|was replaced)"):
                rows.step(1, late)

        _, number = in_parallel(be_late, lambda: rows.fence(1))
        assert number == rows.mark()[1] != taken_in(rows, late)
        rows.revive(1)
        assert_bitwise_equal(rows.state(), state)

    @pytest.mark.parametrize("lost", [[0], [2], [0, 1], [0, 1, 2]])
    def test_have_no_part_in_an_average(self, rows: ConnectedCluster, lost: list[int]) -> None:
        before = replicas_that_differ(rows)
        for worker in lost:
            kill(rows, (WORKER, worker))
        left = [worker for worker in range(WORKERS) if worker not in lost]
        assert sorted(rows.average(range(WORKERS))) == lost
        if left:
            mean = np.mean([before[worker].parameters for worker in left], axis=0)
            for worker in left:
                np.testing.assert_array_equal(replica_of(rows, worker).parameters, mean)
            state = rows.mean_replica(range(WORKERS))
            np.testing.assert_array_equal(state.parameters, mean)
        else:
            with pytest.raises(ServerLostError, match="all replicas are lost"):
                rows.replica_snapshot(range(WORKERS))
        assert sorted(rows.broadcast(before[0], range(WORKERS))) == lost

    def test_are_found_where_the_others_cannot_reach_them(self, rows: ConnectedCluster) -> None:
        """A worker dies in the middle of an average, after it has helped others."""
        before = [replica.parameters for replica in replicas_that_differ(rows)]
        exchange, struck = rows._each, list[int]()

        def strike(workers: Sequence[int], do: Any) -> list[int]:
            found = exchange(workers, do)
            if not struck:
                struck.append(1)
                kill(rows, (WORKER, 1))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows, "_each", strike)
            assert rows.average(range(WORKERS)) == [1]
        mean = np.mean([before[0], before[2]], axis=0)
        for worker in (0, 2):
            np.testing.assert_array_equal(replica_of(rows, worker).parameters, mean)

    def test_have_no_part_in_a_mean_until_they_are_given_slots(
        self, rows: ConnectedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody else takes the place of a worker, at its address, as the chief asks it."""
        state = fresh(rows)
        for worker in range(WORKERS):
            assert rows.broadcast_slots(state.slots + worker, 10 + worker, [worker]) == []

        def peer(worker: int) -> RemotePeer:
            return RemotePeer(rows._arrivals[WORKER, worker].address, rows._own)

        monkeypatch.setattr(rows, "_peer", peer)
        rows.fence(1)
        rows._start([(WORKER, 1)])
        for get_ready in (lambda: None, lambda: rows._build_worker(1), lambda: rows._connect(1)):
            get_ready()
            np.testing.assert_array_equal(rows.mean_slots(range(WORKERS)), state.slots + 1)

    def test_are_not_waited_for_once_nobody_wants_them(
        self, rows: ConnectedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kill(rows, (WORKER, 1))
        rows.fence(1)
        monkeypatch.setattr(launcher_of(rows), "start", lambda part, chief: None)
        with fails("cluster-lost", r"^worker 1 is no longer expected$"):
            rows.revive(1, lambda: False)


class TestAParameterServerThatIsLost:
    def test_is_known_to_whoever_asks(self, rows: ConnectedCluster) -> None:
        state = fresh(rows)
        rows.mark()
        kill_a_server(rows)
        for ask in (
            lambda: rows.load(state),
            rows.state,
            rows.snapshot,
            rows.marked,
            lambda: rows.apply(Group((0,)), 0.1, 0.9),
            lambda: rows.fence(0),
        ):
            with pytest.raises(ServerLostError, match=SERVER_IS_GONE):
                ask()
        for exchange in (Exchange.PUSH, Exchange.ROUND):
            with pytest.raises(WorkerLostError, match=SERVER_IS_GONE):
                step(rows, 1, 0, exchange)

    def test_while_a_worker_comes_back_is_no_fault_of_the_worker(
        self, rows: ConnectedCluster
    ) -> None:
        kill(rows, (WORKER, 1))
        rows.fence(1)
        kill_a_server(rows)
        with pytest.raises(ServerLostError, match=SERVER_IS_GONE):
            rows.revive(1)
        rows.restart_servers()
        fresh(rows)
        assert step(rows, 1, 0).pushed_updates == 1


class TestPartsThatHang:
    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connected, "_STOPPED_SECONDS", 0.5)
        monkeypatch.setattr(connected, "_LOOK_SECONDS", 0.0)

    @pytest.mark.parametrize("part", [(WORKER, 1), (SERVER, 0)])
    def test_are_given_up(self, rows: ConnectedCluster, part: Part) -> None:
        fresh(rows)
        before = processes(rows)
        rows.signal(part, signal.SIGSTOP)

        def look() -> bool:
            rows.look_after()
            return waiting.done()

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(step, rows, 1, 0)
            until(look, 120)
            with pytest.raises(WorkerLostError):
                waiting.result()
        assert all_gone([before[part]])
        others = [process for one, process in before.items() if one != part]
        assert all(process.is_running() for process in others)

    def test_are_not_asked_for_slots_any_more_even_where_no_signal_reaches_them(
        self, rows: ConnectedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = fresh(rows)
        for worker in range(WORKERS):
            rows.broadcast_slots(state.slots + worker, worker, [worker])
        rows.mean_slots(range(WORKERS))
        stopped = processes(rows)[WORKER, 1]
        stopped.suspend()

        def look() -> bool:
            rows.look_after()
            return waiting.done()

        with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
            patch.setattr(launcher_of(rows), "signal", lambda part, number: None)
            waiting = pool.submit(rows.mean_slots, range(WORKERS))
            try:
                until(look, 30)
            finally:
                stopped.kill()
        np.testing.assert_array_equal(waiting.result(), state.slots + 1)

    def test_but_not_soon_who_may_have_no_time_alone_nor_while_this_process_was_stopped(
        self, rows: ConnectedCluster
    ) -> None:
        fresh(rows)
        arrival, process = rows._arrivals[WORKER, 2], process_of(launcher_of(rows), (WORKER, 2))
        rows._look_seconds -= 20.0
        for one in rows._arrivals.values():
            one.heard_seconds -= 20.0
        rows.look_after()
        assert not any(one.is_gone for one in rows._arrivals.values())
        for seconds, is_gone in ((14.0, False), (16.0, True)):
            arrival.heard_seconds = time.monotonic() - seconds
            rows.look_after()
            assert arrival.is_gone == is_gone
        assert all_gone([process])


class TestStart:
    def test_one_that_dies_is_named_and_the_others_end(
        self, program_of: Callable[..., Any], tmp_path: Path
    ) -> None:
        started = list[psutil.Process]()

        class Deadly(LocalLauncher):
            def start(self, part: Part, chief: Address) -> None:
                if part == (WORKER, 1):
                    super().start(part, str(tmp_path / "nobody"))
                else:
                    super().start(part, chief)
                    started.append(process_of(self, part))

        with fails("cluster-lost", DIED):
            ConnectedCluster(program_of(ROWS), 2, new_launcher(tmp_path, 2, Deadly))
        assert len(started) == 2
        assert all_gone(started)

    def test_one_that_does_not_come_is_named(
        self, program_of: Callable[..., Any], tmp_path: Path
    ) -> None:
        class Silent(LocalLauncher):
            def start(self, part: Part, chief: Address) -> None:
                if part == (SERVER, 0):
                    super().start(part, chief)

            def status(self, part: Part) -> ProcessStatus:
                return ProcessStatus(ProcessState.RUNNING, "pending")

        launcher = new_launcher(tmp_path, 1, Silent)
        launcher.start_seconds = 1.0
        with fails("cluster-lost", r"^worker 0 did not connect within 1 s: pending$"):
            ConnectedCluster(program_of(ROWS), 1, launcher)

    def test_what_workers_cannot_build_is_an_error(
        self, program_of: Callable[..., Any], tmp_path: Path
    ) -> None:
        program = program_of(replace(CONSTANT, name="broken", data=constant_data))
        plan = program.worker_plan
        program.__dict__["worker_plan"] = replace(
            plan, step=replace(plan.step, library=b"nonsense")
        )
        with fails("cluster-lost", "worker 0 failed to initialise"):
            ConnectedCluster(program, 1, new_launcher(tmp_path, 1))


def test_nobody_can_read_the_secret(connected_of: Callable[..., Any]) -> None:
    cluster = connected_of(ROWS, WORKERS)
    secret = launcher_of(cluster).secret
    assert len(secret) == 32
    for process in processes(cluster).values():
        words = [*process.cmdline(), *process.environ().values()]
        assert not any(secret.hex() in word or str(secret) in word for word in words)
    plans = cluster.program.server_plans(cluster.program.shards(1), 1)
    assert secret.hex() not in repr(plans)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "nothing"),
        (b"\n \n", "nothing"),
        (b"one\n  two  \n", "one | two"),
        (b"".join(b"%d\n" % number for number in range(1000)), "995 | 996 | 997 | 998 | 999"),
        (b"x" * 1000, "x" * 200),
    ],
)
def test_of_a_log_the_last_lines_are_kept(
    tmp_path: Path, written: bytes | None, words: str
) -> None:
    if written is not None:
        (tmp_path / "log").write_bytes(written)
    assert tail_of_log(tmp_path / "log") == f"its last output: {words}"


SECRET = b"of this cluster alone"
ONE: Part = (WORKER, 1)
OTHER: Part = (SERVER, 0)


@pytest.fixture
def rendezvous(folder: Path) -> Iterator[Rendezvous]:
    made = Rendezvous(str(folder / "chief"), SECRET)
    yield made
    made.close()


def wire_of(
    rendezvous: Rendezvous, part: Part, token: str, address: str | None = "where others reach it"
) -> Wire:
    """Connects to the rendezvous as a process that is a part; without an address, for its pulse."""
    wire = dial(rendezvous.address, CHIEF, Identity(part, SECRET))
    wire.send(Hello(token, address))
    return wire


def pulse_of(rendezvous: Rendezvous, part: Part, token: str) -> Wire:
    return wire_of(rendezvous, part, token, address=None)


def arrived(rendezvous: Rendezvous, part: Part = ONE) -> Arrival:
    found = rendezvous.wait_for(part, 20.0)
    assert found is not None
    return found


def has_ended(wire: Wire) -> bool:
    """Waits for the other end to close a wire; returns whether it does."""
    try:
        wire.receive()
    except (OSError, EOFError):
        return True
    return False


def test_whoever_waits_is_told_that_a_part_comes_lives_and_is_gone(rendezvous: Rendezvous) -> None:
    assert rendezvous.wait_for(ONE, 0.05) is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rendezvous.wait_for, ONE, 60.0)
        wire, pulse = wire_of(rendezvous, ONE, "a"), pulse_of(rendezvous, ONE, "a")
        arrival = waiting.result(20)
    assert arrival is not None
    assert (arrival.token, arrival.address) == ("a", "where others reach it")
    for _ in range(3):
        before = arrival.heard_seconds
        pulse.send(None)
        until(lambda before=before: arrival.heard_seconds > before)
    assert not arrival.is_gone
    with ThreadPoolExecutor(1) as pool:
        waiting_for_it = pool.submit(has_ended, arrival.wire)
        pulse.close()
        assert waiting_for_it.result(20)
    assert arrival.is_gone
    assert rendezvous.wait_for(ONE, 0.0) is None
    assert has_ended(wire), "and it itself is told as well, should it live yet"


def test_a_pulse_may_overtake_the_first_word(rendezvous: Rendezvous) -> None:
    """Each wire has a thread of its own, and the machine may be busy."""
    pulse = pulse_of(rendezvous, ONE, "a")
    pulse.send(None)
    time.sleep(0.05)
    _wire = wire_of(rendezvous, ONE, "a")
    arrival = arrived(rendezvous)
    until(lambda: arrival.pulse is not None)
    assert not arrival.is_gone


def test_who_comes_again_takes_the_place_of_the_one_before(
    rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected, "_PATIENCE_SECONDS", 0.05)
    old = wire_of(rendezvous, ONE, "old")
    former = arrived(rendezvous)
    new = wire_of(rendezvous, ONE, "new")
    assert has_ended(old)
    assert former.is_gone
    arrival = arrived(rendezvous)
    arrival.wire.send(arrival.token)
    assert new.receive().read(str) == "new"
    # Pulses of other processes count for none.
    assert has_ended(pulse_of(rendezvous, ONE, "old"))
    assert has_ended(pulse_of(rendezvous, (WORKER, 7), "old"))
    assert arrival.pulse is None
    pulse = pulse_of(rendezvous, ONE, "new")
    pulse.send(None)
    until(lambda: arrival.pulse is not None)


def test_who_is_dropped_is_told_and_closed_it_lets_nobody_in(rendezvous: Rendezvous) -> None:
    wires = [
        wire_of(rendezvous, ONE, "a"),
        pulse_of(rendezvous, ONE, "a"),
        wire_of(rendezvous, OTHER, "b"),
    ]
    arrival = arrived(rendezvous)
    until(lambda: arrival.pulse is not None)
    rendezvous.drop((WORKER, 2))
    rendezvous.drop(ONE)
    rendezvous.drop(ONE)
    assert all(map(has_ended, wires[:2]))
    assert rendezvous.wait_for(ONE, 0.0) is None
    arrived(rendezvous, OTHER)
    rendezvous.close()
    rendezvous.close()
    assert has_ended(wires[2])
    with pytest.raises(ConnectionRefusedError):
        dial(rendezvous.address, CHIEF, Identity(ONE, SECRET))
