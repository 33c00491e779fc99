"""A real Ray cluster of several nodes on this machine, in a network of its own.

    python -m tests.trainers.cluster.processes.ray_cluster CPUS_OF_THE_HEAD CPUS_OF_ANOTHER_NODE ...

Says its address; then kills the node of each process that a line of standard input names, and says
whether it could: the head holds the cluster together. It ends with standard input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.private_network import enter_network, isolate_network
from syncswitch.trainers.cluster.processes.ray import RayLauncher

_PARTS = "syncswitch.trainers.cluster.exchange.parts"
_GPUS = 2


class LocalCluster:
    """A cluster in a process of its own.

    Args:
        cpus: Of each node, the head first; each claims to have two GPUs.

    Attributes:
        address: Of its head.
        process_id: Of a process in its network.
    """

    def __init__(self, *cpus: int) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(_GPUS)))},
            text=True,
        )
        self.process_id = self._process.pid
        self.address: str = self._answer()

    def kill_node_of(self, process: psutil.Process) -> bool:
        """Kills the node of a process unless it is the head; returns whether it did."""
        assert self._process.stdin is not None
        print(process.pid, file=self._process.stdin, flush=True)
        killed: bool = self._answer()
        return killed

    def parts(self) -> dict[str, psutil.Process]:
        """Returns the processes of parts by name, such as `worker 1`."""
        own = os.readlink(f"/proc/{self.process_id}/ns/net")
        found = {}
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if _PARTS in words:
                with suppress(OSError):  # it has ended
                    if os.readlink(f"/proc/{process.pid}/ns/net") == own:
                        found[" ".join(words[-3:-1])] = process
        return found

    def close(self) -> None:
        """Ends the cluster."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer: "):
                return json.loads(line.removeprefix("answer: "))
        self._errors.seek(0)
        raise RuntimeError(f"the Ray cluster has died: {self._errors.read()}")


@dataclass
class InsideLauncher(RayLauncher):
    """Has the chief enter the network of a process of the cluster."""

    process_id: int = 0

    def open(self, *arguments: Any) -> None:
        enter_network(self.process_id)
        super().open(*arguments)
        # The GPUs that Ray gives to workers are not there.
        self.has_gpus = False


def main() -> None:
    """Runs the process of the cluster."""
    isolate_network()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # A worker for each CPU, in case somebody needs it.
    os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112 (as Ray spells it)
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    for number, cpus in enumerate(sys.argv[1:]):
        # Nobody asks for what these would tell; each is a Python program.
        without = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        cluster.add_node(num_cpus=int(cpus), num_gpus=_GPUS, **({} if number else without))
    answer(cluster.address)
    for line in sys.stdin:
        answer(kill(cluster, int(line)))
    cluster.shutdown()


def kill(cluster: Any, process_id: int) -> bool:
    """Kills the node of a process unless it is the head; returns whether it did."""
    ancestors = {process.pid for process in psutil.Process(process_id).parents()}
    for node in cluster.worker_nodes:
        (raylet,) = node.all_processes["raylet"]
        if raylet.process.pid in ancestors:
            cluster.remove_node(node, allow_graceful=False)
            return True
    return False


def answer(content: Any) -> None:
    """Sends an answer."""
    print("answer:", json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
