"""A cluster whose parts are started one by one with the same command, as Kubernetes' TFJob does."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.private_network import free_ports
from tests.program import TINY_WORKLOAD, code
from tests.warm_program import WarmProcess

pytestmark = pytest.mark.slow

JOB = "job.py:long"
WORKLOAD = f"""{TINY_WORKLOAD}
long = replace(
    tiny,
    name="long",
    total_worker_steps=400,
    learning_rate_boundaries=(),
    evaluation_interval_worker_steps=100,
)
"""


class Cluster:
    """Starts the parts of one cluster; `close` ends those that are left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        chief, *others = (f"127.0.0.1:{port}" for port in free_ports(5))
        self._addresses = {"chief": [chief], "ps": others[:2], "worker": others[2:]}
        self._processes: list[WarmProcess] = []

    def start(self, job: str, task: int, program: str, *arguments: str) -> WarmProcess:
        task_config = {"cluster": self._addresses, "task": {"type": job, "index": task}}
        lines = [
            "import os",
            f"os.environ['TF_CONFIG'] = {json.dumps(task_config)!r}",
            "os.environ['SYNCSWITCH_SECRET'] = 'of this test alone'",
            code(program),
        ]
        process = WarmProcess("\n".join(lines), *arguments, folder=self._folder)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "job.py").write_text(WORKLOAD)
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def ended(process: WarmProcess) -> str:
    """Waits for a process to end well, and returns its standard error."""
    _, err = process.communicate()
    assert process.returncode == 0, err
    return err


def test_a_search_and_a_run_on_servers_that_others_started(
    cluster: Cluster, tmp_path: Path
) -> None:
    serve = ("syncswitch-run", JOB)
    ps, stayer = cluster.start("ps", 0, *serve), cluster.start("worker", 0, *serve)
    lost_server = cluster.start("ps", 1, *serve)
    victim = cluster.start("worker", 1, "syncswitch-search", "run", JOB)
    easy = ("--strategy", "paper", "--settings", "1", "--runs", "1", "--threshold", "0.9")
    chief = cluster.start("chief", 0, "syncswitch-search", "run", JOB, *easy, "--json")
    out, err = chief.communicate()
    assert chief.returncode == 0, err
    policy = json.loads(out)["policy"]
    assert (policy["workers"], policy["switch_percent"]) == (2, 50.0)

    # After the switch worker 0 alone would take minutes: the other one has to be back for the end.
    slow = "straggler:worker=0,at=50%,for=100%,delay=2s"
    chief = cluster.start(
        *("chief", 0, "syncswitch-run", JOB, "--inject", slow, "--checkpoint-every", "10", "--json")
    )
    while not list(tmp_path.glob("long-checkpoints/*.npz")):
        assert chief.poll() is None, chief.communicate()
        time.sleep(0.01)
    lost_server.kill()
    assert "ps 1 at 127.0.0.1:" in lost_server.communicate()[1]
    replaced = cluster.start("ps", 1, *serve, "--server-grace", "1")
    victim.kill()
    assert "worker 1 at 127.0.0.1:" in victim.communicate()[1]
    returned = cluster.start("worker", 1, *serve, "--server-grace", "1")
    out, err = chief.communicate()
    assert chief.returncode == 0, err
    report: dict[str, Any] = json.loads(out)
    assert report["worker_steps"] == 400
    assert "worker 1 is back" in err or "goes on from worker-step" in err
    assert "parameter server 1 is gone" in err
    assert Path(tmp_path / "long.keras").exists()

    assert "has been gone for 1 s: worker 1 ends" in ended(returned)
    assert "has been gone for 1 s: ps 1 ends" in ended(replaced)
    for process, name in ((ps, "ps 0"), (stayer, "worker 0")):
        assert process.poll() is None, "its chief may be started again"
        process.send_signal(signal.SIGTERM)
        assert ended(process).startswith(f"{name} at 127.0.0.1:")
