"""Clusters in this process and in others, each started once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest


@pytest.fixture(scope="session")
def program_of() -> Callable[[Any], Any]:
    """Traces a workload, or returns its program again."""
    from syncswitch.trainers.cluster.members.program import Program

    return functools.cache(lambda workload: Program(workload, workload.load_data()))


@pytest.fixture(scope="session")
def connected_of(
    program_of: Callable[[Any], Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Any]]:
    """Makes a cluster of processes, or returns that for the same arguments.

    `by_network` has them talk over this machine's loopback as parts elsewhere do.
    """
    from syncswitch.trainers.cluster.members.connected import ConnectedCluster
    from tests.trainers.cluster.launchers import LauncherOnLoopback, LocalLauncher, new_launcher

    with ExitStack() as started:

        @functools.cache
        def start(workload: Any, workers: int, by_network: bool = False, servers: int = 1) -> Any:
            kind = LauncherOnLoopback if by_network else LocalLauncher
            folder = tmp_path_factory.mktemp("cluster")
            launcher = new_launcher(folder, workers, kind, servers=servers)
            cluster = ConnectedCluster(program_of(workload), workers, launcher)
            return started.enter_context(closing(cluster))

        def make(*arguments: Any, **fields: Any) -> Any:
            cluster = start(*arguments, **fields)
            cluster.repair()
            return cluster

        yield make


@pytest.fixture(scope="session")
def threads_of(program_of: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    """Makes a cluster in this process, or returns that for the same arguments."""
    from syncswitch.trainers.cluster.members.cluster import ThreadsCluster

    return functools.cache(lambda workload, workers: ThreadsCluster(program_of(workload), workers))
