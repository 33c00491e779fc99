"""`--trainer local`: a TensorFlow cluster on this machine, or in TF_CONFIG.

TensorFlow is imported only when a workload is loaded or a cluster is started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.backends.base import ProcessesChoice, option, unsuitable
from syncswitch.storage.errors import Command, CommandHint, OptionHint, UserError
from syncswitch.trainers.cluster.local import DEFAULT_LAUNCHER, JOINING_LAUNCHER, LAUNCHERS
from syncswitch.trainers.cluster.processes.tf_config import (
    TF_CONFIG,
    TfConfig,
    TfConfigLauncher,
    check_address,
    cluster_secret,
    read_tf_config,
    serve_until_chief_is_gone,
)
from syncswitch.trainers.cluster.processes.this_machine import (
    LocalLauncher,
    check_gpus_per_worker,
    place_on_gpus,
    visible_gpus,
)

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.members.launcher import Launcher
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.trainer import Trainer

_TIMEOUT_SECONDS = 600.0
_GRACE_SECONDS = 300.0


_PROCESSES = OptionHint("launcher", "processes", "add")


@dataclass(frozen=True)
class LocalTrainer(ProcessesChoice):
    """A TensorFlow cluster on this machine, or in TF_CONFIG; None stands for a default."""

    name = "local"
    summary = "a TensorFlow cluster on this machine, or in TF_CONFIG"

    launcher: str | None = option(
        "in-process = workers are threads; processes = workers are processes; tf-config"
        " (experimental) = the cluster in TF_CONFIG, where this command is started for each"
        " part."
        f"  [default: tf-config if TF_CONFIG is set, else {DEFAULT_LAUNCHER}]",
        choices=(*LAUNCHERS, JOINING_LAUNCHER),
    )
    open_network: bool = option(
        "In the cluster of TF_CONFIG, do without the secret SYNCSWITCH_SECRET and without"
        " encryption: anyone who can reach a part of the cluster can then make it compute"
        " anything.",
        bool,
        default=False,
    )
    cluster_timeout: float | None = option(
        "How long the parts of the cluster in TF_CONFIG wait for each other: the chief for"
        " parts that have not connected yet or have to come back; a part for its chief."
        f"  [default: {_TIMEOUT_SECONDS:g}]",
        float,
        metavar="SECONDS",
        least=1.0,
        most=1e6,
    )
    server_grace: float | None = option(
        "How long a part of the cluster in TF_CONFIG waits, before it ends, for a lost chief"
        f" to be restarted.  [default: {_GRACE_SECONDS:g}]",
        float,
        metavar="SECONDS",
        least=0.0,
        most=1e6,
    )

    def __post_init__(self) -> None:
        check_gpus_per_worker(self.gpus_per_worker)
        launcher = self.launcher_kind
        if self.gpus_per_worker and launcher == DEFAULT_LAUNCHER:
            why = f"that needs a process for each worker, and the launcher {launcher} has threads,"
            why += " which train on CPUs"
            raise unsuitable(why, "gpus_per_worker", self.gpus_per_worker, _PROCESSES)
        given = self.parameter_servers
        if self.config is not None:
            if given not in (None, self.config.servers):
                why = f"{TF_CONFIG} has {self.config.servers} ps"
                raise unsuitable(why, "parameter_servers", given)
            return
        if self.servers > 1 and launcher == DEFAULT_LAUNCHER:
            why = f"that needs a process for each, and the launcher {launcher} has threads, which"
            why += " share their memory anyway"
            raise unsuitable(why, "parameter_servers", given, _PROCESSES)
        for name in ("open_network", "cluster_timeout", "server_grace"):
            value = getattr(self, name)
            if value is not None and value is not False:
                why = f"is for the launcher {JOINING_LAUNCHER}, and this is {launcher}"
                raise unsuitable(why, name, value if value is True else None)

    @cached_property
    def config(self) -> TfConfig | None:
        """The cluster to join; None if one is to be started."""
        return read_tf_config(os.environ) if self.launcher_kind == JOINING_LAUNCHER else None

    @cached_property
    @override
    def launcher_kind(self) -> str:
        """The launcher; if none is named, TF_CONFIG decides."""
        if self.launcher is not None:
            return self.launcher
        return JOINING_LAUNCHER if os.environ.get(TF_CONFIG) else DEFAULT_LAUNCHER

    @property
    @override
    def servers(self) -> int:
        return super().servers if self.config is None else self.config.servers

    @property
    @override
    def kind(self) -> str:
        return f"{self.name}/{self.launcher_kind}{self.servers_text}{self.gpus_text}"

    @override
    def take_part(self, reference: str | None, say: Callable[[str], None]) -> bool:
        """See `TrainerChoice`.

        Raises UserError without a secret, or if this part cannot listen at its address, and
        RetryableError if no chief came.
        """
        config = self.config
        if config is None:
            return False
        if config.job == "chief":
            check_address(config)
            return False
        if config.job == "evaluator":
            say(f"{TF_CONFIG} makes this process an evaluator: the chief evaluates, so it ends")
            return True
        grace_seconds = _GRACE_SECONDS if self.server_grace is None else self.server_grace
        cluster = self._joined(config)
        serve_until_chief_is_gone(cluster, grace_seconds, say, self.gpus_per_worker, reference)
        return True

    @override
    def check_parallel_runs(self, parallel_runs: int) -> None:
        has_one = self.config is not None
        if parallel_runs > 1 and (has_one or self.gpus_per_worker):
            why = "TF_CONFIG has one" if has_one else "all of them would use the same GPUs"
            why = f"that needs a cluster for each, and {why}"
            raise unsuitable(why, "parallel_runs", parallel_runs)

    @override
    def workers(self, given: int | None) -> int | None:
        if self.config is None:
            return given
        if given not in (None, self.config.workers):
            raise unsuitable(f"{TF_CONFIG} has {self.config.workers} of them", "workers", given)
        return self.config.workers

    def placement(self, workers: int) -> tuple[Mapping[str, str], ...]:
        """Returns the environments of the workers, with the GPUs of this machine that they use.

        Raises UserError if there are too few.
        """
        gpus: tuple[str, ...] = ()
        if self.gpus_per_worker:
            from syncswitch.trainers.model.tensorflow_api import tf

            gpus = visible_gpus(os.environ, len(tf.config.list_physical_devices("GPU")))
        return place_on_gpus(workers, gpus, self.gpus_per_worker)

    @override
    def check_capacity(self, workers: int) -> None:
        if self.config is None:
            self.placement(workers)
        elif self.config.job != "chief":
            raise UserError(
                f"{TF_CONFIG} makes this process {self.config.name}, and only its chief trains",
                remedy=CommandHint(Command.TRAIN, ("WORKLOAD",), "serve it with:"),
                code="cluster-unusable",
            )
        else:
            self._joined(self.config)

    @property
    @override
    def other_process(self) -> str:
        is_other = self.launcher_kind != DEFAULT_LAUNCHER
        return f"launcher {self.launcher_kind}" if is_other else ""

    @override
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        if self.launcher_kind == DEFAULT_LAUNCHER:
            from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer

            return ClusterTrainer(workload, workers)
        from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer

        launcher: Launcher
        if self.config is None:
            launcher = LocalLauncher(
                self.placement(workers), self.servers, has_gpus=self.gpus_per_worker > 0
            )
        else:
            launcher = self._joined(self.config)
        return ProcessTrainer(reference, workers, launcher)

    def _joined(self, config: TfConfig) -> TfConfigLauncher:
        given = self.cluster_timeout
        timeout_seconds = _TIMEOUT_SECONDS if given is None else given
        secret = cluster_secret(is_open=self.open_network)
        return TfConfigLauncher(config, timeout_seconds, secret, has_gpus=self.gpus_per_worker > 0)
