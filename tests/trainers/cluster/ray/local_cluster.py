"""A real Ray cluster of several nodes on this machine, in a network of its own.

    python -m tests.trainers.cluster.ray.local_cluster CPUS_OF_A_NODE NODES

Says its address; then does what each line of standard input says, and says when it is done:
`kill PROCESS_ID`, the node of that process; `add`, a node. It ends with standard input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import psutil

from syncswitch.trainers.cluster.servers.network import isolate_network


class LocalCluster:
    """The other end: a cluster in a process of its own.

    Attributes:
        address: Of its head.
        process_id: Of a process in its network.
    """

    def __init__(self, cpus: int, nodes: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(cpus), str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.process_id = self._process.pid
        self.address: str = self._answer()

    def ask(self, *words: object) -> Any:
        """Has it do something, and waits until it is done."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def inside(self, module: str, *arguments: str) -> list[str]:
        """What Python is called with to run a module in its network.

        Returns:
            A module and its arguments.
        """
        own = "tests.trainers.cluster.ray.enter_network"
        return [own, str(self.process_id), module, *arguments]

    def servers(self) -> dict[str, psutil.Process]:
        """The TensorFlow servers in its network by job and number, such as `worker 1`."""
        own = os.readlink(f"/proc/{self.process_id}/ns/net")
        found = {}
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "syncswitch.trainers.cluster.ray.server" in words:
                with suppress(OSError):  # it has ended
                    if os.readlink(f"/proc/{process.pid}/ns/net") == own:
                        found[" ".join(words[-2:])] = process
        return found

    def close(self) -> None:
        """Ends all of it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer: "):
                return json.loads(line.removeprefix("answer: "))
        raise RuntimeError("the Ray cluster has died")


def main() -> None:
    """The process of the cluster."""
    cpus, nodes = int(sys.argv[1]), int(sys.argv[2])
    isolate_network()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # A worker for each CPU, in case somebody needs it.
    os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112 (as Ray spells it)
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": cpus, "include_dashboard": False},
    )
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=cpus)
    answer(cluster.address)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "add":
            cluster.add_node(num_cpus=cpus)
            answer(True)
        elif words[0] == "kill":
            answer(kill(cluster, int(words[1])))
    cluster.shutdown()


def kill(cluster: Any, process_id: int) -> bool:
    """Kills the node of a process, if it is not the head; whether it did."""
    ancestors = {process.pid for process in psutil.Process(process_id).parents()}
    for node in cluster.worker_nodes:
        (raylet,) = node.all_processes["raylet"]
        if raylet.process.pid in ancestors:
            cluster.remove_node(node, allow_graceful=False)
            return True
    return False


def answer(content: Any) -> None:
    """Says something to the other end."""
    print("answer:", json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
