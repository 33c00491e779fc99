"""Ways to train one size of model; each is a process that measures once, and ends.

    python -m benchmarks.scale_rows ROW SIZE SECONDS PATIENCE_SECONDS

Prints worker-steps per second.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks import all_reduce, engines, loopback, sharded_embeddings
from benchmarks.console import at_most
from benchmarks.engines import WORKERS, Train
from benchmarks.private_network import free_ports, isolate_network
from benchmarks.sizes import PARAMETERS, SPARSE, WORKLOADS
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialSpec
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.parent import die_with_parent
from syncswitch.trainers.trainer import Trainer, Verdict

Row = Callable[[str, float], float]
"""Worker-steps per second, of a size of model, measured for so many seconds."""

STRATEGY = "ParameterServerStrategy"
LOOPBACK = "plain loopback sockets"
LARGEST_GROWTH = 8
SECRET = "of the benchmark"


class _Stopwatch:
    """Stops a run after it was measured long enough; it warms up until the first test."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.tests: list[Evaluation] = []

    def on_progress(self, worker_step: int) -> None:
        """Waits for the tests, which say when."""

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        self.tests.append(evaluation)
        took = evaluation.elapsed_seconds - self.tests[0].elapsed_seconds
        is_done = len(self.tests) > 1 and took >= self._seconds
        return Verdict.STOP if is_done else Verdict.CONTINUE

    def on_event(self, event: RunEvent) -> None:
        """Reports what would spoil the figure."""
        print(f"{event.kind}: {event.reason}", file=sys.stderr)

    def rate(self) -> float:
        first, last = self.tests[0], self.tests[-1]
        steps = last.worker_step - first.worker_step
        return steps / (last.elapsed_seconds - first.elapsed_seconds)


def _measured(
    trainer: Trainer, size: str, switch_percent: float, seconds: float, second: str = "asp"
) -> float:
    identity = workload_identity(load_workload(WORKLOADS[size]), WORKERS, "bsp", second)
    stopwatch = _Stopwatch(seconds)
    with trainer:
        trainer.train(TrialSpec(identity, switch_percent, 0), stopwatch)
    return stopwatch.rate()


def processes(switch_percent: float, servers: int = 1, second: str = "asp") -> Row:
    """Ours with its workers as processes, as a user gets it."""

    def row(size: str, seconds: float) -> float:
        from syncswitch.trainers.cluster.processes.this_machine import LocalLauncher
        from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer

        launcher = LocalLauncher(servers=servers)
        trainer = ProcessTrainer(WORKLOADS[size], WORKERS, launcher)
        return _measured(trainer, size, switch_percent, seconds, second)

    return row


def sockets(switch_percent: float, servers: int = 1, *, is_open: bool = False) -> Row:
    """Ours over sockets of loopback, its parts started one by one as on several machines.

    What they say is encrypted, unless the network is open to all.
    """

    def row(size: str, seconds: float) -> float:
        from syncswitch.trainers.cluster.processes.tf_config import TfConfig, TfConfigLauncher
        from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer

        chief, *others = (f"127.0.0.1:{port}" for port in free_ports(1 + servers + WORKERS))
        addresses = {
            "chief": (chief,),
            "ps": tuple(others[:servers]),
            "worker": tuple(others[servers:]),
        }
        for job in ("ps", "worker"):
            for task in range(len(addresses[job])):
                _start_part(addresses, job, task, WORKLOADS[size], is_open)
        config = TfConfig(addresses, "chief", 0)
        secret = None if is_open else SECRET.encode()
        launcher = TfConfigLauncher(config, 120.0, secret)
        trainer = ProcessTrainer(WORKLOADS[size], WORKERS, launcher)
        return _measured(trainer, size, switch_percent, seconds)

    return row


def _start_part(
    addresses: Mapping[str, Sequence[str]], job: str, task: int, workload: str, is_open: bool
) -> None:
    task_config = {"cluster": addresses, "task": {"type": job, "index": task}}
    own = {
        "TF_CONFIG": json.dumps(task_config),
        "SYNCSWITCH_SECRET": SECRET,
        # All of them share the machine.
        "TF_NUM_INTRAOP_THREADS": "1",
    }
    program = "from syncswitch.cli.program import run; run()"
    options = ["--server-grace", "1", *["--open-network"] * is_open]
    subprocess.Popen(
        [sys.executable, "-c", program, workload, *options],
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def threads(switch_percent: float) -> Row:
    """Ours with its workers as threads of one process."""

    def row(size: str, seconds: float) -> float:
        from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
        from syncswitch.trainers.model.tensorflow_api import prepare_for_threads

        prepare_for_threads(WORKERS)
        trainer = ClusterTrainer(load_workload(WORKLOADS[size]), WORKERS)
        return _measured(trainer, size, switch_percent, seconds)

    return row


def strategy(size: str, seconds: float) -> float:
    if not isolate_network():
        print("no private network: servers listen on all interfaces", file=sys.stderr)
    return rate(engines.coordinator(load_workload(WORKLOADS[size])), seconds)


def all_reduced(size: str, seconds: float) -> float:
    if not isolate_network():
        print("no private network: workers listen on all interfaces", file=sys.stderr)
    return rate(all_reduce.ring(WORKLOADS[size]), seconds)


def sharded(servers: int) -> Row:
    """The strategy with embeddings sharded by rows, for the size that has some."""

    def row(size: str, seconds: float) -> float:
        if not isolate_network():
            print("no private network: servers listen on all interfaces", file=sys.stderr)
        return rate(sharded_embeddings.coordinator(servers), seconds)

    return row


def single(size: str, seconds: float) -> float:
    return rate(engines.single(load_workload(WORKLOADS[size])), seconds)


def plain_loopback(size: str, seconds: float) -> float:
    return loopback.worker_steps_per_second(PARAMETERS[size], WORKERS, seconds)


def sealed_loopback(size: str, seconds: float) -> float:
    return loopback.worker_steps_per_second(PARAMETERS[size], WORKERS, seconds, loopback.sealed)


def rate(train: Train, seconds: float) -> float:
    """Worker-steps per second; trains a round first that does not count, then longer ones."""
    steps = 2 * WORKERS
    train(steps)
    while (took := train(steps)) < seconds:
        steps = math.ceil(steps * min(LARGEST_GROWTH, 1.1 * seconds / took))
    return steps / took


REPLICATED: dict[str, Row] = {
    f"{name}, processes": processes(0.0, second=second)
    for name, second in (
        ("local SGD, every 8", "local-sgd:8"),
        ("the same, semi-synchronous", "local-sgd:8:semi-sync"),
    )
}
"""For models that every worker has a replica of."""
ROWS: dict[str, Row] = {
    "ASP, processes": processes(0.0),
    "BSP, processes": processes(100.0),
    **REPLICATED,
    "ASP, processes, 2 servers": processes(0.0, servers=2),
    "BSP, processes, 2 servers": processes(100.0, servers=2),
    "ASP, processes over sockets": sockets(0.0),
    "BSP, processes over sockets": sockets(100.0),
    "ASP, sockets, not encrypted": sockets(0.0, is_open=True),
    "BSP, sockets, not encrypted": sockets(100.0, is_open=True),
    "ASP, over sockets, 2 servers": sockets(0.0, servers=2),
    "BSP, over sockets, 2 servers": sockets(100.0, servers=2),
    "ASP, threads of one process": threads(0.0),
    "BSP, threads of one process": threads(100.0),
    STRATEGY: strategy,
    "MultiWorkerMirroredStrategy": all_reduced,
    "one process, not distributed": single,
    LOOPBACK: plain_loopback,
    "the same, encrypted": sealed_loopback,
}


SPARSE_ROWS: dict[str, Row] = {
    **{
        name: ROWS[name]
        for name in ROWS
        if name not in REPLICATED and ("processes" in name or "sockets, 2" in name)
    },
    STRATEGY: sharded(1),
    f"{STRATEGY}, 2 servers": sharded(2),
}
"""For embeddings."""


def rows_of(size: str) -> dict[str, Row]:
    """The rows that are measured for a size."""
    return SPARSE_ROWS if size == SPARSE else ROWS


def main() -> None:
    die_with_parent()
    name, size, seconds, patience_seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:5])
    with at_most(patience_seconds, name):
        print(rows_of(size)[name](size, seconds), flush=True)


if __name__ == "__main__":
    main()
