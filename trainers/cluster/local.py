"""Puts together what trains on a TensorFlow cluster, from its options.

TensorFlow is imported when a workload is loaded, or a cluster started, not before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.placement import (
    Placement,
    check_gpus_per_worker,
    place_on_gpus,
    visible_gpus,
)
from syncswitch.trainers.cluster.processes.tf_config import (
    TF_CONFIG,
    TfConfig,
    read_tf_config,
)
from syncswitch.trainers.job.loading import find_module, load_workload
from syncswitch.trainers.options import TrainerOption
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.trainers.cluster.processes.platform import PlatformOptions
    from syncswitch.trainers.job.workload import Workload

DEFAULT_LAUNCHER = "in-process"
LAUNCHERS = (DEFAULT_LAUNCHER, "processes")
"""Those that start the cluster."""

JOINING_LAUNCHER = "tf-config"
"""Joins a cluster, every part of which is started by somebody else with the same command."""

DEFAULT_TIMEOUT_SECONDS = 600.0
DEFAULT_GRACE_SECONDS = 300.0

_MOST_PARAMETER_SERVERS = 1_000

PARAMETER_SERVERS = TrainerOption(
    "--parameter-servers",
    "Processes that share the parameters, and what the optimizer keeps of them."
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
"""Every kind that has processes shares these two."""

CLUSTER_OPTIONS = (
    TrainerOption(
        "--launcher",
        "in-process = workers are threads; processes = they are processes; tf-config ="
        " the cluster in TF_CONFIG, where this same command is started for each part."
        f"  [default: tf-config where TF_CONFIG is set, else {DEFAULT_LAUNCHER}]",
        choices=(*LAUNCHERS, JOINING_LAUNCHER),
    ),
    PARAMETER_SERVERS,
    GPUS_PER_WORKER,
    TrainerOption(
        "--open-network",
        "With --launcher tf-config, do without the secret SYNCSWITCH_SECRET and without"
        " encryption: whoever reaches a part of the cluster can then have it compute what he"
        " likes.",
        bool,
        default=False,
    ),
    TrainerOption(
        "--cluster-timeout",
        "How long the parts of the cluster in TF_CONFIG wait for each other: the chief for"
        " parts that have yet to come, or to come back; a part for its chief."
        f"  [default: {DEFAULT_TIMEOUT_SECONDS:g}]",
        float,
        metavar="SECONDS",
        least=1.0,
        most=1e6,
    ),
    TrainerOption(
        "--server-grace",
        "How long a part of the cluster in TF_CONFIG waits for a chief that has gone, and"
        f" may be started again, before it ends.  [default: {DEFAULT_GRACE_SECONDS:g}]",
        float,
        metavar="SECONDS",
        least=0.0,
        most=1e6,
    ),
)
"""Those that say on which cluster a job trains."""


@dataclass(frozen=True)
class LocalCluster:
    """Where parameter servers and workers run.

    Attributes:
        launcher: One of `LAUNCHERS`, or `JOINING_LAUNCHER`.
        gpus_per_worker: 0, 1, or a share of one; see `place_on_gpus`.
        timeout_seconds: How long the parts of a cluster that is joined wait for each other.
        grace_seconds: How long its parts wait for a chief that has gone.
        config: That cluster.
        open_network: Whether the parts of a cluster that is joined do without a secret.
        servers: How many parameter servers.
    """

    launcher: str = DEFAULT_LAUNCHER
    gpus_per_worker: float = 0.0
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    config: TfConfig | None = None
    open_network: bool = False
    servers: int = 1

    simulated_cluster: ClassVar[str | None] = None
    """No profile describes it."""

    search_options: ClassVar[str] = ""
    """Options that a search needs to make its runs here; for messages."""

    def take_part(self, say: Callable[[str], None], reference: str | None = None) -> bool:
        """Does what this process has to do where it is no chief.

        Args:
            say: Told what goes on.
            reference: Of the workload, if the command names one.

        Returns:
            Whether it was no chief, and has done its work.

        Raises:
            UserError: It is another part, and somebody else listens at its port, or it has no
                secret.
            RetryableError: It is another part, and no chief came.
        """
        config = self.config
        if config is None:
            return False
        if config.job == "evaluator":
            say(f"{TF_CONFIG} makes this process an evaluator: the chief evaluates, so it ends")
            return True
        if config.job == "chief":
            return False
        from syncswitch.trainers.cluster.processes.platform import serve_until_chief_is_gone

        options = self._platform_options(config)
        serve_until_chief_is_gone(options, self.grace_seconds, say, self.gpus_per_worker, reference)
        return True

    def workers(self, given: int | None) -> int | None:
        """N as the user or the cluster has it; None where neither says.

        Raises:
            UserError: They differ.
        """
        if self.config is None:
            return given
        if given not in (None, self.config.workers):
            raise UserError(
                f"--workers is {given}, and {TF_CONFIG} has {self.config.workers} of them: leave"
                " out --workers"
            )
        return self.config.workers

    def placement(self, workers: int) -> Placement:
        """Which GPUs of this machine the workers use.

        Raises:
            UserError: There are not enough.
        """
        gpus: tuple[str, ...] = ()
        if self.gpus_per_worker:
            from syncswitch.trainers.model.tensorflow_api import tf

            gpus = visible_gpus(os.environ, len(tf.config.list_physical_devices("GPU")))
        return place_on_gpus(workers, gpus, self.gpus_per_worker)

    def check_capacity(self, workers: int) -> None:
        """Finds out early whether it can be opened.

        Raises:
            UserError: There are not enough GPUs, the cluster has no secret, or this process is no
                chief.
        """
        if self.config is None:
            self.placement(workers)
        elif self.config.job != "chief":
            raise UserError(
                f"{TF_CONFIG} makes this process {self.config.name}, and only its chief trains;"
                " start syncswitch-run here, which serves it"
            )
        else:
            self._platform_options(self.config)

    def check_object(self, name: str) -> None:
        """Finds out whether a workload that is an object, not a reference, can be trained.

        Args:
            name: Of the workload.

        Raises:
            UserError: The workload would have to be loaded by another process.
        """
        if self.launcher != DEFAULT_LAUNCHER:
            raise UserError(
                f"workload {name!r} is an object of this process, and launcher"
                f" {self.launcher} loads it in another one; name it instead, such as"
                " my_workload.py:workload"
            )

    def load(self, reference: str, workers: int) -> Workload:
        """See `load_local_workload`."""
        return load_local_workload(reference, workers)

    def identity(
        self, workload: Workload, workers: int, protocols: tuple[str, str]
    ) -> WorkloadIdentity:
        """The job."""
        from syncswitch.trainers.job.fingerprint import workload_identity

        return workload_identity(workload, workers, *protocols)

    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        """Starts the cluster, or joins it.

        Args:
            workload: What `reference` names.
            reference: For a chief that loads the workload in a process of its own.
            workers: n.

        Raises:
            UserError: There are not enough GPUs.
            RetryableError: A part of the cluster is not there.
        """
        if self.launcher == DEFAULT_LAUNCHER:
            from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer

            return ClusterTrainer(workload, workers)
        if self.config is None:
            from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer

            return ProcessTrainer(reference, workers, self.placement(workers), servers=self.servers)
        from syncswitch.trainers.cluster.processes.platform import TfConfigTrainer

        return TfConfigTrainer(reference, self._platform_options(self.config))

    def _platform_options(self, config: TfConfig) -> PlatformOptions:
        from syncswitch.trainers.cluster.processes.platform import PlatformOptions, cluster_secret

        secret = cluster_secret(is_open=self.open_network)
        return PlatformOptions(config, self.timeout_seconds, secret, self.gpus_per_worker > 0)


def choose_cluster(
    launcher: str | None,
    gpus_per_worker: float,
    timeout_seconds: float | None,
    grace_seconds: float | None,
    environment: Mapping[str, str],
    *,
    open_network: bool = False,
    parameter_servers: int | None = None,
) -> LocalCluster:
    """Reads the options of a command line.

    Args:
        launcher: None for the cluster in TF_CONFIG where that is set, else threads.
        gpus_per_worker: See `LocalCluster`.
        timeout_seconds: None for the default.
        grace_seconds: Likewise.
        environment: With TF_CONFIG, or without.
        open_network: See `LocalCluster`.
        parameter_servers: None for one, or those in TF_CONFIG.

    Raises:
        UserError: They do not go together, or TF_CONFIG cannot be used.
    """
    check_gpus_per_worker(gpus_per_worker)
    if launcher is None:
        launcher = JOINING_LAUNCHER if environment.get(TF_CONFIG) else DEFAULT_LAUNCHER
    if gpus_per_worker and launcher == DEFAULT_LAUNCHER:
        raise UserError(
            f"--gpus-per-worker {gpus_per_worker:g} needs a process for each worker, and"
            f" --launcher {launcher} has threads, which train on CPUs; add --launcher processes"
        )
    if open_network and launcher != JOINING_LAUNCHER:
        raise UserError(
            f"--open-network is for --launcher {JOINING_LAUNCHER}, and this is --launcher"
            f" {launcher}, of which nothing is on any network: leave it out"
        )
    if launcher == JOINING_LAUNCHER:
        config = read_tf_config(environment)
        if parameter_servers not in (None, config.servers):
            raise UserError(
                f"--parameter-servers is {parameter_servers}, and {TF_CONFIG} has {config.servers}"
                " ps: leave out --parameter-servers"
            )
        return LocalCluster(
            launcher,
            gpus_per_worker,
            DEFAULT_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds,
            DEFAULT_GRACE_SECONDS if grace_seconds is None else grace_seconds,
            config,
            open_network,
            config.servers,
        )
    servers = parameter_servers or 1
    if servers > 1 and launcher == DEFAULT_LAUNCHER:
        raise UserError(
            f"--parameter-servers {servers} needs a process for each, and --launcher {launcher} has"
            " threads, which share their memory anyway; add --launcher processes"
        )
    for option, value in (
        ("--cluster-timeout", timeout_seconds),
        ("--server-grace", grace_seconds),
    ):
        if value is not None:
            raise UserError(
                f"{option} is for --launcher {JOINING_LAUNCHER}, and this is --launcher"
                f" {launcher}: leave it out"
            )
    return LocalCluster(launcher, gpus_per_worker, servers=servers)


def load_local_workload(reference: str, workers: int) -> Workload:
    """Loads a workload into a process that can run `workers` workers.

    Raises:
        UserError: There is no such workload, or the number of workers is below 1.
    """
    if workers < 1:
        raise UserError(f"--workers is {workers}: give a whole number of 1 or more")
    find_module(reference)
    # Before the user's module, which may build tensors as it is imported.
    from syncswitch.trainers.model.tensorflow_api import prepare_for_threads

    prepare_for_threads(workers)
    return load_workload(reference)
