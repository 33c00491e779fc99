"""Worker-steps and bytes per second against the size of the model, side by side in one run.

    python -m benchmarks.scale [--sizes 14k,17m,100m] [--seconds 10] [--rounds 1]
        [--rows NAME ...]

Each row is a process of its own that has the machine for itself; building the model, starting
servers and the first steps do not count. With several rounds the rows take turns, so that a machine
whose speed drifts does so for all of them, and figures are
medians. The largest size needs 12 GB of memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version

from rich.console import Console
from rich.table import Table

from benchmarks.console import new_table, parser
from benchmarks.engines import WORKERS
from benchmarks.scale_rows import LOOPBACK, ROWS, SPARSE_ROWS, STRATEGY, rows_of
from benchmarks.sizes import PARAMETERS, SPARSE

# All parameters are pulled, and a gradient of each is pushed, in float32; of embeddings the rows of
# a batch.
BYTES_OF_A_PARAMETER = 8
COLUMNS = ("engine", "worker-steps/s", "GB/s", f"of {STRATEGY}", "of loopback")
START_SECONDS = 300.0


def main() -> None:
    options = _options()
    for size in options.sizes:
        names = [name for name in options.rows if name in rows_of(size)]
        rounds = [
            {name: _measured(name, size, options.seconds) for name in names}
            for _ in range(options.rounds)
        ]
        figures = {name: _median([one[name] for one in rounds]) for name in names}
        # Wide enough for any terminal: lines are not broken.
        Console(width=120).print(_table(size, figures, options.seconds))
        for name, found in figures.items():
            if isinstance(found, str):
                print(f"{name}: {found}")


def _measured(name: str, size: str, seconds: float) -> float | str:
    """Worker-steps per second, or why there is no figure."""
    patience_seconds = START_SECONDS + 20 * seconds
    arguments = [name, size, str(seconds), str(patience_seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale_rows", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return float(done.stdout.split()[-1])
    # TensorFlow may have said more.
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: ")] or lines
    return errors[-1] if errors else f"error: it ended with status {done.returncode}"


def _median(found: Sequence[float | str]) -> float | str:
    return next((one for one in found if isinstance(one, str)), None) or statistics.median(
        map(float, found)
    )


def _table(size: str, figures: dict[str, float | str], seconds: float) -> Table:
    table = new_table(
        *COLUMNS,
        title=f"{PARAMETERS[size]:,} parameters, {WORKERS} workers, {seconds:g} s each",
        caption=f"TensorFlow {version('tensorflow')}, Python {platform.python_version()},"
        f" {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}",
    )
    for name, found in figures.items():
        if isinstance(found, str):
            table.add_row(name, "no figure")
            continue
        ratios = (_ratio(found, figures.get(other)) for other in (STRATEGY, LOOPBACK))
        gigabytes = found * PARAMETERS[size] * BYTES_OF_A_PARAMETER / 1e9
        carried = "-" if size == SPARSE else _short(gigabytes)
        table.add_row(name, _short(found), carried, *ratios)
    return table


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.{2 if figure >= 1 else 3}f}"


def _ratio(rate: float, other: float | str | None) -> str:
    return _short(rate / other) if isinstance(other, float) else "-"


def _options() -> argparse.Namespace:
    made = parser(__doc__, sizes=",".join(PARAMETERS), seconds=10.0, rounds=1)
    names = list(ROWS | SPARSE_ROWS)
    made.add_argument("--rows", nargs="+", choices=names, default=names)
    options = made.parse_args()
    options.sizes = options.sizes.split(",")
    for unknown in set(options.sizes) - set(PARAMETERS):
        made.error(f"--sizes: there is no {unknown!r}; give some of {','.join(PARAMETERS)}")
    return options


if __name__ == "__main__":
    main()
