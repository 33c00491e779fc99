"""Clusters in this process and in others, each started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def program_of() -> Callable[[Any], Any]:
    """Traces a workload, or returns its program again."""
    from syncswitch.trainers.cluster.members.program import Program

    programs: dict[Any, Any] = {}

    def make(workload: Any) -> Any:
        if workload not in programs:
            programs[workload] = Program(workload, workload.load_data())
        return programs[workload]

    return make


@pytest.fixture(scope="session")
def connected_of(
    program_of: Callable[[Any], Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Any]]:
    """Makes a cluster of processes, or returns that for the same arguments.

    `by_network` has them talk over this machine's loopback as parts elsewhere do.
    """
    from syncswitch.trainers.cluster.members.connected import ConnectedCluster
    from tests.trainers.cluster.engines import new_engine

    clusters: dict[Any, Any] = {}

    def make(workload: Any, workers: int, *, by_network: bool = False, servers: int = 1) -> Any:
        key = (workload, workers, by_network, servers)
        if key not in clusters:
            folder = tmp_path_factory.mktemp("cluster")
            engine = new_engine(Path(folder), workers, by_network=by_network)
            clusters[key] = ConnectedCluster(program_of(workload), workers, engine, servers)
        clusters[key].repair()
        return clusters[key]

    yield make
    for cluster in clusters.values():
        cluster.close()


@pytest.fixture(scope="session")
def threads_of(program_of: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    """Makes a cluster in this process, or returns that for the same arguments."""
    from syncswitch.trainers.cluster.members.threads import ThreadsCluster

    clusters: dict[Any, Any] = {}

    def make(workload: Any, workers: int) -> Any:
        if (workload, workers) not in clusters:
            clusters[workload, workers] = ThreadsCluster(program_of(workload), workers)
        return clusters[workload, workers]

    return make
