"""Messages between the chief's process and the process that asks for trials.

They are pickled over a pair of sockets between a process and its own child.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.trainer import Verdict


@dataclass(frozen=True)
class Ready:
    """The cluster is up; `private_network` says whether nobody else can reach it."""

    private_network: bool


@dataclass(frozen=True)
class Train:
    """Asks for one trial."""

    spec: TrialSpec


@dataclass(frozen=True)
class Progressed:
    """Worker-steps done."""

    worker_step: int


@dataclass(frozen=True)
class Evaluated:
    """An evaluation; the chief waits for an `Answered`."""

    evaluation: Evaluation


@dataclass(frozen=True)
class Occurred:
    """Something happened to the run."""

    event: RunEvent


@dataclass(frozen=True)
class Answered:
    """Answer to `Evaluated`."""

    verdict: Verdict


@dataclass(frozen=True)
class Warned:
    """One line for the user, at any time."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The trial is over."""

    record: TrialRecord


@dataclass(frozen=True)
class Failed:
    """The cluster or the trial failed; `kind` is the name of a class of `storage.errors`."""

    kind: str
    text: str


Message = Ready | Train | Progressed | Evaluated | Occurred | Answered | Warned | Finished | Failed
