"""`--trainer ray`: parameter servers and workers as actors of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.backends.base import ProcessesChoice, option
from syncswitch.trainers.cluster.processes.ray import AUTO, PLACEMENTS, RayLauncher

if TYPE_CHECKING:
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.trainer import Trainer

_USUAL = RayLauncher()


@dataclass(frozen=True)
class RayCluster(ProcessesChoice):
    """A Ray cluster; see `RayLauncher` for the options."""

    name = "ray"
    summary = "processes on the nodes of a Ray cluster (experimental)"

    ray_address: str = option(
        "Head of the Ray cluster; auto = the one on this machine, or RAY_ADDRESS.",
        metavar="auto|HOST:PORT",
        default=AUTO,
    )
    cpus_per_worker: float = option(
        "CPUs, as Ray counts them, of each worker.", float, default=_USUAL.cpus_per_worker
    )
    cpus_per_ps: float = option(
        "CPUs, as Ray counts them, of each parameter server.", float, default=_USUAL.cpus_per_ps
    )
    ray_placement: str = option(
        "spread = over as many nodes as there are; pack = onto as few as possible.",
        choices=PLACEMENTS,
        default=_USUAL.placement,
    )

    other_process = "the trainer ray"

    @property
    @override
    def kind(self) -> str:
        """The name with a worker's resources, which decide how long a run takes."""
        is_usual = self.cpus_per_worker == _USUAL.cpus_per_worker
        cpus = "" if is_usual else f", {self.cpus_per_worker:g} CPU"
        # Databases hold this name, so its parts stay in this order.
        return f"{self.name}{cpus}{self.gpus_text}{self.servers_text}"

    @override
    def check_capacity(self, workers: int) -> None:
        self._launcher.check()

    @override
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer

        return ProcessTrainer(reference, workers, self._launcher)

    @property
    def _launcher(self) -> RayLauncher:
        return RayLauncher(
            self.ray_address,
            self.cpus_per_worker,
            self.gpus_per_worker,
            self.cpus_per_ps,
            self.ray_placement,
            self.servers,
        )
