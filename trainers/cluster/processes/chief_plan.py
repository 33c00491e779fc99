"""What the chief of a cluster is told to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LOCAL_ENGINE = "syncswitch.trainers.cluster.processes.engine:new_engine"


@dataclass(frozen=True)
class ChiefPlan:
    """Of a chief that is a process of its own.

    Attributes:
        reference: The workload, as `load_workload` takes it.
        workers: n.
        engine: Who starts the other processes: `module:function`, called with the plan and the
            chief's zygote.
        options: Of the engine.
        folder: For sockets and logs.
    """

    reference: str
    workers: int
    engine: str
    options: Any
    folder: str
