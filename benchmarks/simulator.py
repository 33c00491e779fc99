"""Gradients per second of simulated training, against one gradient at a time.

    python -m benchmarks.simulator [--rounds 5] [--gradients 2048] [--workers 8 64 1024]

The clusters take turns, so that a drift of the machine's speed affects all of them. On a machine
that is busy, the processor's time is more telling than the clock's.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.simulated.executor import GradientSource
from syncswitch.trainers.simulated.profile import load_profile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity
from syncswitch.trainers.workloads.digits import workload as digits

ALONE = "8 workers, one at a time"


class Cluster:
    """A simulated cluster that is measured repeatedly."""

    def __init__(self, workers: int, gradients: int, *, at_once: bool = True) -> None:
        # A rate at which no run diverges, so that all do the same work.
        workload = replace(
            digits,
            total_worker_steps=gradients,
            learning_rate=1e-4,
            learning_rate_boundaries=(),
            evaluation_interval_worker_steps=gradients,
        )
        self._gradients = gradients
        profile = load_profile("uniform")
        self._identity = simulated_identity(workload, workers, ("bsp", "asp"), profile)
        self._trainer = SimulatedTrainer(workload, workers, profile)
        if not at_once:
            trainer, data = self._trainer, workload.load_data()
            trainer._source = GradientSource(workload, data, trainer._function, 1)

    def seconds(self, switch_percent: float) -> tuple[float, float]:
        """Seconds per gradient, of the clock and of the processor."""
        start, processor = time.perf_counter(), time.process_time()
        self._trainer.train(TrialSpec(self._identity, switch_percent, 0))
        taken = time.perf_counter() - start, time.process_time() - processor
        return taken[0] / self._gradients, taken[1] / self._gradients


def main() -> None:
    options = parser(__doc__, rounds=5, gradients=2048, workers=[8, 64, 1024]).parse_args()
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with at_most(600 * (1 + options.rounds)):
        gradients = options.gradients
        clusters = {f"{size:,} workers": Cluster(size, gradients) for size in options.workers}
        clusters[ALONE] = Cluster(8, gradients, at_once=False)
        for turn in range(1 + options.rounds):
            for protocol, percent in (("ASP", 0.0), ("BSP", 100.0)):
                for name, cluster in clusters.items():
                    taken = cluster.seconds(percent)
                    if turn > 0:  # the first compiles
                        figures.setdefault((name, protocol), []).append(taken)
    columns = ("cluster", "protocol", "gradients/s", "times one at a time", "by the processor")
    title = f"digits, medians of {options.rounds} rounds of {options.gradients:,} gradients"
    table = new_table(*columns, left=2, title=title)
    for (name, protocol), values in figures.items():
        pairs = list(zip(values, figures[ALONE, protocol], strict=True))
        ratios = [
            statistics.median(alone[clock] / value[clock] for value, alone in pairs)
            for clock in (0, 1)
        ]
        rate = statistics.median(1 / value[0] for value in values)
        table.add_row(name, protocol, f"{rate:,.0f}", *(f"{ratio:.2f}" for ratio in ratios))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
