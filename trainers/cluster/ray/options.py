"""The resources of a trial on a Ray cluster; needs no Ray."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.placement import check_gpus_per_worker

AUTO = "auto"
PLACEMENTS = ("spread", "pack")
_CLIENT = "ray://"


@dataclass(frozen=True, slots=True)
class RayOptions:
    """The resources of a trial, and where they are.

    Attributes:
        address: Of the cluster's head, `host:port`; `auto` for what runs on this machine, or what
            RAY_ADDRESS names.
        cpus_per_worker: CPUs, as Ray counts them, of each worker.
        gpus_per_worker: GPUs of each worker: 0, 1, or the share of one.
        cpus_per_ps: CPUs of the parameter server.
        placement: `spread` over as many nodes, or `pack` onto as few as possible.
    """

    address: str = AUTO
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    cpus_per_ps: float = 1.0
    placement: str = PLACEMENTS[0]

    def check(self) -> None:
        """Refuses what can be known to fail without asking the cluster."""
        if importlib.util.find_spec("ray") is None:
            raise UserError(
                "--trainer ray needs Ray, which is not installed: pip install 'syncswitch[ray]',"
                " here and on each node of the cluster"
            )
        for flag, cpus in (
            ("--cpus-per-worker", self.cpus_per_worker),
            ("--cpus-per-ps", self.cpus_per_ps),
        ):
            if not 0.0 < cpus < float("inf"):
                raise UserError(f"{flag} is {cpus:g}: give a number above 0, such as 1 or 0.5")
        check_gpus_per_worker(self.gpus_per_worker)
        if self.address != AUTO:
            self.host_and_port()

    def host_and_port(self) -> tuple[str, int]:
        """The parts of an address that is not `auto`."""
        if self.address.startswith(_CLIENT):
            raise UserError(
                f"--ray-address {self.address} is of a Ray client: the chief has to be on a node of"
                " the cluster, where its workers reach it; start the search there, with"
                f" --ray-address {AUTO}"
            )
        host, _, port = self.address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
            raise UserError(
                f"--ray-address is {self.address!r}: give {AUTO}, or host:port of the cluster's"
                " head, as `ray start --head` prints it"
            )
        return host.strip("[]"), int(port)
