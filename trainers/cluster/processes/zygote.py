"""Imports TensorFlow once and forks the servers and the chief of a cluster from itself.

    python -m syncswitch.trainers.cluster.processes.zygote \
        SOCKET_FD WORKLOAD PLACEMENT NETWORK [PROXIED ...]

A fresh import for each server would take half a minute on a busy machine; a fork takes a tenth of a
second. But a GPU has to be chosen before the import: with GPUs a fork becomes a fresh program,
still a child of the zygote. The zygote itself never starts TensorFlow's runtime, and has one
thread, so that it can fork at any time. It ends when its standard input does, and the kernel ends
its children then.

NETWORK says whether others may reach the servers: `open` or `private`. PROXIED are the numbers of
workers behind a delaying proxy.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import NoReturn

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.chief import serve_trials
from syncswitch.trainers.cluster.processes.messages import Failed
from syncswitch.trainers.cluster.servers.forked_pool import ForkedPool, ForkedPoolClient, fork
from syncswitch.trainers.cluster.servers.network import (
    NO_PRIVATE_NETWORK,
    free_ports,
    isolate_network,
)
from syncswitch.trainers.cluster.servers.placement import Placement
from syncswitch.trainers.cluster.servers.pool import Server
from syncswitch.trainers.trainer import Trainer

_FIRST_PRIVATE_PORT = 20000
_STANDARD_INPUT = 0


def main() -> None:
    """Starts the cluster and waits for the end of standard input or of the chief."""
    socket_fd, reference = int(sys.argv[1]), sys.argv[2]
    placement = Placement.from_json(sys.argv[3])
    workers = len(placement.workers)
    may_be_open = sys.argv[4] == "open"
    proxied = [int(argument) for argument in sys.argv[5:]]
    private_network = isolate_network()
    if not (private_network or may_be_open):
        Connection(socket_fd).send(Failed(UserError.__name__, NO_PRIVATE_NETWORK))
        return
    os.environ.update(placement.others)
    from syncswitch.trainers.cluster.servers.server import become_server, serve
    from syncswitch.trainers.cluster.servers.servers_launcher import (
        ServersLauncher,
        cluster_addresses,
    )

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
        port = own_ports[job, task]
        if placement.needs_fresh_processes:
            become_server(addresses, job, task, port, placement.environment(job, task))
        serve(addresses, job, task, port)

    control, chiefs_control = multiprocessing.Pipe()
    pool = ForkedPool(
        own_ports,
        be_server,
        {worker: ports[2 + worker] for worker in proxied},
        (socket_fd, control.fileno(), chiefs_control.fileno()),
        are_fresh=placement.needs_fresh_processes,
    )
    pool.start()

    def make_trainer() -> Trainer:
        from syncswitch.trainers.cluster.parameter_server.trainer import ClusterTrainer
        from syncswitch.trainers.job.loading import load_workload

        launcher = ServersLauncher(addresses, ForkedPoolClient(chiefs_control), placement.devices)
        return ClusterTrainer(load_workload(reference), workers, launcher)

    def run_chief() -> None:
        control.close()
        serve_trials(Connection(socket_fd), make_trainer, private_network=private_network)

    chief = fork(run_chief)
    os.close(socket_fd)
    chiefs_control.close()
    pool.close_in_children = (control.fileno(),)
    _keep(pool, control, chief)


def _keep(pool: ForkedPool, control: Connection, chief: int) -> NoReturn:
    status = 0
    while True:
        ready: Sequence[object] = wait([control, _STANDARD_INPUT])
        if _STANDARD_INPUT in ready and not os.read(_STANDARD_INPUT, 1):
            break
        if control in ready:
            try:
                pool.answer(control)
            except (EOFError, OSError):
                status = os.waitstatus_to_exitcode(os.waitpid(chief, 0)[1])
                if status < 0:  # as shells say it
                    status = 128 - status
                break
    pool.close()
    os._exit(status)


if __name__ == "__main__":
    main()
