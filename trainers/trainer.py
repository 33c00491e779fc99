"""The interface between a search and its trainers."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod

from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec


class Verdict(enum.Enum):
    """Tells a training run what to do after an evaluation."""

    CONTINUE = "continue"
    STOP = "stop"


class Observer:
    """Watches one training run, called by one thread at a time; subclasses override what they need.

    Without a subclass nothing is done, and every run trains to its end.
    """

    def on_progress(self, worker_step: int) -> None:
        """Receives the number of worker-steps done, a few times a second."""

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        """Receives each evaluation, in the order of the worker-steps."""
        return Verdict.CONTINUE

    def on_event(self, event: RunEvent) -> None:
        """Receives each event of the run."""


class Watching(Observer):
    """Passes everything on to another observer; subclasses override what they need."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def on_progress(self, worker_step: int) -> None:
        self._observer.on_progress(worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        return self._observer.on_evaluation(evaluation)

    def on_event(self, event: RunEvent) -> None:
        self._observer.on_event(event)


class Trainer(ABC):
    """Trains trials of one workload, one after the other. A context manager."""

    @abstractmethod
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        """Runs one trial to its end and returns what it measured.

        A diverged run is a result. `KeyboardInterrupt` stops the run and is raised again.

        Raises:
            UserError: The spec does not fit this trainer (other workload, foreign checkpoint).
            RetryableError: Infrastructure failed; the trial may be run again.
        """

    def close(self) -> None:  # noqa: B027 (a trainer without resources has nothing to do)
        """Ends its processes and releases its memory; may be called twice."""

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
