"""Worker-steps per second of ways to train the same model, side by side in one run.

    python -m tests.benchmarks.throughput [--rounds 7] [--worker-steps 1000] [--engines NAME ...]

The engines take turns, so that a machine whose speed drifts does so for all of them; the ratio is
the median of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version

from rich.console import Console

from tests.benchmarks.console import new_table
from tests.benchmarks.engines import ENGINES, REFERENCE, WORKERS
from tests.private_network import isolate_network

# For the start of an engine, or a round of it; usual are some seconds.
PATIENCE_SECONDS = 300.0


class Engine:
    """A running engine.

    Args:
        name: In messages.
        command: Its program; see `engines`.
        worker_steps: Of a round.
    """

    def __init__(self, name: str, command: Sequence[str], worker_steps: int) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (for as long as the engine runs)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "SYNCSWITCH_BENCHMARK_WORKER_STEPS": str(worker_steps)},
            text=True,
        )

    def wait_until_ready(self) -> None:
        self._read()

    def measure(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE_SECONDS)[0]:
            text = f"error: {self._name} is silent for {PATIENCE_SECONDS:g} s{self._last_line()}"
            raise SystemExit(text)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self._name} died{self._last_line()}")
        return line

    def _last_line(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")


def main() -> None:
    options = _options()
    # TensorFlow's servers would listen on all interfaces.
    private = isolate_network()
    engines: dict[str, Engine] = {}
    try:
        for name in options.engines:
            command = [sys.executable, "-m", "tests.benchmarks.engines", name]
            engines[name] = Engine(name, command, options.worker_steps)
            engines[name].wait_until_ready()
        figures: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(options.rounds):
            for name, engine in engines.items():
                figures[name].append(engine.measure())
    finally:
        for engine in engines.values():
            engine.close()
    _show(figures, options, "" if private else ", shared network")


def _show(figures: dict[str, list[float]], options: argparse.Namespace, network: str) -> None:
    reference = REFERENCE if REFERENCE in figures else next(iter(figures))
    columns = ("engine", "worker-steps/s (min, median, max)", "ratio (min, median, max)")
    table = new_table(
        *columns,
        title=f"digits, {WORKERS} workers, {options.rounds} rounds of {options.worker_steps:,}"
        f" worker-steps{network}",
        caption=f"Ratio: to {reference}, in the same round. TensorFlow {version('tensorflow')},"
        f" Python {platform.python_version()}, {os.cpu_count()} cores.",
    )
    for name, values in figures.items():
        ratios = [a / b for a, b in zip(values, figures[reference], strict=True)]
        table.add_row(name, _spread(values, ",.0f"), _spread(ratios, ".2f"))
    Console(width=110).print(table)


def _spread(values: list[float], form: str) -> str:
    return ", ".join(format(f(values), form) for f in (min, statistics.median, max))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ways to train the same model, side by side.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker-steps", type=int, default=1000)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    return parser.parse_args()


if __name__ == "__main__":
    main()
