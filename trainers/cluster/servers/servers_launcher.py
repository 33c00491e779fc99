"""A cluster of real TensorFlow servers, one process each."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from typing_extensions import override

from syncswitch.storage.errors import FatalError, RetryableError, UserError, one_line
from syncswitch.trainers.cluster.servers.launchers import Casualty, Launcher
from syncswitch.trainers.cluster.servers.placement import Devices, server_devices
from syncswitch.trainers.cluster.servers.pool import Server, ServerPool
from syncswitch.trainers.model.tensorflow_api import TRANSIENT_ERRORS, reconnect, tf

ClusterAddresses = Mapping[str, Sequence[str]]

_PARAMETER_SERVER: Server = ("ps", 0)
_RECONNECT_SECONDS = 10.0
_CONNECT_SECONDS = 120.0
_PAUSE_SECONDS = 0.1


def cluster_addresses(ports: Sequence[int]) -> ClusterAddresses:
    """Addresses by job: the chief, one parameter server, and a worker for each further port."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    return {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}


class ServersLauncher(Launcher):
    """Connects this process, as the chief, to servers that run already.

    Args:
        addresses: Of the cluster; read again whenever a server was replaced.
        pool: Replaces servers that are lost.
        devices: Names of the cluster's devices; by default it uses no GPUs.
        kind: What it can disturb on purpose; see `Launcher`.
        connect_seconds: How long TensorFlow may take to connect to servers that listen.
    """

    has_servers = True

    def __init__(
        self,
        addresses: ClusterAddresses,
        pool: ServerPool,
        devices: Devices | None = None,
        *,
        kind: str = "processes",
        connect_seconds: float = _CONNECT_SECONDS,
    ) -> None:
        self.kind = kind
        self._addresses = addresses
        self._devices = devices or server_devices(len(addresses["worker"]))
        self._connect_seconds = connect_seconds
        self._pool = pool
        self._renewing = threading.Lock()
        workers = range(len(addresses["worker"]))
        # Which server each of the program's parts is on; a new one knows nothing of them.
        self._known = dict.fromkeys((_PARAMETER_SERVER, *map(_worker, workers)), 0)

    @override
    def start(self, workers: int) -> Devices:
        if workers != len(self._addresses["worker"]):
            raise FatalError(
                f"{workers} workers asked of a cluster of {len(self._addresses['worker'])}"
            )
        self._pool.await_all()
        with _limited(self._connect_seconds):
            tf.config.experimental_connect_to_cluster(
                tf.train.ClusterSpec(self._addresses), job_name="chief", task_index=0
            )
        self._check_devices()
        return self._devices

    def close(self) -> None:
        """Nothing to stop: whoever started the servers stops them."""

    @override
    def casualty(self, worker: int | None, error: BaseException) -> Casualty | None:
        if not isinstance(error, tf.errors.OpError):
            return None
        if self._is_gone(_PARAMETER_SERVER):
            return Casualty.PARAMETER_SERVER
        is_transient = isinstance(error, TRANSIENT_ERRORS)
        if worker is None:
            return Casualty.PARAMETER_SERVER if is_transient else None
        return Casualty.WORKER if is_transient or self._is_gone(_worker(worker)) else None

    @override
    def revive(self, worker: int) -> None:
        self._renew([_worker(worker)])

    @override
    def rebuild(self) -> None:
        self._renew(list(self._known))

    @override
    def replace_dead(self) -> None:
        # Without the lock: whoever holds it may be waiting for one of these.
        if self._pool.renew_dead():
            # Not here: it waits for servers that hang, and the caller is the one that finds them.
            threading.Thread(target=self._connect_again, name="reconnect", daemon=True).start()

    @override
    def is_whole(self) -> bool:
        states = self._pool.states()
        return all(
            state.is_alive and not state.is_stopped and state.generation == self._known[server]
            for server, state in states.items()
        )

    @override
    def living(self) -> Mapping[int | None, int]:
        states = self._pool.states()
        return {
            _number(server): state.generation for server, state in states.items() if state.is_alive
        }

    @override
    def is_stopped(self, worker: int | None) -> bool:
        return self._pool.states()[_server(worker)].is_stopped

    @override
    def kill(self, worker: int | None, generation: int) -> None:
        server = _server(worker)
        if self._pool.states()[server].generation == generation:
            self._pool.signal(server, signal.SIGKILL)

    @override
    def signal(self, worker: int | None, number: int) -> None:
        self._pool.signal(_server(worker), number)

    @override
    def delay(self, worker: int, seconds: float) -> None:
        self._pool.delay(worker, seconds)

    def _check_devices(self) -> None:
        there = {device.name for device in tf.config.list_logical_devices()}
        for worker, device in enumerate(self._devices.steps):
            if device not in there:
                raise UserError(
                    f"--gpus-per-worker: worker {worker} sees no GPU (there is no device {device});"
                    " look at its driver and its CUDA_VISIBLE_DEVICES, install TensorFlow with CUDA"
                    " (pip install tensorflow[and-cuda]), or use --gpus-per-worker 0"
                )

    def _is_gone(self, server: Server) -> bool:
        state = self._pool.states()[server]
        return not state.is_alive or state.generation != self._known[server]

    def _connect_again(self) -> None:
        """Connects to new servers, unless another thread is about to."""
        if not self._renewing.acquire(blocking=False):
            return
        try:
            with suppress(*TRANSIENT_ERRORS):  # then those who find the loss try again
                self._reconnect()
        finally:
            self._renewing.release()

    def _reconnect(self) -> None:
        """Connects, or ends this process: where TensorFlow hangs, only another chief helps."""
        with _limited(_RECONNECT_SECONDS):
            reconnect(self._addresses)

    def _renew(self, servers: Sequence[Server]) -> None:
        """Replaces servers unless that has happened already, and connects again.

        Others that have died meanwhile are replaced as well: TensorFlow connects to all or none.
        """
        deadline = None
        with self._renewing:
            while True:
                self._pool.renew(
                    server
                    for server, state in self._pool.states().items()
                    if not state.is_alive
                    or (server in servers and state.generation == self._known[server])
                )
                # Not before: they may have been waited for.
                deadline = deadline or time.monotonic() + _RECONNECT_SECONDS
                # Before connecting: what is replaced after that is another loss.
                states = self._pool.states()
                try:
                    self._reconnect()
                    break
                except TRANSIENT_ERRORS as error:
                    if time.monotonic() > deadline:
                        raise RetryableError(
                            f"the chief cannot connect to its servers again ({one_line(error)})"
                        ) from error
                time.sleep(_PAUSE_SECONDS)
            for server in servers:
                self._known[server] = states[server].generation


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends this process where TensorFlow hangs: nothing else ends its calls."""
    alarm = threading.Timer(seconds, _end_this_process)
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


def _end_this_process() -> None:
    print(
        "error: the chief cannot connect to its servers: TensorFlow waits for one that hangs, or"
        " for a call to one that died in the middle of it",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def _worker(worker: int) -> Server:
    return ("worker", worker)


def _server(worker: int | None) -> Server:
    return _PARAMETER_SERVER if worker is None else _worker(worker)


def _number(server: Server) -> int | None:
    return None if server == _PARAMETER_SERVER else server[1]
