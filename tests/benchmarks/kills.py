"""Kills a search with -9 at random moments and compares its end with an undisturbed one.

python -m tests.benchmarks.kills [--kills 20] [--seed 0] [--runs 5] [--settings 5]
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.console import parser
from tests.benchmarks.limit import at_most
from tests.program import TINY_WORKLOAD, run, start

JOB = ("run", "tiny_jobs.py:tiny", "--workers", 2, "--threshold", 0.3, "--json")
# Whether a switch saves time depends on what else the machine does; the mean does not ask.
SEARCH = (*JOB, "--criterion", "mean")


def main() -> None:
    options = parser(__doc__, kills=20, seed=0, runs=5, settings=5).parse_args()
    search = (*SEARCH, "--runs", options.runs, "--settings", options.settings)
    moments = random.Random(options.seed)
    with at_most(1200 + 60 * options.kills):
        with tempfile.TemporaryDirectory() as folder:
            undisturbed = finished_search(Path(folder), search)
        with tempfile.TemporaryDirectory() as folder:
            made = kill(Path(folder), search, options.kills, moments)
            killed = finished_search(Path(folder), search)
    print(f"killed {made} times; undisturbed and killed search:")
    for name in ("completed", "most_often", "policies", "switch_percent", "target_accuracy"):
        print(f"  {name:16} {undisturbed[name]!s:>20} {killed[name]!s:>20}")
    print("same runs" if undisturbed["runs"] == killed["runs"] else "DIFFERENT runs")


def kill(folder: Path, search: Sequence[object], kills: int, moments: random.Random) -> int:
    (folder / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    made = 0
    while made < kills:
        process = start("syncswitch-search", *search, folder=folder)
        time.sleep(moments.uniform(0.5, 4.5))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        made += 1
    return made


def finished_search(folder: Path, search: Sequence[object]) -> dict[str, Any]:
    (folder / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    done = run("syncswitch-search", *search, folder=folder)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    with sqlite3.connect(folder / "syncswitch.db") as database:
        runs = Counter(
            database.execute(
                "SELECT switch_percent, replicate, seed FROM syncswitch_trials"
                " WHERE state = 'complete'"
            )
        )
        policies = database.execute("SELECT COUNT(*) FROM syncswitch_policies").fetchone()[0]
    policy = json.loads(done.stdout)["policy"]
    return {
        "runs": runs,
        "completed": sum(runs.values()),
        "most_often": max(runs.values()),
        "policies": policies,
        "switch_percent": policy["switch_percent"],
        "target_accuracy": policy["target_accuracy"],
    }


if __name__ == "__main__":
    main()
