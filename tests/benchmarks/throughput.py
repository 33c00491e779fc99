"""Worker-steps per second of ways to train the same model, side by side in one run.

    python -m tests.benchmarks.throughput [ROUNDS]

The engines take turns, so that a machine whose speed drifts does so for all of them; the ratio is
the median of the ratios of the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table

from syncswitch.trainers.cluster.network import isolate_network
from tests.benchmarks.engines import ENGINES, WORKERS
from tests.benchmarks.workload import WORKER_STEPS

REFERENCE = "TensorFlow ParameterServerStrategy, servers"


class Engine:
    """A running engine."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.engines", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read()

    def measure(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"an engine died: {self._process.args}")
        return line


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    # TensorFlow's servers would listen on all interfaces.
    private = isolate_network()
    engines = {name: Engine(name) for name in ENGINES}
    try:
        figures: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(rounds):
            for name, engine in engines.items():
                figures[name].append(engine.measure())
    finally:
        for engine in engines.values():
            engine.close()
    table = Table(
        title=f"digits, {WORKERS} workers, {rounds} rounds of {WORKER_STEPS:,} worker-steps"
        + ("" if private else ", shared network")
    )
    for column in ("engine", "worker-steps/s (min, median, max)", "ratio (min, median, max)"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for name, values in figures.items():
        ratios = [a / b for a, b in zip(values, figures[REFERENCE], strict=True)]
        table.add_row(name, _spread(values, ",.0f"), _spread(ratios, ".2f"))
    Console(width=110).print(table)


def _spread(values: list[float], form: str) -> str:
    return ", ".join(format(f(values), form) for f in (min, statistics.median, max))


if __name__ == "__main__":
    main()
