"""`syncswitch-run --trainer simulated`: a run as its search made them, on a virtual clock."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from syncswitch.cli.options import is_given, trainer_option
from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.local import CLUSTER_OPTIONS, LocalCluster, choose_cluster
from syncswitch.trainers.job.loading import find_module, load_workload
from syncswitch.trainers.simulated.options import PROFILE

if TYPE_CHECKING:
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.simulated.profile import ClusterProfile
    from syncswitch.trainers.trainer import Trainer

_F = TypeVar("_F", bound=Callable[..., Any])


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

profile_option = trainer_option(PROFILE)


def cluster_chosen(function: _F) -> _F:
    """What `--trainer`, `--profile` and the `cluster_options` mean, as one argument `cluster`."""

    @functools.wraps(function)
    def chosen(
        *arguments: Any,
        trainer: str,
        profile: str,
        launcher: str | None,
        parameter_servers: int | None,
        gpus_per_worker: float,
        open_network: bool,
        cluster_timeout: float | None,
        server_grace: float | None,
        **others: Any,
    ) -> Any:
        cluster: AnyCluster
        if trainer == "simulated":
            cluster = _simulated(profile)
        elif is_given("profile"):
            raise UserError(
                f"--profile needs --trainer simulated, and this is --trainer {trainer}: change"
                " that, or leave it out"
            )
        else:
            cluster = choose_cluster(
                launcher,
                gpus_per_worker,
                cluster_timeout,
                server_grace,
                os.environ,
                open_network=open_network,
                parameter_servers=parameter_servers,
            )
        return function(*arguments, cluster=cluster, **others)

    decorated: Any = chosen
    found: _F = decorated
    return found


def _simulated(profile: str) -> VirtualCluster:
    for option in CLUSTER_OPTIONS:
        if is_given(option.parameter):
            raise UserError(
                f"{option.flag} cannot be used with --trainer simulated, whose cluster is what"
                " --profile says; leave it out"
            )
    from syncswitch.trainers.simulated.profile import load_profile

    return VirtualCluster(profile, load_profile(profile))
