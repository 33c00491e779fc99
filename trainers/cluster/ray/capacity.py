"""Whether a parameter server and its workers fit onto the nodes of a Ray cluster; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.ray.options import RayOptions

Resources = Mapping[str, float]
"""Amount by name, as Ray calls them: `CPU`, `GPU`."""

_NAMES = ("CPU", "GPU")
# Amounts are ten-thousandths at least; sums of them are not exact.
_TOLERANCE = 1e-6


def bundles(options: RayOptions, workers: int) -> list[dict[str, float]]:
    """The resources of the parameter server and of each worker, in this order."""
    worker = {"CPU": options.cpus_per_worker}
    if options.gpus_per_worker:
        worker["GPU"] = options.gpus_per_worker
    return [{"CPU": options.cpus_per_ps}, *(dict(worker) for _ in range(workers))]


def check_capacity(nodes: Sequence[Resources], options: RayOptions, workers: int) -> None:
    """Refuses what would not fit onto the empty cluster."""
    server, *others = bundles(options, workers)
    worker = others[0]
    rooms = [_times(node, worker) for node in nodes]
    # All workers are alike, so only where the parameter server goes makes a difference.
    best = max(
        (
            sum(rooms) - rooms[number] + _times(_rest(node, server), worker)
            for number, node in enumerate(nodes)
            if _times(node, server)
        ),
        default=None,
    )
    if best is not None and best >= workers:
        return
    raise UserError(
        f"the Ray cluster has no room for a parameter server with {_text(server)} and {workers:,}"
        f" workers with {_text(worker)} each: it has {_nodes_text(nodes)}; use fewer --workers,"
        " smaller --cpus-per-worker or --gpus-per-worker, or add nodes"
    )


def _times(node: Resources, bundle: Resources) -> int:
    """How often a bundle fits onto a node."""
    return min(
        math.floor(node.get(name, 0.0) / amount + _TOLERANCE) for name, amount in bundle.items()
    )


def _rest(node: Resources, bundle: Resources) -> dict[str, float]:
    return {name: node.get(name, 0.0) - bundle.get(name, 0.0) for name in _NAMES}


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
