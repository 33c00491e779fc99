from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.tf_config import (
    TfConfig,
    TfConfigLauncher,
    cluster_secret,
    parse_tf_config,
)

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be used (Input data was truncated)"),
        ('{"more":' + "[" * 100_000, "cannot be used (maximum recursion depth"),
        ("{}", "missing required field `cluster`"),
        (config({}), "has no chief in its cluster"),
        (config({**CLUSTER, "gpu": ["x:1"]}), "has a job 'gpu' in its cluster; known are chief"),
        (config({**CLUSTER, "master": ["x:1"]}), "both a chief and a master"),
        (config({**CLUSTER, "worker": [3]}), "Expected `str`, got `int` - at `$.cluster[...][0]`"),
        (config({**CLUSTER, "worker": []}), "has no worker in its cluster"),
        (config({"chief": ["a:1"], "worker": ["c:3"]}), "has no ps in its cluster"),
        (config({**CLUSTER, "chief": ["x:1", "y:1"]}), "2 addresses for chief, and only one"),
        (config({**CLUSTER, "ps": ["x"]}), "the address 'x', which is not host:port"),
        (config({**CLUSTER, "ps": ["x:65536"]}), "the address 'x:65536', which is not host:port"),
        (config({**CLUSTER, "ps": ["grpc://x:1"]}), "which is not host:port"),
        (config({**CLUSTER, "ps": ["::1:1"]}), "which is not host:port"),
        (config({**CLUSTER, "ps": ["a:1"]}), "the address 'a:1' twice"),
        (config(task=None), "Expected `object`, got `null` - at `$.task`"),
        (config(task={"type": "p"}), "the task type 'p'; known are chief, ps, worker"),
        (config(task={"type": "worker", "index": 3}), "is worker 3, and the cluster has 3 of them"),
        (config(task={"type": "worker", "index": -1}), "is worker -1, and"),
        (config(task={"type": "worker", "index": 1.5}), "Expected `int`, got `float`"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_tf_config(text)
    message = str(caught.value)
    assert message.startswith("TF_CONFIG ")
    assert words in message
    assert 'look like {"cluster": {"chief"' in message
    assert "\n" not in message
    message.encode()


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (None, r"SYNCSWITCH_SECRET is not set: .* add --open-network"),
        ("", r"SYNCSWITCH_SECRET is not set: .* add --open-network"),
        ("words", r"SYNCSWITCH_SECRET has 5 characters, too few: .* 16 char"),
    ],
)
def test_a_cluster_without_a_secret_is_refused(
    monkeypatch: pytest.MonkeyPatch, secret: str | None, words: str
) -> None:
    monkeypatch.setenv("SYNCSWITCH_SECRET", "exactly enough..")
    assert cluster_secret(is_open=False) == b"exactly enough.."
    if secret is None:
        monkeypatch.delenv("SYNCSWITCH_SECRET")
    else:
        monkeypatch.setenv("SYNCSWITCH_SECRET", secret)
    assert cluster_secret(is_open=True) is None
    with pytest.raises(UserError, match=words):
        cluster_secret(is_open=False)


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
