"""Starts the processes of clusters for tests."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from syncswitch.trainers.cluster.exchange.security import Address, Part
from syncswitch.trainers.cluster.processes.this_machine import LocalLauncher
from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer
from tests.processes import has_ended, until

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
    from syncswitch.trainers.job.workload import Workload


class LauncherOnLoopback(LocalLauncher):
    """Connects the parts over the network, as if they were on several machines."""

    def _socket(self) -> Address:
        return "127.0.0.1", 0


def new_launcher(
    folder: Path,
    workers: int,
    kind: type[LocalLauncher] = LocalLauncher,
    reference: str | None = None,
    servers: int = 1,
) -> LocalLauncher:
    """Makes a launcher whose processes are forked by the fork server of this one."""
    made = kind(servers=servers)
    made.open(reference, workers, folder)
    return made


def connected_trainer(workload: Workload, workers: int, launcher: LocalLauncher) -> ClusterTrainer:
    """Trains on processes that the launcher starts; their chief is this process."""
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
    from syncswitch.trainers.cluster.members.connected import ConnectedCluster

    return ClusterTrainer(
        workload, workers, lambda program, count: ConnectedCluster(program, count, launcher)
    )


def process_of(launcher: LocalLauncher, part: Part) -> psutil.Process:
    """Returns the current process of a part."""
    return psutil.Process(launcher._process_ids[part])


def processes_of(launcher: LocalLauncher) -> dict[Part, psutil.Process]:
    """Returns the processes of a cluster that exist."""
    ids = launcher._process_ids
    return {part: process_of(launcher, part) for part in ids if psutil.pid_exists(ids[part])}


def all_gone(processes: list[psutil.Process]) -> bool:
    """Waits for these processes to end, even as zombies; returns whether they did."""
    with suppress(AssertionError):
        until(lambda: all(has_ended(one.pid) for one in processes), 30)
    return all(has_ended(one.pid) for one in processes)


def family(trainer: ProcessTrainer) -> dict[str, psutil.Process]:
    """Returns the processes of its cluster by log name, such as `chief` or `worker-0`."""
    found = {}
    folder = trainer._folder
    for process in psutil.Process().children(recursive=True):
        with suppress(OSError):
            log = Path(os.readlink(f"/proc/{process.pid}/fd/1"))
            if folder is not None and log.parent == folder.path:
                found[log.stem] = process
    return found
