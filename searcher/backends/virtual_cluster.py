"""A simulated cluster in the place of one on this machine, for trainings with a policy."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.trainers.cluster.local import LocalCluster
from syncswitch.trainers.job.loading import find_module, load_workload

if TYPE_CHECKING:
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.simulated.profile import ClusterProfile
    from syncswitch.trainers.trainer import Trainer


@dataclass(frozen=True)
class VirtualCluster:
    """Takes the place of a `LocalCluster`.

    Attributes:
        source: Name or file of the profile.
        profile: What the cluster is like.
    """

    source: str
    profile: ClusterProfile

    launcher = "simulated"
    servers = 1

    @property
    def simulated_cluster(self) -> str:
        """Digest of the profile."""
        return self.profile.digest

    @property
    def search_options(self) -> str:
        """Has a search make its runs here; for messages."""
        return f" --trainer simulated --profile {shlex.quote(self.source)}"

    def take_part(self, _say: Callable[[str], None], _reference: str | None = None) -> bool:
        """One process is the whole cluster."""
        return False

    def workers(self, given: int | None) -> int | None:
        """N as the user has it."""
        return given

    def check_capacity(self, workers: int) -> None:
        """Raises UserError where a straggler of the profile is none of these workers."""
        self.profile.check_workers(workers, self.source)

    def load(self, reference: str, _workers: int) -> Workload:
        """Loads a workload."""
        find_module(reference)
        # Before the user's module, which may import TensorFlow: it writes less so.
        import syncswitch.trainers.model.tensorflow_api  # noqa: F401

        return load_workload(reference)

    def identity(
        self, workload: Workload, workers: int, protocols: tuple[str, str]
    ) -> WorkloadIdentity:
        """The job, which is another one than on a real cluster."""
        from syncswitch.trainers.simulated.trainer import simulated_identity

        return simulated_identity(workload, workers, protocols, self.profile)

    def open(self, workload: Workload, _reference: str, workers: int) -> Trainer:
        """Builds the model."""
        from syncswitch.trainers.simulated.trainer import SimulatedTrainer

        return SimulatedTrainer(workload, workers, self.profile)


AnyCluster = LocalCluster | VirtualCluster
