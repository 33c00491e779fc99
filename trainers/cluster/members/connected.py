"""A cluster whose parts are processes that connect to this one, the chief."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from typing_extensions import override

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.cluster.exchange.plans import CHIEF, SERVER, WORKER, Caller, Hello
from syncswitch.trainers.cluster.exchange.remote import (
    CHIEF_TO_SERVER,
    Call,
    LostError,
    RemoteError,
    RemotePeer,
    RemoteShard,
    RemoteWorker,
    call_all,
)
from syncswitch.trainers.cluster.exchange.security import Address, Identity, Part
from syncswitch.trainers.cluster.exchange.wire import Listener, Wire
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError
from syncswitch.trainers.cluster.members.launcher import Launcher, ProcessState
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.model.embeddings import EmbeddingServers


@dataclass(eq=False)
class Arrival:
    """A process that has connected.

    `heard_seconds` is the time of its last heartbeat, on the monotonic clock; `pulse` the wire for
    heartbeats, once it is there.
    """

    token: str
    address: Address
    wire: Wire
    heard_seconds: float = field(default_factory=time.monotonic)
    is_gone: bool = False
    pulse: Wire | None = None

    def drop(self) -> None:
        """Gives it up; closing its wires tells it, and everybody who waits for it, at once."""
        self.is_gone = True
        for wire in (self.wire, self.pulse):
            if wire is not None:
                wire.close()


# The wire for heartbeats may arrive before the one for calls.
_PATIENCE_SECONDS = 10.0


class Rendezvous:
    """Where the parts of a cluster connect to their chief."""

    def __init__(self, address: Address, secret: bytes | None) -> None:
        self._there: dict[Part, Arrival] = {}
        self._changed = threading.Condition()
        own = Identity((CHIEF, 0), secret)
        self._listener = Listener(address, own, (SERVER, WORKER), self._on_wire)
        self.address = self._listener.address

    def wait_for(self, part: Part, seconds: float) -> Arrival | None:
        """Waits at most so long for a part; returns None if it has not connected."""
        return self._awaited(part, lambda arrival: not arrival.is_gone, seconds)

    def drop(self, part: Part) -> None:
        with self._changed:
            arrival = self._there.get(part)
        if arrival is not None:
            arrival.drop()

    def close(self) -> None:
        self._listener.close()
        with self._changed:
            there = list(self._there.values())
        for arrival in there:
            arrival.drop()

    def _awaited(
        self, part: Part, is_right: Callable[[Arrival], bool], seconds: float
    ) -> Arrival | None:
        def right() -> Arrival | None:
            arrival = self._there.get(part)
            return arrival if arrival is not None and is_right(arrival) else None

        with self._changed:
            return self._changed.wait_for(right, seconds)

    def _on_wire(self, wire: Wire) -> None:
        hello: Hello = wire.receive().read(Hello)
        if hello.address is not None:
            with self._changed:
                former = self._there.get(wire.peer)
                self._there[wire.peer] = Arrival(hello.token, hello.address, wire)
                self._changed.notify_all()
            if former is not None:
                former.drop()
            return
        arrival = self._awaited(
            wire.peer, lambda other: other.token == hello.token, _PATIENCE_SECONDS
        )
        if arrival is None:
            wire.close()
            return
        arrival.pulse = wire
        try:
            while True:
                wire.receive().read(None)
                arrival.heard_seconds = time.monotonic()
        except (OSError, EOFError):
            arrival.drop()


_LOG = logging.getLogger(__name__)

# A process that is silent so long is given up if it is stopped; one that may be busy, later.
_STOPPED_SECONDS = 2.0
_SILENT_SECONDS = 15.0
_LOOK_SECONDS = 0.5
_WAIT_SECONDS = 0.2
_SLOW_SECONDS = 5.0


class ConnectedCluster(Cluster):
    """Workers and parameter servers that are processes, on this machine or others.

    Raises RetryableError if a process does not start, UserError if the chief cannot listen at its
    address, and as `Program.shards` does.
    """

    has_processes = True

    def __init__(self, program: Program, workers: int, launcher: Launcher) -> None:
        super().__init__(program, workers, launcher.servers)
        self.kind = launcher.kind
        self._launcher = launcher
        try:
            self._rendezvous = Rendezvous(launcher.listen, launcher.secret)
        except OSError as error:
            raise launcher.cannot_listen(error) from error
        self._look_seconds = time.monotonic()
        self._arrivals: dict[Part, Arrival] = {}
        self._own = Identity((CHIEF, 0), launcher.secret)
        self._peers: dict[Address, RemotePeer] = {}
        self._incarnations = [0] * workers
        try:
            self.renew()
        except BaseException:
            self.close()
            raise

    @override
    def _give_up(self, worker: int, incarnation: int) -> None:
        self._incarnations[worker] = incarnation
        self.members[worker] = None
        self._rendezvous.drop((WORKER, worker))

    @override
    def revive(self, worker: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._start([(WORKER, worker)], is_wanted)
        self._build_worker(worker)
        self._connect(worker)

    @override
    def restart_servers(self) -> None:
        # All of them have to go back to the copy, so none is worth keeping.
        self._start(self._server_parts)
        self._build_servers()
        for worker in self._workers:
            try:
                self._connect(worker)
            except RetryableError:
                self.fence(worker)
                self.revive(worker)

    @override
    def renew(self) -> None:
        self._start([*self._server_parts, *((WORKER, worker) for worker in self._workers)])
        self._build_servers()
        list(self._pool.map(self._build_worker, self._workers))
        for worker in self._workers:
            self._connect(worker)

    @override
    def repair(self) -> None:
        if not all(map(self._is_there, self._server_parts)):
            self.restart_servers()
        for worker in self._workers:
            if not self._is_there((WORKER, worker)):
                self.fence(worker)
                self.revive(worker)

    @override
    def look_after(self) -> None:
        now = time.monotonic()
        if now - self._look_seconds < _LOOK_SECONDS:
            return
        stood_still = now - self._look_seconds > _STOPPED_SECONDS
        for part, arrival in list(self._arrivals.items()):
            if stood_still:
                # Heartbeats went unnoticed because this process itself was stopped.
                arrival.heard_seconds = now
            silent_seconds = now - arrival.heard_seconds
            if arrival.is_gone or silent_seconds < _STOPPED_SECONDS:
                continue
            if (
                silent_seconds > _SILENT_SECONDS
                or self._launcher.status(part).state is ProcessState.STOPPED
            ):
                _LOG.debug("%s %d has been silent for %.1f s", *part, silent_seconds)
                self._launcher.signal(part, signal.SIGKILL)
                arrival.drop()
                # The signal may not reach it, while its machine still holds this wire.
                if peer := self._peers.pop(arrival.address, None):
                    peer.close()
        self._look_seconds = time.monotonic()

    @override
    def signal(self, part: Part, number: int) -> None:
        self._launcher.signal(part, number)

    @override
    def close(self) -> None:
        self._rendezvous.close()
        self._launcher.close()
        self._pool.shutdown(wait=False)

    @property
    def _workers(self) -> range:
        return range(len(self.members))

    @property
    def _server_parts(self) -> list[Part]:
        return [(SERVER, number) for number in range(len(self._shards))]

    def _name(self, part: Part) -> str:
        role, number = part
        if role == WORKER:
            return f"worker {number}"
        return "the parameter server" if len(self._shards) == 1 else f"parameter server {number}"

    def _is_there(self, part: Part) -> bool:
        arrival = self._arrivals.get(part)
        if arrival is None or arrival.is_gone:
            return False
        return self._launcher.status(part).state is ProcessState.RUNNING

    def _start(self, parts: Sequence[Part], is_wanted: Callable[[], bool] = lambda: True) -> None:
        for part in parts:
            self._rendezvous.drop(part)
            self._launcher.start(part, self._rendezvous.address)
        deadline = time.monotonic() + self._launcher.start_seconds
        for part in parts:
            self._arrivals[part] = self._awaited(part, deadline, is_wanted)

    def _awaited(self, part: Part, deadline: float, is_wanted: Callable[[], bool]) -> Arrival:
        start, has_said = time.monotonic(), not self._launcher.waits_aloud
        while True:
            arrival = self._rendezvous.wait_for(part, _WAIT_SECONDS)
            if arrival is not None:
                return arrival
            if not is_wanted():
                raise RetryableError(
                    f"{self._name(part)} is no longer expected", code="cluster-lost"
                )
            status = self._launcher.status(part)
            if status.state is ProcessState.DEAD:
                raise RetryableError(
                    f"{self._name(part)} does not start: {status.report}", code="cluster-lost"
                )
            if time.monotonic() > deadline:
                raise RetryableError(
                    f"{self._name(part)} did not connect within {self._launcher.start_seconds:g} s"
                    f"{status.report and ': '}{status.report}",
                    code="cluster-lost",
                )
            if not has_said and time.monotonic() - start > _SLOW_SECONDS:
                has_said = True
                _LOG.warning("waiting for %s", self._name(part))

    def _build_servers(self) -> None:
        remotes = [
            RemoteShard(
                self._arrivals[part].wire, self._name(part), CHIEF_TO_SERVER, ServerLostError
            )
            for part in self._server_parts
        ]
        plans = self.program.server_plans(self._shards, len(self.members))
        call_all([Call(*pair) for pair in zip(remotes, repeat("build"), zip(plans))])
        self.servers = remotes
        checkpoints = self.program.checkpoints
        self.embeddings = EmbeddingServers(remotes, checkpoints.layouts, checkpoints.rule)
        self._incarnations = [0] * len(self.members)

    def _build_worker(self, worker: int) -> None:
        name = self._name((WORKER, worker))
        member = RemoteWorker(self._arrivals[WORKER, worker].wire, name)
        try:
            member.build(self.program.worker_plan)
        except (LostError, RemoteError) as error:
            raise RetryableError(
                f"{name} failed to initialise ({error})", code="cluster-lost"
            ) from error
        self.members[worker] = member

    def _connect(self, worker: int) -> None:
        joined = [
            (self._name(part), self._arrivals[part].address, shard.model)
            for part, shard in zip(self._server_parts, self._shards, strict=True)
        ]
        caller, member = Caller(worker, self._incarnations[worker]), self._member(worker)
        assert isinstance(member, RemoteWorker)
        try:
            member.connect(caller, joined)
        except (LostError, RemoteError) as error:
            for part in self._server_parts:
                if not self._is_there(part):
                    raise ServerLostError(f"{self._name(part)} is gone") from error
            raise RetryableError(
                f"{self._name((WORKER, worker))} cannot join the parameter server ({error})",
                code="cluster-lost",
            ) from error

    @override
    def _peer(self, worker: int) -> RemotePeer:
        address = self._found_by(worker)
        return self._peers.setdefault(address, RemotePeer(address, self._own))

    @override
    def _found_by(self, worker: int) -> Any:
        self._member(worker)
        return self._arrivals[WORKER, worker].address
