from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.cli.main import main as search
from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.trainers.cli.local import LocalCluster, choose_cluster
from syncswitch.trainers.cli.runner import main as run
from syncswitch.trainers.cluster.servers.network import NO_PRIVATE_NETWORK, free_ports
from syncswitch.trainers.cluster.servers.placement import place_on_cpus
from tests.private_network import run_in_the_last
from tests.trainers.jobs import DENSE


def tf_config(job: str = "chief", host: str = "127.0.0.1", index: int = 0) -> dict[str, str]:
    ports = free_ports(5)
    chief, ps, *workers, evaluator = (f"{host}:{port}" for port in ports)
    cluster = {"chief": [chief], "ps": [ps], "worker": workers, "evaluator": [evaluator]}
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
    }


def test_a_cluster_that_is_described_is_joined_unless_another_is_asked_for() -> None:
    joined = choose_cluster(None, 0.0, None, None, tf_config())
    assert (joined.launcher, joined.workers(None), joined.workers(2)) == ("tf-config", 2, 2)
    own = choose_cluster("processes", 0.0, None, None, tf_config())
    assert own == LocalCluster("processes")
    assert (own.workers(None), own.workers(7)) == (None, 7)
    assert choose_cluster(None, 0.0, None, None, {}) == LocalCluster("in-process")
    assert own.placement(2) == place_on_cpus(2)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(UserError, match="--workers is 3, and TF_CONFIG has 2 of them"):
        choose_cluster(None, 0.0, None, None, tf_config()).workers(3)
    with pytest.raises(UserError, match="TF_CONFIG is not set"):
        choose_cluster("tf-config", 0.0, None, None, {})
    with pytest.raises(UserError, match=r"0\.5 needs a process for each .* --launcher processes"):
        choose_cluster(None, 0.5, None, None, {})
    with pytest.raises(UserError, match="--cluster-timeout is for --launcher tf-config"):
        choose_cluster("processes", 0.0, 3.0, None, tf_config())
    with pytest.raises(UserError, match="--server-grace is for --launcher tf-config"):
        choose_cluster(None, 0.0, None, 3.0, {})
    # This test runs on machines without GPUs; with one, the second worker has none.
    with pytest.raises(UserError, match=r"--gpus-per-worker 1 needs \d+ GPUs for 1\d+ workers"):
        choose_cluster("processes", 1.0, None, None, {}).check_capacity(100)


@pytest.mark.parametrize(
    ("host", "job", "is_done", "words"),
    [
        ("127.0.0.1", "chief", False, []),
        ("10.11.12.13", "chief", False, ["warning: TensorFlow's servers listen on all"]),
        ("8.8.8.8", "chief", False, ["warning: TensorFlow's", "(8.8.8.8): anybody"]),
        ("8.8.8.8", "evaluator", True, ["makes this process an evaluator: the chief"]),
    ],
)
def test_who_may_reach_the_servers_is_said(
    host: str, job: str, is_done: bool, words: list[str]
) -> None:
    said: list[str] = []
    cluster = choose_cluster(None, 0.0, None, None, tf_config(job, host))
    assert cluster.take_part(said.append) is is_done
    assert len(said) == len(words)
    for line, word in zip(said, words, strict=True):
        assert word in line


def test_servers_that_are_not_there_are_named(devices: object) -> None:
    config = tf_config()
    cluster = choose_cluster(None, 0.0, 0.01, None, config)
    with pytest.raises(RetryableError) as caught:
        cluster.open(DENSE, "tests.trainers.jobs:DENSE", 2)
    for address in json.loads(config["TF_CONFIG"])["cluster"]["worker"]:
        assert address in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "arguments", "status", "words"),
    [
        ({"TF_CONFIG": "{"}, [], 2, "error: TF_CONFIG is not JSON"),
        (tf_config("worker", index=2), [], 2, "is worker 2, and the cluster has 2"),
        (tf_config("evaluator"), [], 0, "an evaluator: the chief evaluates, so it ends"),
        (tf_config(), ["--workers", "4"], 2, "--workers is 4, and TF_CONFIG has 2"),
        (tf_config(), ["--gpus-per-worker", "nan"], 2, "a step runs on one GPU"),
        (tf_config(), ["--gpus-per-worker", "2"], 2, "a step runs on one GPU"),
        (tf_config(), ["--launcher", "in-process", "--server-grace", "1"], 2, "leave it out"),
        ({}, ["--launcher", "tf-config"], 2, "TF_CONFIG is not set"),
    ],
)
@pytest.mark.parametrize("program", ["search", "run"])
def test_both_programs_say_so_in_one_line(
    program: str, environment: dict[str, str], arguments: list[str], status: int, words: str
) -> None:
    runner = CliRunner(env={"TF_CONFIG": None, **environment})
    command = (search, ["run"]) if program == "search" else (run, [])
    done = runner.invoke(command[0], [*command[1], "digits", *arguments])
    assert done.exit_code == status, done.output
    assert words in done.output
    assert len(done.output.splitlines()) == 1


def test_no_servers_are_started_where_others_could_reach_them(tmp_path: Path) -> None:
    program = f"""
import os
os.chdir({str(tmp_path)!r})
from click.testing import CliRunner
from syncswitch.searcher import search
from syncswitch.searcher.cli.main import main as search_program
from syncswitch.trainers.cli.runner import main as run_program
from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
for program, words in ((search_program, ["run"]), (run_program, ["--switch-at", "50"])):
    done = CliRunner().invoke(program, [*words, "digits", "--launcher", "processes"])
    assert done.exit_code == 2, done.output
    print(done.output, end="")
for call in (
    lambda: search("digits", trainer_options={{"launcher": "processes"}}),
    lambda: ProcessTrainer("digits", 2),
):
    try:
        call()
    except UserError as error:
        print(f"error: {{error}}")
"""
    lines = run_in_the_last(program).splitlines()
    assert lines == [f"error: {NO_PRIVATE_NETWORK}"] * 4
    assert not list(tmp_path.iterdir())


def test_an_open_network_has_to_be_asked_for_where_there_are_servers() -> None:
    assert choose_cluster("processes", 0.0, None, None, {}, open_network=True).open_network
    assert LocalTrainer("processes", 0.0, True, None, None).cluster.open_network
    for launcher, environment in (("in-process", {}), (None, {}), (None, tf_config())):
        with pytest.raises(UserError, match=r"--open-network is for --launcher processes, and"):
            choose_cluster(launcher, 0.0, None, None, environment, open_network=True)


def test_one_cluster_makes_one_run_at_once() -> None:
    for environment, arguments, words in (
        (tf_config(), [], "--jobs 2 needs a cluster for each, and TF_CONFIG has one"),
        ({"TF_CONFIG": None}, ["--launcher", "processes", "--gpus-per-worker", "1"], "same GPUs"),
    ):
        done = CliRunner(env=environment).invoke(
            search, ["run", "digits", "--jobs", "2", *arguments]
        )
        assert done.exit_code == 2
        assert words in done.output


def test_a_server_does_not_train(devices: object) -> None:
    with pytest.raises(UserError, match="makes this process worker 1, and only its chief trains"):
        choose_cluster(None, 0.0, None, None, tf_config("worker", index=1)).check_capacity(2)


def test_servers_of_others_cannot_be_started_anew() -> None:
    done = CliRunner(env=tf_config()).invoke(search, ["run", "digits", "--switch", "restart"])
    assert done.exit_code == 2
    assert "servers only those who started them can start anew; leave it out" in done.output
