"""Ways to train one size of model; each is a process that measures once, and ends.

    python -m tests.benchmarks.scale_rows ROW SIZE SECONDS

Prints worker-steps per second.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialSpec
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.parent import die_with_parent
from syncswitch.trainers.trainer import Trainer, Verdict
from tests.benchmarks import engines, loopback
from tests.benchmarks.engines import WORKERS, Train
from tests.benchmarks.limit import at_most
from tests.benchmarks.sizes import PARAMETERS, WORKLOADS
from tests.private_network import isolate_network

Row = Callable[[str, float], float]
"""Worker-steps per second, of a size of model, measured for so many seconds."""

STRATEGY = "ParameterServerStrategy"
LOOPBACK = "plain loopback sockets"
LARGEST_GROWTH = 8


class _Stopwatch:
    """Stops a run when it was measured for long enough; the part to the first test warms it up."""

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
        """Says what would spoil the figure."""
        print(f"{event.kind}: {event.reason}", file=sys.stderr)

    def rate(self) -> float:
        first, last = self.tests[0], self.tests[-1]
        steps = last.worker_step - first.worker_step
        return steps / (last.elapsed_seconds - first.elapsed_seconds)


def _measured(trainer: Trainer, size: str, switch_percent: float, seconds: float) -> float:
    identity = workload_identity(load_workload(WORKLOADS[size]), WORKERS, "bsp", "asp")
    stopwatch = _Stopwatch(seconds)
    with trainer:
        trainer.train(TrialSpec(identity, switch_percent, 0), stopwatch)
    return stopwatch.rate()


def processes(switch_percent: float) -> Row:
    """Ours with its workers as processes, as a user gets it."""

    def row(size: str, seconds: float) -> float:
        from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer

        return _measured(ProcessTrainer(WORKLOADS[size], WORKERS), size, switch_percent, seconds)

    return row


def threads(switch_percent: float) -> Row:
    """Ours with its workers as threads of one process."""

    def row(size: str, seconds: float) -> float:
        from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer

        trainer = ClusterTrainer(load_workload(WORKLOADS[size]), WORKERS)
        return _measured(trainer, size, switch_percent, seconds)

    return row


def strategy(size: str, seconds: float) -> float:
    if not isolate_network():
        print("no private network: servers listen on all interfaces", file=sys.stderr)
    return rate(engines.coordinator(load_workload(WORKLOADS[size])), seconds)


def single(size: str, seconds: float) -> float:
    return rate(engines.single(load_workload(WORKLOADS[size])), seconds)


def plain_loopback(size: str, seconds: float) -> float:
    return loopback.worker_steps_per_second(PARAMETERS[size], WORKERS, seconds)


def rate(train: Train, seconds: float) -> float:
    """Worker-steps per second; trains a round first that does not count, then longer ones."""
    steps = 2 * WORKERS
    train(steps)
    while (took := train(steps)) < seconds:
        steps = math.ceil(steps * min(LARGEST_GROWTH, 1.1 * seconds / took))
    return steps / took


ROWS: dict[str, Row] = {
    "ASP, processes": processes(0.0),
    "BSP, processes": processes(100.0),
    # Those over sockets, as between machines, belong here.
    "ASP, threads of one process": threads(0.0),
    "BSP, threads of one process": threads(100.0),
    STRATEGY: strategy,
    "one process, not distributed": single,
    LOOPBACK: plain_loopback,
}


def main() -> None:
    die_with_parent()
    name, size, seconds, patience_seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:5])
    with at_most(patience_seconds, name):
        print(ROWS[name](size, seconds), flush=True)


if __name__ == "__main__":
    main()
