"""The launcher for a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.trainers.cluster.processes.launcher import Launcher
from syncswitch.trainers.cluster.ray.options import RayOptions

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.members.engine import Engine
    from syncswitch.trainers.cluster.processes.zygote import Zygote


@dataclass(frozen=True)
class RayLauncher(RayOptions, Launcher):
    """Starts the parts on a Ray cluster."""

    # A part may have to wait for a node, and to import TensorFlow there.
    least_patience_seconds = 300.0

    @override
    def new_engine(self, reference: str, workers: int, folder: Path, zygote: Zygote) -> Engine:
        from syncswitch.trainers.cluster.ray.engine import RayEngine, connect, reserve

        connect(self)
        return RayEngine(reserve(self, workers), self, reference)
