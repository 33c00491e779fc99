"""Two searches on Ray clusters of three nodes: one in peace, one that loses a node on the way.

    python -m tests.benchmarks.ray_failover

Real runs with ASP are not repeatable to the bit, so what is compared is the policy. With BSP alone
they are, as long as all workers are there: the accuracy of the first protocol alone is shown too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.limit import at_most
from tests.trainers.cluster.ray.local_cluster import LocalCluster

_CPUS = (2, 2, 2)
# Into the second run, which is the first one after the switch that is asked about.
_LOOK_SECONDS = 0.5
# Of one search, which usually takes one or two minutes.
_MOST_SECONDS = 900.0


def search(
    cluster: LocalCluster, folder: Path, workload: str, *, loses_a_node: bool
) -> dict[str, Any]:
    """One search.

    Returns:
        What it answered, and what happened to its runs.
    """
    storage = f"sqlite:///{folder}/search.db"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m"),
            *cluster.inside("tests.benchmarks.ray_failover", "search"),
            *("run", workload, "--trainer", "ray", "--ray-address", cluster.address),
            # So that it is alone on its node, or with its chief.
            *(
                "--cpus-per-ps",
                "2",
                "--workers",
                "2",
                "--strategy",
                "paper",
                "--settings",
                "2",
                "--runs",
                "1",
            ),
            *("--storage", storage, "--checkpoints", str(folder / "checkpoints"), "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if loses_a_node:
        lose_a_node(cluster, process)
    out, err = process.communicate()
    print(err, file=sys.stderr)
    if process.returncode:
        raise SystemExit(f"the search failed: {err}")
    found: dict[str, Any] = json.loads(out)
    return found


def lose_a_node(cluster: LocalCluster, process: subprocess.Popen[str]) -> None:
    """Kills the node of a worker once the first run is over."""
    assert process.stderr is not None
    print(process.stderr.readline(), end="", file=sys.stderr)
    time.sleep(_LOOK_SECONDS)
    parts = cluster.parts()
    lost = next(name for name in ("worker 1", "worker 0") if cluster.kill_node_of(parts[name]))
    print(f"the node of {lost} is killed", file=sys.stderr)


def main() -> None:
    """Prints both answers."""
    if sys.argv[1:2] == ["search"]:
        from syncswitch.searcher.cli.main import main as search_main

        del sys.argv[1]
        search_main(prog_name="syncswitch-search")
    for name, loses_a_node in (("in peace", False), ("one node lost", True)):
        with at_most(_MOST_SECONDS), tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            cluster = LocalCluster(*_CPUS)
            try:
                found = search(cluster, Path(folder), "digits", loses_a_node=loses_a_node)
            finally:
                cluster.close()
            print(f"{name} ({time.monotonic() - start:.0f} s): {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
