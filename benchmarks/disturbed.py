"""A cluster of processes on this machine with wires that delay, or with a worker that is slow."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.trainers.cluster.exchange import parts
from syncswitch.trainers.cluster.exchange.parts import PartConfig, serve_chief
from syncswitch.trainers.cluster.exchange.security import Address, Part
from syncswitch.trainers.cluster.exchange.wire import Listener
from syncswitch.trainers.cluster.members import connected
from syncswitch.trainers.cluster.processes.this_machine import NO_GPU, LocalLauncher

if TYPE_CHECKING:
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.trainer import Trainer

_CHUNK = 1 << 20
_SLICE_SECONDS = 0.04  # of its processor time, after which a slow worker is stopped for a while


class Relay:
    """Passes on what comes to its `address` to a target and back, each way so much later.

    The delay is that of a long wire: it does not limit how much is under way.
    """

    def __init__(self, target: Address, delay_seconds: float) -> None:
        self._target = target
        self._delay_seconds = delay_seconds
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: Address = ("127.0.0.1", self._socket.getsockname()[1])
        _begin(self._accept)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._socket.accept()
                there = socket.create_connection(self._target)  # type: ignore[arg-type]
                for one in (here, there):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, sink in ((here, there), (there, here)):
                    held: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                    _begin(self._read, source, held)
                    _begin(self._write, sink, held)

    def _read(self, source: socket.socket, held: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        content = b"-"
        while content:
            try:
                content = source.recv(_CHUNK)
            except OSError:
                content = b""
            held.put((time.monotonic() + self._delay_seconds, content))

    def _write(self, sink: socket.socket, held: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            due, content = held.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if content:
                    sink.sendall(content)
                    continue
            except OSError:
                pass
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
            return

    def close(self) -> None:
        """Admits nobody any more."""
        self._socket.close()


def _begin(body: Any, *arguments: Any) -> None:
    threading.Thread(target=body, args=arguments, daemon=True).start()


class DisturbedLauncher(LocalLauncher):
    """Wires of `delay_seconds` each way, and a first worker that runs a `slowdown`th of the time.

    With a delay all wires are TCP connections through a relay, and no memory is shared.
    """

    def __init__(self, delay_seconds: float = 0.0, slowdown: float = 1.0) -> None:
        super().__init__()
        self._delay_seconds = delay_seconds
        self._slowdown = slowdown

    @override
    def open(self, reference: str | None, workers: int, folder: Path) -> None:
        self._stopped = threading.Event()
        if self._delay_seconds:
            connected.Listener = _relayed(self._delay_seconds)  # type: ignore[misc]
        super().open(reference, workers, folder)

    @override
    def start(self, part: Part, chief: Address) -> None:
        if self._delay_seconds:
            self.signal(part, 9)
            config = PartConfig(part, chief, self._socket(), self.secret, self._reference)
            plan, log = (config, self._delay_seconds), str(self._log(part))
            environment = {**self._limits, **NO_GPU}
            self._process_ids[part] = self._fork_server.fork(_run_part, plan, log, environment)
        else:
            super().start(part, chief)
        if self._slowdown > 1 and part == ("worker", 0):
            _begin(self._slow_down, self._process_ids[part])

    def _slow_down(self, process_id: int) -> None:
        """Stops and continues a process, as one that shares its processor with others is."""
        with suppress(ProcessLookupError):
            while not self._stopped.wait(_SLICE_SECONDS):
                os.kill(process_id, signal.SIGSTOP)
                self._stopped.wait((self._slowdown - 1) * _SLICE_SECONDS)
                os.kill(process_id, signal.SIGCONT)

    @override
    def close(self) -> None:
        self._stopped.set()
        super().close()

    @override
    def _socket(self) -> Address:
        return ("127.0.0.1", 0) if self._delay_seconds else super()._socket()


def _run_part(plan: tuple[PartConfig, float]) -> None:
    """Runs a part that others reach through a relay."""
    config, delay_seconds = plan
    parts.Listener = _relayed(delay_seconds)  # type: ignore[misc]
    serve_chief(config)


def _relayed(delay_seconds: float) -> type[Listener]:
    class RelayedListener(Listener):
        """A listener that others reach through a relay; it tells them, and proves, its address."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._relay = Relay(self.address, delay_seconds)
            self.address = self._relay.address

        @override
        def close(self) -> None:
            self._relay.close()
            super().close()

    return RelayedListener


@dataclass(frozen=True)
class DisturbedTrainer(LocalTrainer):
    """A cluster of processes on this machine, disturbed as `DisturbedLauncher` says."""

    launcher: str | None = "processes"
    delay_seconds: float = field(default=0.0, kw_only=True)
    slowdown: float = field(default=1.0, kw_only=True)

    @override
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer

        launcher = DisturbedLauncher(self.delay_seconds, self.slowdown)
        return ProcessTrainer(reference, workers, launcher)
