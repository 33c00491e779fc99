"""`--trainer simulated`: real gradients on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.backends.base import ClusterChoice, JobRequest, TrainableJob, option
from syncswitch.storage.errors import OptionHint
from syncswitch.trainers.job.loading import find_module, load_workload
from syncswitch.trainers.simulated import DEFAULT_PROFILE

if TYPE_CHECKING:
    from syncswitch.storage.records.job import ScheduledJob
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.simulated.profile import ClusterProfile
    from syncswitch.trainers.trainer import Trainer


@dataclass(frozen=True)
class SimulatedCluster(ClusterChoice):
    """A simulated cluster, whose `profile` is a name or a file."""

    name = "simulated"
    summary = "real gradients on a virtual clock"

    profile: str = option(
        "Profile of the simulated cluster: see `profile list`.",
        metavar="NAME|FILE",
        default=DEFAULT_PROFILE,
    )

    @cached_property
    def described(self) -> ClusterProfile:
        from syncswitch.trainers.simulated.profile import load_profile

        return load_profile(self.profile)

    @property
    @override
    def simulated_cluster(self) -> str:
        return self.described.digest

    @property
    @override
    def search_options(self) -> tuple[OptionHint, ...]:
        return OptionHint("trainer", self.name), OptionHint("profile", self.profile)

    @override
    def check_capacity(self, workers: int) -> None:
        self.described.check_workers(workers, self.profile)

    @override
    def load(self, reference: str, workers: int) -> Workload:
        find_module(reference)
        # Before the user's module, which may import TensorFlow and make it write warnings.
        import syncswitch.trainers.model.tensorflow_api  # noqa: F401
        from syncswitch.trainers.run.callbacks import check_callbacks

        workload = load_workload(reference)
        check_callbacks(workload)
        return workload

    @override
    def identity(
        self, workload: Workload, workers: int, protocols: tuple[str, str]
    ) -> ScheduledJob:
        from syncswitch.trainers.simulated.trainer import simulated_identity

        return simulated_identity(workload, workers, protocols, self.described)

    @override
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        from syncswitch.trainers.simulated.trainer import SimulatedTrainer

        return SimulatedTrainer(workload, workers, self.described)

    @override
    def job(self, request: JobRequest) -> TrainableJob:
        return replace(super().job(request), profile=self.profile)
