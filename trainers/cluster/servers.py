"""A cluster of real TensorFlow servers, one process each."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from syncswitch.storage.errors import FatalError, RetryableError, one_line
from syncswitch.trainers.cluster.keeper import KeeperClient, Server
from syncswitch.trainers.cluster.launchers import Casualty, Devices, Launcher
from syncswitch.trainers.model.tensorflow_api import TRANSIENT_ERRORS, reconnect, tf

__all__ = ["ClusterAddresses", "ServersLauncher", "cluster_addresses", "serve"]

ClusterAddresses = Mapping[str, Sequence[str]]

_DEVICE = "/job:{job}/replica:0/task:{task}/device:CPU:0"
_PARAMETER_SERVER: Server = ("ps", 0)
_RECONNECT_SECONDS = 10.0
_PAUSE_SECONDS = 0.1


def cluster_addresses(ports: Sequence[int]) -> ClusterAddresses:
    """Addresses by job: the chief, one parameter server, and a worker for each further port."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    return {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}


def serve(addresses: ClusterAddresses, job: str, task: int, port: int) -> None:
    """Is a TensorFlow server until the process is killed.

    Args:
        addresses: As the others know them.
        job: Of this server.
        task: Its number.
        port: At which it listens itself.
    """
    own = {name: list(each) for name, each in addresses.items()}
    own[job][task] = f"127.0.0.1:{port}"
    # Kept in a variable: a server that nobody refers to is stopped.
    server = tf.distribute.Server(
        tf.train.ClusterSpec(own), job_name=job, task_index=task, protocol="grpc"
    )
    while server is not None:
        # Not server.join(): it would ignore signals.
        signal.pause()


class ServersLauncher(Launcher):
    """Connects this process, as the chief, to servers that run already.

    Args:
        addresses: Of the cluster.
        keeper: Replaces servers that are lost.
    """

    has_servers = True

    def __init__(self, addresses: ClusterAddresses, keeper: KeeperClient) -> None:
        self._addresses = addresses
        self._keeper = keeper
        self._renewing = threading.Lock()
        workers = range(len(addresses["worker"]))
        # Which server each of the program's parts is on; a new one knows nothing of them.
        self._known = dict.fromkeys((_PARAMETER_SERVER, *map(_worker, workers)), 0)

    def start(self, workers: int) -> Devices:
        """See `Launcher.start`."""
        if workers != len(self._addresses["worker"]):
            raise FatalError(
                f"{workers} workers asked of a cluster of {len(self._addresses['worker'])}"
            )
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec(self._addresses), job_name="chief", task_index=0
        )
        return Devices(
            chief=_DEVICE.format(job="chief", task=0),
            parameter_server=_DEVICE.format(job="ps", task=0),
            workers=tuple(_DEVICE.format(job="worker", task=task) for task in range(workers)),
        )

    def close(self) -> None:
        """Nothing to stop: whoever started the servers stops them."""

    def casualty(self, worker: int | None, error: BaseException) -> Casualty | None:
        """See `Launcher.casualty`."""
        if not isinstance(error, tf.errors.OpError):
            return None
        if self._is_gone(_PARAMETER_SERVER):
            return Casualty.PARAMETER_SERVER
        is_transient = isinstance(error, TRANSIENT_ERRORS)
        if worker is None:
            return Casualty.PARAMETER_SERVER if is_transient else None
        return Casualty.WORKER if is_transient or self._is_gone(_worker(worker)) else None

    def revive(self, worker: int) -> None:
        """See `Launcher.revive`."""
        self._renew([_worker(worker)])

    def rebuild(self) -> None:
        """See `Launcher.rebuild`."""
        self._renew(list(self._known))

    def replace_dead(self) -> None:
        """See `Launcher.replace_dead`."""
        # Without the lock: whoever holds it may be waiting for one of these.
        if self._keeper.renew_dead():
            # Not here: it waits for servers that hang, and the caller is the one that finds them.
            threading.Thread(target=self._connect_again, name="reconnect", daemon=True).start()

    def is_whole(self) -> bool:
        """See `Launcher.is_whole`."""
        states = self._keeper.states()
        return all(
            state.is_alive and not state.is_stopped and state.generation == self._known[server]
            for server, state in states.items()
        )

    def living(self) -> Mapping[int | None, int]:
        """See `Launcher.living`."""
        states = self._keeper.states()
        return {
            _number(server): state.generation for server, state in states.items() if state.is_alive
        }

    def is_stopped(self, worker: int | None) -> bool:
        """See `Launcher.is_stopped`."""
        return self._keeper.states()[_server(worker)].is_stopped

    def kill(self, worker: int | None, generation: int) -> None:
        """See `Launcher.kill`."""
        server = _server(worker)
        if self._keeper.states()[server].generation == generation:
            self._keeper.signal(server, signal.SIGKILL)

    def signal(self, worker: int | None, number: int) -> None:
        """See `Launcher.signal`."""
        self._keeper.signal(_server(worker), number)

    def delay(self, worker: int, seconds: float) -> None:
        """See `Launcher.delay`."""
        self._keeper.delay(worker, seconds)

    def limit(self, worker: int, cpu_percent: float | None) -> None:
        """See `Launcher.limit`."""
        self._keeper.limit(worker, cpu_percent)

    def _is_gone(self, server: Server) -> bool:
        state = self._keeper.states()[server]
        return not state.is_alive or state.generation != self._known[server]

    def _connect_again(self) -> None:
        """Connects to what is new, unless somebody is about to."""
        if not self._renewing.acquire(blocking=False):
            return
        try:
            with suppress(*TRANSIENT_ERRORS):  # then those who find the loss try again
                self._reconnect()
        finally:
            self._renewing.release()

    def _reconnect(self) -> None:
        """Connects, or ends this process: where TensorFlow hangs, only another chief helps."""
        alarm = threading.Timer(_RECONNECT_SECONDS, _end_this_process)
        alarm.daemon = True
        alarm.start()
        try:
            reconnect()
        finally:
            alarm.cancel()

    def _renew(self, servers: Sequence[Server]) -> None:
        """Replaces servers unless that has happened already, and connects to what there is.

        Others that have died meanwhile are replaced as well: TensorFlow connects to all or none.
        """
        deadline = time.monotonic() + _RECONNECT_SECONDS
        with self._renewing:
            while True:
                self._keeper.renew(
                    server
                    for server, state in self._keeper.states().items()
                    if not state.is_alive
                    or (server in servers and state.generation == self._known[server])
                )
                # Before connecting: what is replaced after that is another loss.
                states = self._keeper.states()
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


def _end_this_process() -> None:
    print(
        "error: the chief cannot connect to its new servers: TensorFlow waits for a call to one"
        " that died in the middle of it",
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
