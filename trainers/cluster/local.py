"""The launchers of a TensorFlow cluster, and how a process loads a workload for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncswitch.storage.errors import UserError
from syncswitch.trainers.job.loading import find_module, load_workload

if TYPE_CHECKING:
    from syncswitch.trainers.job.workload import Workload

DEFAULT_LAUNCHER = "in-process"
LAUNCHERS = (DEFAULT_LAUNCHER, "processes")
"""The launchers that start a cluster."""

JOINING_LAUNCHER = "tf-config"
"""The launcher that joins a cluster whose parts are all started by others with one command."""


def load_local_workload(reference: str, workers: int) -> Workload:
    """Loads a workload into a process that is prepared for `workers` workers."""
    if workers < 1:
        raise UserError(parameter="workers", value=workers, allowed="a whole number of 1 or more")
    find_module(reference)
    # Before the user's module, which may build tensors while it is imported.
    from syncswitch.trainers.model.tensorflow_api import prepare_for_threads
    from syncswitch.trainers.run.callbacks import check_callbacks

    prepare_for_threads(workers)
    workload = load_workload(reference)
    check_callbacks(workload)
    return workload
