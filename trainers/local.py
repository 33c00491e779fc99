"""Puts together what trains on this machine; for the command lines.

TensorFlow is imported when a workload is loaded, not before.
"""

from __future__ import annotations

from syncswitch.storage.errors import UserError
from syncswitch.trainers.trainer import Trainer
from syncswitch.trainers.workload import Workload, find_module, load_workload

__all__ = ["DEFAULT_LAUNCHER", "LAUNCHERS", "load_local_workload", "open_local_trainer"]

DEFAULT_LAUNCHER = "in-process"
LAUNCHERS = (DEFAULT_LAUNCHER, "processes")


def load_local_workload(reference: str, workers: int) -> Workload:
    """Loads a workload into a process that can run `workers` workers.

    Raises:
        UserError: There is no such workload, or the number of workers is below 1.
    """
    if workers < 1:
        raise UserError(f"--workers is {workers}: give a whole number of 1 or more")
    find_module(reference)
    from syncswitch.trainers.cluster.launchers import reserve_logical_devices

    # Before the user's module, which may build tensors as it is imported.
    reserve_logical_devices(workers)
    return load_workload(reference)


def open_local_trainer(workload: Workload, reference: str, workers: int, launcher: str) -> Trainer:
    """Starts a cluster on this machine.

    Args:
        workload: What `reference` names.
        reference: For a launcher that loads the workload in a process of its own.
        workers: n.
        launcher: One of `LAUNCHERS`.
    """
    if launcher == DEFAULT_LAUNCHER:
        from syncswitch.trainers.cluster.trainer import ClusterTrainer

        return ClusterTrainer(workload, workers)
    from syncswitch.trainers.cluster.isolated import IsolatedTrainer

    return IsolatedTrainer(reference, workers)
