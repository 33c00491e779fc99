"""The options of a Ray cluster: its resources, and whether they fit; needs no Ray itself."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.placement import check_gpus_per_worker
from syncswitch.trainers.cluster.processes.tf_config import host_and_port

AUTO = "auto"
PLACEMENTS = ("spread", "pack")
_CLIENT = "ray://"

Resources = Mapping[str, float]
"""Amounts by Ray's name of the resource: `CPU` or `GPU`."""

_NAMES = ("CPU", "GPU")
# Amounts are multiples of a ten-thousandth, whose sums are not exact.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class RayOptions:
    """How the parts are placed on a Ray cluster.

    Attributes:
        address: The address of the head, `host:port`; `auto` for a cluster on this machine, or the
            one that RAY_ADDRESS names.
        cpus_per_worker: The CPUs of each worker, as Ray counts them.
        gpus_per_worker: The GPUs of each worker: 0, 1, or a share of one.
        cpus_per_ps: The CPUs of each parameter server.
        placement: `spread` over as many nodes, or `pack` onto as few as possible.
        servers: The number of parameter servers.
    """

    address: str = AUTO
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    cpus_per_ps: float = 1.0
    placement: str = PLACEMENTS[0]
    servers: int = 1

    def check(self) -> None:
        """Raises UserError for what would fail on any cluster."""
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
        """Splits an address other than `auto`; raises UserError if that is not possible."""
        if self.address.startswith(_CLIENT):
            raise UserError(
                f"--ray-address {self.address} is for Ray Client: the chief has to be on a node of"
                " the cluster, where its workers reach it; start the search there, with"
                f" --ray-address {AUTO}"
            )
        try:
            return host_and_port(self.address)
        except ValueError as error:
            raise UserError(
                f"--ray-address is {self.address!r}: give {AUTO}, or host:port of the cluster's"
                " head, as `ray start --head` prints it"
            ) from error


def bundles(options: RayOptions, workers: int) -> list[dict[str, float]]:
    """Returns the resources of each parameter server and then of each worker."""
    worker = {"CPU": options.cpus_per_worker}
    if options.gpus_per_worker:
        worker["GPU"] = options.gpus_per_worker
    servers = ({"CPU": options.cpus_per_ps} for _ in range(options.servers))
    return [*servers, *(dict(worker) for _ in range(workers))]


def check_capacity(nodes: Sequence[Resources], options: RayOptions, workers: int) -> None:
    """Raises UserError if the parts would not fit even on the empty cluster."""
    servers = options.servers
    server, *_, worker = bundles(options, workers)
    # For each number of servers on the nodes so far, the most workers that fit beside them.
    most = {0: 0}
    for node in nodes:
        rooms = [
            _times(_rest(node, server, count), worker)
            for count in range(min(servers, _times(node, server)) + 1)
        ]
        found: dict[int, int] = {}
        for (before, fitting), (count, room) in product(most.items(), enumerate(rooms)):
            total = before + count
            if total <= servers:
                found[total] = max(found.get(total, 0), fitting + room)
        most = found
    if most.get(servers, -1) >= workers:
        return
    many = "a parameter server" if servers == 1 else f"{servers:,} parameter servers"
    raise UserError(
        f"the Ray cluster has no room for {many} with {_text(server)}{' each' * (servers > 1)} and"
        f" {workers:,} workers with {_text(worker)} each: it has {_nodes_text(nodes)}; use fewer"
        " --workers, smaller --cpus-per-worker or --gpus-per-worker, or add nodes"
    )


def _times(node: Resources, bundle: Resources) -> int:
    """Returns how many times a bundle fits on a node."""
    return min(
        math.floor(node.get(name, 0.0) / amount + _TOLERANCE) for name, amount in bundle.items()
    )


def _rest(node: Resources, bundle: Resources, times: int) -> dict[str, float]:
    return {name: node.get(name, 0.0) - times * bundle.get(name, 0.0) for name in _NAMES}


def _text(amounts: Resources) -> str:
    named = ((amounts.get(name, 0.0), name) for name in _NAMES)
    said = [f"{amount:g} {name}{'' if amount == 1 else 's'}" for amount, name in named if amount]
    return " and ".join(said) or "nothing"


def _nodes_text(nodes: Sequence[Resources]) -> str:
    counts = Counter(map(_text, nodes))
    said = [
        f"{count:,} node{'' if count == 1 else 's'} with {text}" for text, count in counts.items()
    ]
    return ", ".join(said) or "no living node"
