"""Imports TensorFlow once and forks the servers and the chief of a cluster from itself.

    python -m syncswitch.trainers.cluster.zygote SOCKET_FD WORKLOAD WORKERS [PROXIED_WORKER ...]

A fresh import for each server would take half a minute on a busy machine; a fork takes a tenth of
a second (on CPUs: a GPU has to be chosen before the import). The zygote itself never starts
TensorFlow's runtime, and has one thread, so that it can fork at any time. It ends when its standard
input does, and the kernel ends its children then.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, NoReturn

from syncswitch.storage.errors import FatalError, SyncSwitchError, one_line
from syncswitch.storage.records import Evaluation, RunEvent
from syncswitch.trainers.cluster.keeper import Keeper, KeeperClient, Server, fork
from syncswitch.trainers.cluster.messages import (
    Failed,
    Finished,
    Happened,
    Message,
    Progress,
    Ready,
    Tested,
    Train,
    VerdictIs,
)
from syncswitch.trainers.cluster.network import free_ports, isolate_network
from syncswitch.trainers.trainer import Trainer, Verdict

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.servers import ServersLauncher

_FIRST_PRIVATE_PORT = 20000
_STANDARD_INPUT = 0


def main() -> None:
    """Starts the cluster and waits for the end of standard input or of the chief."""
    socket_fd, reference, workers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    proxied = [int(argument) for argument in sys.argv[4:]]
    private_network = isolate_network()
    from syncswitch.trainers.cluster.servers import ServersLauncher, cluster_addresses, serve

    count = workers + 2 + len(proxied)
    first = _FIRST_PRIVATE_PORT
    ports = list(range(first, first + count)) if private_network else free_ports(count)
    # A worker listens where its proxy sends to, and the others know the proxy.
    behind = dict(zip(proxied, ports[workers + 2 :], strict=True))
    addresses = cluster_addresses(ports[: workers + 2])
    own_ports: dict[Server, int] = {("ps", 0): ports[1]}
    for worker in range(workers):
        own_ports["worker", worker] = behind.get(worker, ports[2 + worker])

    def be_server(job: str, task: int) -> None:
        serve(addresses, job, task, own_ports[job, task])

    control, chiefs_control = multiprocessing.Pipe()
    keeper = Keeper(
        own_ports,
        be_server,
        {worker: ports[2 + worker] for worker in proxied},
        (socket_fd, control.fileno(), chiefs_control.fileno()),
    )
    keeper.start()

    def be_chief() -> None:
        control.close()
        launcher = ServersLauncher(addresses, KeeperClient(chiefs_control))
        _be_chief(Connection(socket_fd), launcher, reference, workers, private_network)

    chief = fork(be_chief)
    os.close(socket_fd)
    chiefs_control.close()
    keeper.close_in_children = (control.fileno(),)
    _keep(keeper, control, chief)


def _keep(keeper: Keeper, control: Connection, chief: int) -> NoReturn:
    status = 0
    while True:
        ready: Sequence[object] = wait([control, _STANDARD_INPUT])
        if _STANDARD_INPUT in ready and not os.read(_STANDARD_INPUT, 1):
            break
        if control in ready:
            try:
                keeper.answer(control)
            except (EOFError, OSError):
                status = 1 if os.waitpid(chief, 0)[1] else 0
                break
    keeper.close()
    os._exit(status)


def _be_chief(
    connection: Connection,
    launcher: ServersLauncher,
    reference: str,
    workers: int,
    private_network: bool,
) -> None:
    from syncswitch.trainers.cluster.trainer import ClusterTrainer
    from syncswitch.trainers.workload import load_workload

    talker = _Talker(connection)
    try:
        trainer = ClusterTrainer(load_workload(reference), workers, launcher)
    except Exception as error:
        talker.send(_failure(error))
        raise
    talker.send(Ready(private_network))
    talker.serve(trainer)


class _Talker:
    """The chief's end of the socket; also the observer of the trials it is asked for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The main thread reports progress while the evaluator's reports evaluations.
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        with self._sending:
            self._connection.send(message)

    def serve(self, trainer: Trainer) -> None:
        while True:
            try:
                request = self._connection.recv()
            except EOFError:
                return
            assert isinstance(request, Train)
            try:
                self.send(Finished(trainer.train(request.spec, self)))
            except SyncSwitchError as error:
                self.send(_failure(error))

    def on_progress(self, worker_step: int) -> None:
        self.send(Progress(worker_step))

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        self.send(Tested(evaluation))
        answer = self._connection.recv()
        assert isinstance(answer, VerdictIs)
        return answer.verdict

    def on_event(self, event: RunEvent) -> None:
        self.send(Happened(event))


def _failure(error: Exception) -> Failed:
    if isinstance(error, SyncSwitchError):
        return Failed(type(error).__name__, str(error))
    return Failed(FatalError.__name__, one_line(error))


if __name__ == "__main__":
    main()
