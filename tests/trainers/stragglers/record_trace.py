"""Records the times of real worker-steps, one of the workers slowed on purpose.

    python -m tests.trainers.stragglers.record_trace

Four workers of the in-process cluster train a small dense model with BSP. From worker-step 400 to
800 worker 2 sleeps three times as long as an undisturbed step takes, before each of its own.
`trace.csv` has a line for each push, in the order in which they came. The one beside this file was
recorded on two busy cores.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import replace

from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.exchange.plans import Push, Task
from syncswitch.trainers.cluster.members.cluster import Cluster
from tests.trainers.jobs import DENSE, spec_of
from tests.trainers.stragglers.traces import TRACE

WORKERS, STRAGGLER, SLOW_FROM, SLOW_TO = 4, 2, 400, 800


class Recorder:
    """Notes how long each gradient takes, and slows one worker."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, int, float]] = []
        self._lock = threading.Lock()
        self._step = Cluster.step

    def step(self, cluster: Cluster, worker: int, task: Task) -> Push:
        start = time.perf_counter()
        if worker == STRAGGLER and SLOW_FROM <= task.worker_step < SLOW_TO:
            with self._lock:
                usual = statistics.median(seconds for *_, seconds in self.lines[:SLOW_FROM])
            time.sleep(3 * usual)
        push = self._step(cluster, worker, task)
        with self._lock:
            self.lines.append((task.worker_step, worker, time.perf_counter() - start))
        return push


def main() -> None:
    workload = replace(DENSE, total_worker_steps=1200)
    recorder = Recorder()
    Cluster.step = lambda *step: recorder.step(*step)  # type: ignore[method-assign]
    with ClusterTrainer(workload, WORKERS) as trainer:
        trainer.train(spec_of(workload, WORKERS, 100.0))
    rows = [f"{step},{worker},{seconds:.6f}\n" for step, worker, seconds in recorder.lines]
    TRACE.write_text("".join(["worker_step,worker,busy_seconds\n", *rows]))


if __name__ == "__main__":
    main()
