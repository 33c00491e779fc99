"""The options of a TensorFlow cluster on this machine, or in TF_CONFIG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncswitch.storage.errors import UserError
from syncswitch.trainers.job.loading import find_module, load_workload
from syncswitch.trainers.options import TrainerOption

if TYPE_CHECKING:
    from syncswitch.trainers.job.workload import Workload

DEFAULT_LAUNCHER = "in-process"
LAUNCHERS = (DEFAULT_LAUNCHER, "processes")
"""The launchers that start a cluster."""

JOINING_LAUNCHER = "tf-config"
"""The launcher that joins a cluster whose parts are all started by others with one command."""

DEFAULT_TIMEOUT_SECONDS = 600.0
DEFAULT_GRACE_SECONDS = 300.0

_MOST_PARAMETER_SERVERS = 1_000

PARAMETER_SERVERS = TrainerOption(
    "--parameter-servers",
    "Processes that share the parameters and the optimizer's state."
    "  [default: 1, or those in TF_CONFIG]",
    int,
    metavar="N",
    least=1,
    most=_MOST_PARAMETER_SERVERS,
)
GPUS_PER_WORKER = TrainerOption(
    "--gpus-per-worker",
    "GPUs that compute a worker's steps: 0, 1, or a share such as 0.5 for two workers on one GPU.",
    float,
    metavar="0|1|SHARE",
    default=0.0,
)
"""These two options are shared by all kinds of trainers that have processes."""

CLUSTER_OPTIONS = (
    TrainerOption(
        "--launcher",
        "in-process = workers are threads; processes = workers are processes; tf-config ="
        " the cluster in TF_CONFIG, for each part of which this command is started."
        f"  [default: tf-config if TF_CONFIG is set, else {DEFAULT_LAUNCHER}]",
        choices=(*LAUNCHERS, JOINING_LAUNCHER),
    ),
    PARAMETER_SERVERS,
    GPUS_PER_WORKER,
    TrainerOption(
        "--open-network",
        "With --launcher tf-config, do without the secret SYNCSWITCH_SECRET and without"
        " encryption: anyone who can reach a part of the cluster can then make it compute"
        " anything.",
        bool,
        default=False,
    ),
    TrainerOption(
        "--cluster-timeout",
        "How long the parts of the cluster in TF_CONFIG wait for each other: the chief for"
        " parts that have not come yet, or have to come back; a part for its chief."
        f"  [default: {DEFAULT_TIMEOUT_SECONDS:g}]",
        float,
        metavar="SECONDS",
        least=1.0,
        most=1e6,
    ),
    TrainerOption(
        "--server-grace",
        "How long a part of the cluster in TF_CONFIG waits for a chief that has gone to be"
        f" started again, before it ends.  [default: {DEFAULT_GRACE_SECONDS:g}]",
        float,
        metavar="SECONDS",
        least=0.0,
        most=1e6,
    ),
)
"""The options that choose the cluster of a job."""


def load_local_workload(reference: str, workers: int) -> Workload:
    """Loads a workload into a process that is prepared for `workers` workers.

    Raises:
        UserError: There is no such workload, or the number of workers is below 1.
    """
    if workers < 1:
        raise UserError(f"--workers is {workers}: give a whole number of 1 or more")
    find_module(reference)
    # Before the user's module, which may build tensors while it is imported.
    from syncswitch.trainers.model.tensorflow_api import prepare_for_threads

    prepare_for_threads(workers)
    return load_workload(reference)
