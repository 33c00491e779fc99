from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.private_network import free_ports
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.members.connected import ConnectedCluster
from syncswitch.trainers.cluster.processes.tf_config import (
    TfConfig,
    TfConfigLauncher,
    cluster_secret,
    parse_tf_config,
)
from tests.program import TINY_WORKLOAD, code
from tests.warm_program import WarmProcess
from tests.wording import Said

CLUSTER = {"chief": ["a:1"], "ps": ["b:2"], "worker": ["c:3", "d.e-f:4", "[::1]:65535"]}
TASK = {"type": "worker", "index": 2}


def config(cluster: Any = CLUSTER, task: Any = TASK, **others: Any) -> str:
    return json.dumps({"cluster": cluster, "task": task, **others})


def test_what_a_tf_job_sets_is_read() -> None:
    found = parse_tf_config(config(environment="cloud"))
    assert found == TfConfig(
        {"chief": ("a:1",), "ps": ("b:2",), "worker": ("c:3", "d.e-f:4", "[::1]:65535")},
        "worker",
        2,
    )
    assert (found.workers, found.chief, found.name) == (3, "a:1", "worker 2")
    cluster = {**CLUSTER, "ps": ["x:1", "y:1"]}
    found = parse_tf_config(config(cluster, {"type": "ps", "index": 1}))
    assert (found.servers, found.name, found.addresses["ps"]) == (2, "ps 1", ("x:1", "y:1"))


def test_old_names_and_index_as_text_are_understood() -> None:
    cluster = {"master": ["a:1"], "ps": ["b:2"], "worker": ["c:3"], "evaluator": ["e:5"]}
    found = parse_tf_config(config(cluster, {"type": "master", "index": "0"}))
    assert (found.job, found.task, found.chief) == ("chief", 0, "a:1")
    assert parse_tf_config(config(cluster, {"type": "ps"})).name == "ps"
    task = {"type": "evaluator", "index": 0}
    assert parse_tf_config(config(cluster, task)).job == "evaluator"
    # Where platforms leave it out of the cluster.
    assert parse_tf_config(config(CLUSTER, task)).job == "evaluator"


def test_what_cannot_be_used_is_refused_in_one_line(said: Said) -> None:
    for text in (
        "",
        '{"more":' + "[" * 100_000,
        "{}",
        config({}),
        config({**CLUSTER, "gpu": ["x:1"]}),
        config({**CLUSTER, "master": ["x:1"]}),
        config({**CLUSTER, "worker": [3]}),
        config({**CLUSTER, "worker": []}),
        config({"chief": ["a:1"], "worker": ["c:3"]}),
        config({**CLUSTER, "chief": ["x:1", "y:1"]}),
        config({**CLUSTER, "ps": ["x"]}),
        config({**CLUSTER, "ps": ["x:65536"]}),
        config({**CLUSTER, "ps": ["grpc://x:1"]}),
        config({**CLUSTER, "ps": ["::1:1"]}),
        config({**CLUSTER, "ps": ["a:1"]}),
        config(task=None),
        config(task={"type": "p"}),
        config(task={"type": "worker", "index": 3}),
        config(task={"type": "worker", "index": -1}),
        config(task={"type": "worker", "index": 1.5}),
    ):
        said.refusal("cluster-unusable", parse_tf_config, text)


def test_a_cluster_without_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.setenv("SYNCSWITCH_SECRET", "exactly enough..")
    assert cluster_secret(is_open=False) == b"exactly enough.."
    for environment in ({}, {"SYNCSWITCH_SECRET": ""}, {"SYNCSWITCH_SECRET": "words"}):
        with monkeypatch.context() as patch:
            patch.setattr(os, "environ", environment)
            assert cluster_secret(is_open=True) is None
            with pytest.raises(UserError) as caught:
                cluster_secret(is_open=False)
        said(caught.value)


def test_a_chief_waits_until_its_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new pod may start before its name is known."""
    found = parse_tf_config(config({**CLUSTER, "chief": ["chief.invalid:1"]}))
    with pytest.raises(
        UserError, match=r"the chief is at chief\.invalid, a name that is not known"
    ):
        TfConfigLauncher(found, 0.3, None).open(None, 3, Path())
    answers = [socket.gaierror(), socket.gaierror(), None]

    def answer(*address: Any) -> None:
        if (found := answers.pop(0)) is not None:
            raise found

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    TfConfigLauncher(found, 60, None).open(None, 3, Path())
    assert not answers


@pytest.mark.parametrize("job", ["chief", "ps", "worker"])
def test_a_part_that_cannot_listen_says_so_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    monkeypatch.setenv("SYNCSWITCH_SECRET", "0123456789abcdef")

    def refused(address: str) -> str:
        own = {**CLUSTER, job: [address, *CLUSTER[job][1:]]}
        monkeypatch.setenv("TF_CONFIG", config(own, {"type": job, "index": 0}))
        with pytest.raises(UserError) as caught:
            LocalTrainer().take_part("job.py:never_loaded", lambda _: None)
        return str(caught.value)

    name = "worker 0" if job == "worker" else job
    for host in ("127.0.0.1", "::1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as busy:
            at = f"[{host}]" if ":" in host else host
            address = f"{at}:{busy.getsockname()[1]}"
            assert refused(address) == (
                f"{name} cannot listen at {address} (Address already in use); end what listens"
                " there, or give it another port in TF_CONFIG"
            )
    assert refused("203.0.113.9:42415") == (
        f"{name} cannot listen at 203.0.113.9:42415 (Cannot assign requested address); give it an"
        " address of this machine in TF_CONFIG"
    )

    def forbid(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied (while attempting to bind)")

    monkeypatch.setattr(socket, "create_server", forbid)
    assert refused("127.0.0.1:80") == (
        f"{name} cannot listen at 127.0.0.1:80 (Permission denied); give it a port from 1024 on in"
        " TF_CONFIG, or the right to this one"
    )


def test_a_chief_whose_port_was_taken_after_that_says_so_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        own = {**CLUSTER, "chief": [address]}
        found = parse_tf_config(config(own, {"type": "chief", "index": 0}))
        launcher = TfConfigLauncher(found, 60, b"0123456789abcdef")
        program: Any = SimpleNamespace(shards=lambda _: None)
        with pytest.raises(UserError) as caught:
            ConnectedCluster(program, 2, launcher)
    assert str(caught.value) == (
        f"chief cannot listen at {address} (Address already in use); end what listens there, or"
        " give it another port in TF_CONFIG"
    )


# A cluster whose parts are started one by one with the same command, as Kubernetes' TFJob does.

JOB = "job.py:long"
WORKLOAD = f"""{TINY_WORKLOAD}
long = replace(
    tiny,
    name="long",
    total_worker_steps=400,
    learning_rate_boundaries=(),
    evaluation_interval_worker_steps=100,
)
longer = replace(long, name="longer", total_worker_steps=800)
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


@pytest.mark.slow
def test_a_search_and_a_run_on_servers_that_others_started(
    cluster: Cluster, tmp_path: Path
) -> None:
    serve = ("syncswitch-run", JOB)
    ps, stayer = cluster.start("ps", 0, *serve), cluster.start("worker", 0, *serve)
    lost_server = cluster.start("ps", 1, *serve)
    victim = cluster.start("worker", 1, "syncswitch-search", "run", JOB)
    easy = ("--strategy", "paper", "--halvings", "1", "--runs", "1", "--threshold", "0.9")
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
    assert "worker 1 is back" in err or "continues from worker-step" in err
    assert "parameter server 1 is gone" in err
    assert Path(tmp_path / "long.keras").exists()

    assert "has been gone for 1 s: worker 1 ends" in ended(returned)
    assert "has been gone for 1 s: ps 1 ends" in ended(replaced)
    for process, name in ((ps, "ps 0"), (stayer, "worker 0")):
        assert process.poll() is None, "its chief may be started again"
        process.send_signal(signal.SIGTERM)
        assert ended(process).startswith(f"{name} at 127.0.0.1:")


@pytest.mark.slow
def test_a_first_training_looks_and_stays_with_what_waits_for_no_slow_worker(
    cluster: Cluster, tmp_path: Path
) -> None:
    serve = ("syncswitch-run", "job.py:longer")
    for job, task in (("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)):
        cluster.start(job, task, *serve)
    slow = ("--inject", "straggler:worker=1,at=0%,for=100%,delay=50ms")
    chief = cluster.start("chief", 0, *serve, *slow, "--json")
    out, err = chief.communicate()
    assert chief.returncode == 0, err
    assert "tries ASP, and QSR" in " ".join(err.split())
    report: dict[str, Any] = json.loads(out)
    tried, chosen = (
        [one["reason"] for one in report["events"] if one["kind"] == kind]
        for kind in ("tried", "chosen")
    )
    assert tried[0].startswith("from bsp to ")
    assert "; in a round of BSP a worker computes for " in chosen[0]
    assert report["phases"][-1]["protocol"] in ("asp", "qsr:8:0.11:semi-sync")
