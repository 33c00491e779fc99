"""The options of a Ray cluster, whether its parts fit, and what is said of those that died."""

from __future__ import annotations

import importlib.util
import itertools
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.ray import (
    RayLauncher,
    bundles,
    cause_of_death,
    check_capacity,
    split_address,
)
from tests.failing import fails
from tests.wording import Said


@pytest.fixture(autouse=True)
def _ray_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_the_usual_options_are_accepted() -> None:
    for options in (RayLauncher(), RayLauncher("10.0.0.1:6379", 0.5, 0.25, 2.0, "pack")):
        options.check()
    assert split_address("[::1]:6379") == ("::1", 6379)


def test_what_cannot_work_is_refused_in_one_line(said: Said) -> None:
    for options in (
        RayLauncher(cpus_per_worker=0.0),
        RayLauncher(cpus_per_ps=-1.0),
        RayLauncher(cpus_per_ps=math.nan),
        RayLauncher(cpus_per_ps=math.inf),
        RayLauncher(gpus_per_worker=2.0),
        *map(RayLauncher, ("head", "head:", ":6379", "head:70000", "ray://head:10001")),
    ):
        said.refusal("parameter-invalid", options.check)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with fails("package-missing"):
        RayLauncher().check()


AMOUNTS = st.integers(0, 4).map(float)
NODES = st.lists(st.fixed_dictionaries({"CPU": AMOUNTS, "GPU": AMOUNTS}), max_size=3)


def fits(nodes: list[dict[str, float]], wanted: list[dict[str, float]]) -> bool:
    """Tries all ways to place the bundles."""
    for places in itertools.product(range(len(nodes)), repeat=len(wanted)):
        left = [dict(node) for node in nodes]
        for bundle, place in zip(wanted, places, strict=True):
            for name, amount in bundle.items():
                left[place][name] -= amount
        if all(amount >= 0 for node in left for amount in node.values()):
            return True
    return False


@given(
    nodes=NODES,
    cpus=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    gpus=st.sampled_from([0.0, 0.5, 1.0]),
    cpus_of_server=st.sampled_from([0.5, 1.0, 2.0]),
    workers=st.integers(1, 3),
    servers=st.integers(1, 3),
)
def test_it_says_what_trying_all_places_says(
    nodes: list[dict[str, float]],
    cpus: float,
    gpus: float,
    cpus_of_server: float,
    workers: int,
    servers: int,
) -> None:
    options = RayLauncher("auto", cpus, gpus, cpus_of_server, servers=servers)
    if fits(nodes, bundles(options, workers)):
        check_capacity(nodes, options, workers)
    else:
        with pytest.raises(UserError) as error:
            check_capacity(nodes, options, workers)
        assert "\n" not in str(error.value)


def test_the_message_says_what_was_asked_and_what_there_is(said: Said) -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}]
    options = RayLauncher(cpus_per_worker=2, gpus_per_worker=1)
    for there, wanted in ((nodes, options), ([], RayLauncher())):
        said.refusal("cluster-unusable", check_capacity, there, wanted, 2)


def test_shares_that_fill_a_node_fit() -> None:
    for cpus, workers in ((1.1, 10), (0.3, 2)):
        check_capacity([{"CPU": cpus}], RayLauncher(cpus_per_worker=0.1, cpus_per_ps=0.1), workers)


def test_parameter_servers_come_first_and_have_no_gpu() -> None:
    options = RayLauncher(cpus_per_worker=1, gpus_per_worker=0.5, cpus_per_ps=2, servers=2)
    assert bundles(options, 3) == [{"CPU": 2}] * 2 + [{"CPU": 1, "GPU": 0.5}] * 3


# Texts of Ray 2.60.
KILLED = """The actor died unexpectedly before finishing this task.
\tip: 127.0.0.1
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit.
"""
NODE = """The actor died unexpectedly before finishing this task.
\tclass_name: PartActor
The actor died because its node has died. Node Id: d92359f37fa8
\tthe actor's node was terminated unexpectedly
"""
MISSING = """The actor died because of an error raised in its creation task, ray::K.__init__()
RuntimeError: The actor with name K failed to import on the worker. This may be because needed:

ray::K.__init__() (pid=31684, ip=127.0.0.1)
                  ^^^^^^^^^
ModuleNotFoundError: No module named 'syncswitch'
"""
FAR = "The actor c909 is unavailable: The actor is temporarily unavailable: RpcError. The task may."


def test_the_telling_sentence_is_found(said: Said) -> None:
    for text in (KILLED, NODE, MISSING, FAR, "", "x" * 200):
        said(cause_of_death(text))


def test_neither_ray_nor_tensorflow_is_imported_before_it_is_needed() -> None:
    program = """
import sys
import syncswitch.searcher.backends.ray, syncswitch.trainers.cluster.processes.ray
print({"ray", "tensorflow"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
