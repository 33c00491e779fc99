from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.private_network import free_ports
from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main as search
from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.ray import RayCluster
from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.trainers.cluster.processes.this_machine import NO_GPU
from tests.failing import fails
from tests.trainers.jobs import CONSTANT
from tests.wording import Said


def tf_config(job: str = "chief", index: int = 0, servers: int = 1) -> dict[str, str]:
    ports = free_ports(4 + servers)
    chief, *others = (f"127.0.0.1:{port}" for port in ports)
    ps, (*workers, evaluator) = others[:servers], others[servers:]
    cluster = {"chief": [chief], "ps": ps, "worker": workers, "evaluator": [evaluator]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of the chief of a cluster of two workers."""
    environment = tf_config()
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    return environment


@pytest.fixture(autouse=True)
def _no_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)


def test_a_cluster_that_is_described_is_joined_unless_another_is_asked_for(
    joining: dict[str, str],
) -> None:
    joined, own = LocalTrainer(), LocalTrainer(launcher="processes")
    assert (joined.launcher_kind, joined.workers(None), joined.workers(2)) == ("tf-config", 2, 2)
    assert (own.launcher_kind, own.workers(None), own.workers(7)) == ("processes", None, 7)
    assert own.placement(2) == (NO_GPU, NO_GPU)


def test_without_one_workers_are_threads() -> None:
    assert (LocalTrainer().launcher_kind, LocalTrainer().servers) == ("in-process", 1)
    assert LocalTrainer(launcher="processes", parameter_servers=3).servers == 3


def test_several_parameter_servers_are_those_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config(servers=2)["TF_CONFIG"])
    assert LocalTrainer().servers == LocalTrainer(parameter_servers=2).servers == 2
    with fails("parameter-invalid", "parameter_servers is 3: TF_CONFIG has 2 ps"):
        LocalTrainer(parameter_servers=3)


def test_options_that_do_not_go_together_are_refused(said: Said) -> None:
    for options in (
        {"gpus_per_worker": 0.5},
        {"parameter_servers": 2},
        {"launcher": "processes", "cluster_timeout": 3.0},
        {"server_grace": 3.0},
        {"open_network": True},
    ):
        with pytest.raises(UserError) as caught:
            LocalTrainer(**options)
        said(caught.value)


def test_workers_and_gpus_that_are_not_there_are_refused(joining: dict[str, str]) -> None:
    assert LocalTrainer(open_network=True).open_network
    # This test runs on machines without GPUs; with one, the second worker has none.
    with fails("cluster-unusable"):
        LocalTrainer(launcher="processes", gpus_per_worker=1.0).check_capacity(100)


def test_parts_that_are_not_there_are_named(joining: dict[str, str]) -> None:
    cluster = LocalTrainer(cluster_timeout=0.01, open_network=True)
    with pytest.raises(RetryableError) as caught:
        cluster.open(CONSTANT, "tests.trainers.jobs:CONSTANT", 2)
    (address,) = json.loads(joining["TF_CONFIG"])["cluster"]["ps"]
    assert f"it is {address} in TF_CONFIG" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("program", ["search", "run"])
def test_both_programs_say_so_in_one_line(program: str, said: Said) -> None:
    for environment, arguments, status in (
        ({"TF_CONFIG": "{"}, [], 2),
        (tf_config("worker", index=2), [], 2),
        (tf_config("evaluator"), [], 0),
        (tf_config(), ["--workers", "4"], 2),
        (tf_config(), ["--gpus-per-worker", "nan"], 2),
        (tf_config(), ["--gpus-per-worker", "2"], 2),
        (tf_config(), ["--launcher", "in-process", "--server-grace", "1"], 2),
        ({}, ["--launcher", "tf-config"], 2),
        (tf_config("ps"), [], 2),
    ):
        runner = CliRunner(env={"TF_CONFIG": None, "SYNCSWITCH_SECRET": None, **environment})
        command = (search, ["run"]) if program == "search" else (run, [])
        done = runner.invoke(command[0], [*command[1], "digits", *arguments])
        assert done.exit_code == status, done.output
        said(done.output)


def test_one_cluster_makes_one_run_at_once() -> None:
    for environment, arguments, words in (
        (
            tf_config(),
            [],
            "--parallel-runs is 2: that needs a cluster for each, and TF_CONFIG has one",
        ),
        ({"TF_CONFIG": None}, ["--launcher", "processes", "--gpus-per-worker", "1"], "same GPUs"),
    ):
        done = CliRunner(env=environment).invoke(
            search, ["run", "digits", "--parallel-runs", "2", *arguments]
        )
        assert done.exit_code == 2
        assert words in done.output


def test_a_worker_trains_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", index=1)["TF_CONFIG"])
    with fails("cluster-unusable"):
        LocalTrainer().check_capacity(2)


def test_parts_that_others_start_cannot_be_started_anew() -> None:
    done = CliRunner(env=tf_config()).invoke(search, ["run", "digits", "--switch", "restart"])
    assert done.exit_code == 2
    assert "can only be restarted by the platform that started them; leave it out" in done.output


RAY = RayCluster(cpus_per_worker=4, gpus_per_worker=0.5, parameter_servers=2)
LOCAL = LocalTrainer(launcher="processes", gpus_per_worker=0.5, parameter_servers=2)


@pytest.mark.parametrize(
    ("trainer", "kind"),
    [
        (RAY, "ray, 4 CPU, 0.5 GPU, 2 parameter servers"),
        (LOCAL, "local/processes, 2 parameter servers, 0.5 GPU"),
    ],
)
def test_the_name_of_a_kind_stays_as_databases_hold_it(trainer: TrainerChoice, kind: str) -> None:
    assert trainer.kind == kind
