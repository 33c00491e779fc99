from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.ray.options import RayOptions, bundles, check_capacity

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
    options = RayOptions("auto", cpus, gpus, cpus_of_server, servers=servers)
    if fits(nodes, bundles(options, workers)):
        check_capacity(nodes, options, workers)
    else:
        with pytest.raises(UserError) as error:
            check_capacity(nodes, options, workers)
        assert "\n" not in str(error.value)


def test_the_message_says_what_was_asked_and_what_there_is() -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}]
    options = RayOptions(cpus_per_worker=2, gpus_per_worker=1)
    with pytest.raises(UserError) as error:
        check_capacity(nodes, options, 2)
    assert str(error.value).startswith(
        "the Ray cluster has no room for a parameter server with 1 CPU and 2 workers with 2 CPUs"
        " and 1 GPU each: it has 2 nodes with 2 CPUs, 1 node with 8 CPUs and 1 GPU; use fewer"
    )


def test_shares_that_fill_a_node_fit() -> None:
    for cpus, workers in ((1.1, 10), (0.3, 2)):
        check_capacity([{"CPU": cpus}], RayOptions(cpus_per_worker=0.1, cpus_per_ps=0.1), workers)


def test_a_cluster_without_a_node_has_no_room() -> None:
    with pytest.raises(UserError, match="no living node"):
        check_capacity([], RayOptions(), 1)


def test_parameter_servers_come_first_and_have_no_gpu() -> None:
    options = RayOptions(cpus_per_worker=1, gpus_per_worker=0.5, cpus_per_ps=2, servers=2)
    assert bundles(options, 3) == [{"CPU": 2}] * 2 + [{"CPU": 1, "GPU": 0.5}] * 3
