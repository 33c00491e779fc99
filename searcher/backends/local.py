"""`--trainer local`: a TensorFlow cluster on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.backends.base import Job, JobRequest, TrainerChoice
from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.local import (
    CLUSTER_OPTIONS,
    LocalCluster,
    choose_cluster,
    load_local_workload,
)
from syncswitch.trainers.job.checks import check_length
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import BUILT_IN
from syncswitch.trainers.protocols import check_protocols

if TYPE_CHECKING:
    from syncswitch.storage.records.job import RunConditions
    from syncswitch.trainers.conditions import ConditionsChoice


@dataclass(frozen=True)
class LocalTrainer(TrainerChoice):
    """The options of `choose_cluster`."""

    name = "local"
    summary = "a TensorFlow cluster on this machine, or in TF_CONFIG"
    options = CLUSTER_OPTIONS

    launcher: str | None
    parameter_servers: int | None
    gpus_per_worker: float
    open_network: bool
    cluster_timeout: float | None
    server_grace: float | None

    @cached_property
    def cluster(self) -> LocalCluster:
        """The cluster that the options describe.

        Raises:
            UserError: They do not go together, or TF_CONFIG cannot be used.
        """
        return choose_cluster(
            self.launcher,
            self.gpus_per_worker,
            self.cluster_timeout,
            self.server_grace,
            os.environ,
            open_network=self.open_network,
            parameter_servers=self.parameter_servers,
        )

    @property
    @override
    def kind(self) -> str:
        gpus = f", {self.gpus_per_worker:g} GPU" if self.gpus_per_worker else ""
        return f"{self.name}/{self.cluster.launcher}{servers_text(self.cluster.servers)}{gpus}"

    @override
    def take_part(self, reference: str | None, say: Callable[[str], None]) -> bool:
        return self.cluster.take_part(say, reference)

    @override
    def check_jobs(self, jobs: int) -> None:
        has_one = self.cluster.config is not None
        if jobs > 1 and (has_one or self.gpus_per_worker):
            why = "TF_CONFIG has one" if has_one else "all of them would use the same GPUs"
            raise UserError(f"--jobs {jobs} needs a cluster for each, and {why}; leave out --jobs")

    @override
    def workers(self, given: int | None) -> int | None:
        return self.cluster.workers(given)

    @override
    def job(self, request: JobRequest) -> Job:
        cluster, workers = self.cluster, request.size
        check_protocols(request.protocols, workers)
        if request.workload is None:
            reference = named(request)
            workload = load_local_workload(reference, workers)
        else:
            workload, reference = request.workload, request.workload.name
            cluster.check_object(reference)
        identity = workload_identity(workload, workers, *request.protocols)
        check_length(identity)
        cluster.check_capacity(workers)
        return Job(
            identity=identity,
            open_trainer=lambda: cluster.open(workload, reference, workers),
        )

    @override
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        cluster = self.cluster
        return chosen.conditions(
            workers, switch_percent, first_protocol, cluster.launcher, cluster.servers
        )


def servers_text(servers: int) -> str:
    """Part of a kind's name: the number of parameter servers, which changes the times."""
    return "" if servers == 1 else f", {servers:,} parameter servers"


def named(request: JobRequest) -> str:
    """The workload of a request that cannot do without.

    Raises:
        UserError: None was named.
    """
    if request.reference is None:
        raise UserError(
            f"no WORKLOAD is named; give a built-in name ({', '.join(BUILT_IN)}),"
            " file.py:attribute or package.module:attribute"
        )
    return request.reference
