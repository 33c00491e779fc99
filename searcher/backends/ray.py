"""`--trainer ray`: parameter servers and workers as actors of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.backends.base import Job, JobRequest, TrainerChoice
from syncswitch.searcher.backends.local import (
    named,
    servers_text,
)
from syncswitch.trainers.cluster.local import (
    GPUS_PER_WORKER,
    PARAMETER_SERVERS,
    load_local_workload,
)
from syncswitch.trainers.cluster.ray.options import AUTO, PLACEMENTS, RayOptions
from syncswitch.trainers.job.checks import check_length
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.options import TrainerOption
from syncswitch.trainers.protocols import check_protocols

if TYPE_CHECKING:
    from syncswitch.storage.records.job import RunConditions
    from syncswitch.trainers.conditions import ConditionsChoice
    from syncswitch.trainers.trainer import Trainer

_USUAL = RayOptions()


@dataclass(frozen=True)
class RayCluster(TrainerChoice):
    """Attributes: see `RayOptions`."""

    name = "ray"
    summary = "processes on the nodes of a Ray cluster"
    options = (
        TrainerOption(
            "--ray-address",
            "Head of the Ray cluster; auto = what runs on this machine, or RAY_ADDRESS.",
            metavar="auto|HOST:PORT",
            default=AUTO,
        ),
        TrainerOption(
            "--cpus-per-worker",
            "CPUs, as Ray counts them, of each worker (--trainer ray).",
            float,
            default=_USUAL.cpus_per_worker,
        ),
        GPUS_PER_WORKER,
        PARAMETER_SERVERS,
        TrainerOption(
            "--cpus-per-ps",
            "CPUs, as Ray counts them, of each parameter server (--trainer ray).",
            float,
            default=_USUAL.cpus_per_ps,
        ),
        TrainerOption(
            "--ray-placement",
            "spread = over as many nodes as there are; pack = onto as few as possible.",
            choices=PLACEMENTS,
            default=_USUAL.placement,
        ),
    )

    ray_address: str
    cpus_per_worker: float
    gpus_per_worker: float
    parameter_servers: int | None
    cpus_per_ps: float
    ray_placement: str

    @property
    @override
    def kind(self) -> str:
        """The kind, with what each worker has: it decides how long a run takes."""
        gpus = f", {self.gpus_per_worker:g} GPU" if self.gpus_per_worker else ""
        is_usual = self.cpus_per_worker == _USUAL.cpus_per_worker
        cpus = "" if is_usual else f", {self.cpus_per_worker:g} CPU"
        return f"{self.name}{cpus}{gpus}{servers_text(self.parameter_servers or 1)}"

    @override
    def job(self, request: JobRequest) -> Job:
        reference, workers = named(request), request.size
        options = RayOptions(
            self.ray_address,
            self.cpus_per_worker,
            self.gpus_per_worker,
            self.cpus_per_ps,
            self.ray_placement,
            self.parameter_servers or 1,
        )
        options.check()
        check_protocols(request.protocols, workers)
        identity = workload_identity(
            load_local_workload(reference, workers), workers, *request.protocols
        )
        check_length(identity)

        def open_trainer() -> Trainer:
            from syncswitch.trainers.cluster.ray.engine import RayTrainer

            return RayTrainer(reference, workers, options)

        return Job(identity=identity, open_trainer=open_trainer)

    @override
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        servers = self.parameter_servers or 1
        return chosen.conditions(workers, switch_percent, first_protocol, self.name, servers)
