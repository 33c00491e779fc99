"""Messages between the process that asks for trials and its child, the chief of a cluster.

They pickle it over a pair of sockets. The one that asks sends a spec for each trial, with a
`LostChief` where another one has begun it, and a `Verdict` for each `Evaluation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncswitch.storage.errors import SyncSwitchError
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord

LOCAL_ENGINE = "syncswitch.trainers.cluster.processes.engine:new_engine"


@dataclass(frozen=True)
class ChiefPlan:
    """The plan of a chief that is a process of its own.

    Attributes:
        reference: The workload, as `load_workload` takes it.
        workers: n.
        engine: Who starts the other processes: `module:function`, called with the plan and the
            chief's zygote.
        options: Of the engine.
        folder: For sockets and logs.
        servers: How many parameter servers share the state.
    """

    reference: str
    workers: int
    engine: str
    options: Any
    folder: str
    servers: int = 1


@dataclass(frozen=True)
class Progressed:
    """The number of worker-steps done, and the training time by then."""

    worker_step: int
    elapsed_seconds: float


@dataclass(frozen=True)
class Warned:
    """One line for the user, at any time."""

    text: str


Message = Progressed | Evaluation | RunEvent | Warned | TrialRecord | SyncSwitchError | None
"""What the chief sends: first None, when its cluster is up; a record or an error ends a trial."""
