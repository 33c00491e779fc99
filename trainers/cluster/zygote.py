"""Imports TensorFlow once and forks the servers and the chief of a cluster from itself.

    python -m syncswitch.trainers.cluster.zygote SOCKET_FD WORKLOAD WORKERS

A fresh import for each server would take half a minute on a busy machine; a fork takes a tenth of
a second (on CPUs: a GPU has to be chosen before the import). The zygote itself never starts
TensorFlow's runtime. It ends when its standard input does, and the kernel ends its children then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NoReturn

from syncswitch.storage.errors import FatalError, SyncSwitchError, one_line
from syncswitch.storage.records import Evaluation
from syncswitch.trainers.cluster.messages import (
    Failed,
    Finished,
    Message,
    Progress,
    Ready,
    Tested,
    Train,
    VerdictIs,
)
from syncswitch.trainers.cluster.network import die_with_parent, free_ports, isolate_network
from syncswitch.trainers.trainer import Trainer, Verdict

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.servers import ClusterAddresses

_FIRST_PRIVATE_PORT = 20000


def main() -> None:
    """Starts the cluster and waits for the end of standard input or of the chief."""
    socket_fd, reference, workers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    private_network = isolate_network()
    from syncswitch.trainers.cluster.servers import cluster_addresses, serve

    ports = (
        list(range(_FIRST_PRIVATE_PORT, _FIRST_PRIVATE_PORT + workers + 2))
        if private_network
        else free_ports(workers + 2)
    )
    addresses = cluster_addresses(ports)

    def server(job: str, task: int) -> Callable[[], None]:
        def run() -> None:
            # Only the chief may hold the socket, or its end would not be seen at the other side.
            os.close(socket_fd)
            serve(addresses, job, task)

        return run

    names = {_fork(server("ps", 0)): "ps 0"}
    for task in range(workers):
        names[_fork(server("worker", task))] = f"worker {task}"
    chief = _fork(
        lambda: _be_chief(Connection(socket_fd), addresses, reference, workers, private_network)
    )
    os.close(socket_fd)
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
    _wait_for(chief, names)


def _fork(run: Callable[[], None]) -> int:
    process_id = os.fork()
    if process_id:
        return process_id
    status = 1
    try:
        die_with_parent()
        sys.stdin.close()
        run()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        # Not sys.exit: what the zygote has registered to do at its exit is not the child's to do.
        os._exit(status)


def _exit_at_end_of_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


def _wait_for(chief: int, names: dict[int, str]) -> NoReturn:
    while True:
        process_id, status = os.wait()
        if process_id == chief:
            os._exit(1 if status else 0)
        code = os.waitstatus_to_exitcode(status)
        print(f"server {names.get(process_id)} ended with status {code}", file=sys.stderr)


def _be_chief(
    connection: Connection,
    addresses: ClusterAddresses,
    reference: str,
    workers: int,
    private_network: bool,
) -> None:
    from syncswitch.trainers.cluster.servers import ServersLauncher
    from syncswitch.trainers.cluster.trainer import ClusterTrainer
    from syncswitch.trainers.workload import load_workload

    talker = _Talker(connection)
    try:
        trainer = ClusterTrainer(load_workload(reference), workers, ServersLauncher(addresses))
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


def _failure(error: Exception) -> Failed:
    if isinstance(error, SyncSwitchError):
        return Failed(type(error).__name__, str(error))
    return Failed(FatalError.__name__, one_line(error))


if __name__ == "__main__":
    main()
