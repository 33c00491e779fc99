"""`--trainer simulated`: real gradients on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.backends.base import Job, JobRequest, TrainerChoice
from syncswitch.searcher.backends.local import named
from syncswitch.searcher.backends.virtual_cluster import VirtualCluster
from syncswitch.trainers.job.checks import check_length
from syncswitch.trainers.job.loading import find_module, load_workload
from syncswitch.trainers.protocols import check_protocols
from syncswitch.trainers.simulated import PROFILE

if TYPE_CHECKING:
    from syncswitch.storage.records.job import RunConditions
    from syncswitch.trainers.conditions import ConditionsChoice


@dataclass(frozen=True)
class SimulatedCluster(TrainerChoice):
    """Attributes: profile: Name or file of what the cluster is like."""

    name = "simulated"
    summary = "real gradients on a virtual clock"
    options = (PROFILE,)

    profile: str

    @property
    def cluster(self) -> VirtualCluster:
        """The cluster that the profile describes. Raises UserError where it cannot be read."""
        from syncswitch.trainers.simulated.profile import load_profile

        return VirtualCluster(self.profile, load_profile(self.profile))

    @override
    def job(self, request: JobRequest) -> Job:
        from syncswitch.trainers.simulated.profile import load_profile

        workers = request.size
        check_protocols(request.protocols, workers)
        if request.workload is None:
            find_module(named(request))
        profile = load_profile(self.profile)
        profile.check_workers(workers, self.profile)
        from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity

        workload = request.workload or load_workload(named(request))
        identity = simulated_identity(workload, workers, request.protocols, profile)
        check_length(identity)
        return Job(
            identity=identity,
            open_trainer=lambda: SimulatedTrainer(workload, workers, profile),
            profile=self.profile,
        )

    @override
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        return chosen.conditions(workers, switch_percent, first_protocol, self.name)
