"""Launchers: what starts the processes of a cluster, as an option of its chief."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.members.engine import Engine
    from syncswitch.trainers.cluster.processes.placement import Placement
    from syncswitch.trainers.cluster.processes.zygote import Zygote


class Launcher(ABC):
    """Describes how a cluster is started; it is pickled and sent to the process of the chief."""

    least_patience_seconds: ClassVar[float] = 30.0
    """A chief reports several times a second while it trains; one that is silent so long hangs."""

    @property
    @abstractmethod
    def servers(self) -> int:
        """The number of parameter servers that share the state."""

    @abstractmethod
    def new_engine(self, reference: str, workers: int, folder: Path, zygote: Zygote) -> Engine:
        """Makes the engine, in the process of the chief.

        `folder` is for sockets and logs.

        Raises:
            UserError: There is no such cluster, or it is too small.
            RetryableError: The cluster is busy.
        """


@dataclass(frozen=True)
class LocalLauncher(Launcher):
    """Starts the processes on this machine."""

    placement: Placement
    servers: int = 1

    @override
    def new_engine(self, reference: str, workers: int, folder: Path, zygote: Zygote) -> Engine:
        from syncswitch.trainers.cluster.processes.engine import LocalEngine

        return LocalEngine(zygote, self.placement, folder, reference)
