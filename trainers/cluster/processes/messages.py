"""Messages between the chief's process and the process that asks for trials.

They are pickled over a pair of sockets between a process and its own child. The one that asks sends
a `Train` for each trial, and a `Verdict` for each `Evaluation`.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.clock import LostChief


@dataclass(frozen=True)
class Train:
    """A trial is wanted; `lost` where another chief has begun it."""

    spec: TrialSpec
    lost: LostChief | None


@dataclass(frozen=True)
class Ready:
    """The cluster is up."""


@dataclass(frozen=True)
class Progressed:
    """So many worker-steps are done, at that training time."""

    worker_step: int
    elapsed_seconds: float


@dataclass(frozen=True)
class Warned:
    """One line for the user, at any time."""

    text: str


@dataclass(frozen=True)
class Failed:
    """The cluster or the trial failed; `kind` is the name of a class of `storage.errors`."""

    kind: str
    text: str


Message = Ready | Progressed | Evaluation | RunEvent | Warned | TrialRecord | Failed
"""What the chief sends; the record ends a trial."""
