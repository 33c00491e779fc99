"""Messages between the chief's process and the process that asks for trials.

They are pickled over a pair of sockets between a process and its own child. The one that asks sends
a `TrialSpec` for each trial, and a `Verdict` for each `Evaluation`.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord


@dataclass(frozen=True)
class Ready:
    """The cluster is up."""


@dataclass(frozen=True)
class Progressed:
    """So many worker-steps are done."""

    worker_step: int


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
