"""`syncswitch-run --trainer simulated`: a run as its search made them, on a virtual clock."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

from syncswitch.cli.options import is_given, trainer_option
from syncswitch.searcher.backends.virtual_cluster import AnyCluster, VirtualCluster
from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.local import CLUSTER_OPTIONS, choose_cluster
from syncswitch.trainers.simulated import PROFILE

_F = TypeVar("_F", bound=Callable[..., Any])


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
