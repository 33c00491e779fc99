from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.tf_config import (
    TfConfig,
    host_and_port,
    parse_tf_config,
    read_tf_config,
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


def test_several_parameter_servers_are_numbered() -> None:
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
        ("[" * 100_000, "cannot be used (Expected `object`, got `array`)"),
        ('{"more":' + "[" * 100_000, "cannot be used (maximum recursion depth"),
        ("{}", "missing required field `cluster`"),
        (config({}), "has no chief in its cluster"),
        (config([]), "Expected `object`, got `array` - at `$.cluster`"),
        (config({**CLUSTER, "gpu": ["x:1"]}), "has a job 'gpu' in its cluster; known are chief"),
        (config({**CLUSTER, "master": ["x:1"]}), "both a chief and a master"),
        (config({**CLUSTER, "worker": [3]}), "Expected `str`, got `int` - at `$.cluster[...][0]`"),
        (config({**CLUSTER, "worker": []}), "has no worker in its cluster"),
        (config({"chief": ["a:1"], "worker": ["c:3"]}), "has no ps in its cluster"),
        (config({"ps": ["a:1"], "worker": ["c:3"]}), "has no chief in its cluster"),
        (config({**CLUSTER, "chief": ["x:1", "y:1"]}), "2 addresses for chief, and only one"),
        (config({**CLUSTER, "ps": ["x"]}), "the address 'x', which is not host:port"),
        (config({**CLUSTER, "ps": ["x:0"]}), "the address 'x:0', which is not host:port"),
        (config({**CLUSTER, "ps": ["x:65536"]}), "the address 'x:65536', which is not host:port"),
        (config({**CLUSTER, "ps": ["grpc://x:1"]}), "which is not host:port"),
        (config({**CLUSTER, "ps": ["::1:1"]}), "which is not host:port"),
        (config({**CLUSTER, "ps": ["a:1"]}), "the address 'a:1' twice"),
        (config(task=None), "Expected `object`, got `null` - at `$.task`"),
        (config(task={"type": "p"}), "the task type 'p'; known are chief, ps, worker"),
        (config(task={"type": "worker", "index": 3}), "is worker 3, and the cluster has 3 of them"),
        (config(task={"type": "worker", "index": -1}), "is worker -1, and"),
        (config(task={"type": "worker", "index": 1.5}), "Expected `int`, got `float`"),
        (config(task={"type": "worker", "index": "one"}), "Expected `int`, got `str`"),
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "cluster": st.dictionaries(
            st.sampled_from(["chief", "master", "ps", "worker", "evaluator", "x"]),
            st.lists(st.sampled_from(["a:1", "b:2", "c:3", "d:4", "e", ":1"]) | JSON, max_size=3)
            | JSON,
        )
        | JSON,
        "task": st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["chief", "ps", "worker", "evaluator"]) | JSON,
                "index": st.integers(-1, 3) | JSON,
            },
        )
        | JSON,
    },
)


@given(st.text() | (JSON | NEARLY).map(json.dumps))
def test_garbage_is_refused_and_the_rest_is_whole(text: str) -> None:
    try:
        found = parse_tf_config(text)
    except UserError as error:
        problem = str(error)
    else:
        problem = None
    if problem is not None:
        assert "\n" not in problem
        return
    assert len(found.addresses["chief"]) == len(found.addresses["ps"]) == 1
    assert found.workers >= 1
    everywhere = [one for each in found.addresses.values() for one in each]
    assert len(set(everywhere)) == len(everywhere)
    for address in everywhere:
        host, port = host_and_port(address)
        assert host
        assert 0 < port < 2**16
    if found.job != "evaluator":
        assert found.addresses[found.job][found.task]


def test_it_has_to_be_set() -> None:
    with pytest.raises(UserError, match="TF_CONFIG is not set, and --launcher tf-config needs it"):
        read_tf_config({"PATH": "/"})
