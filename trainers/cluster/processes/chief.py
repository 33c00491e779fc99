"""The process of a chief, and the messages between it and the process that asks for trials.

The messages are pickled over a pair of sockets. The asking process sends a spec for each trial,
with a `LostChief` if another chief began it, and a `Verdict` for each `Evaluation`.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from syncswitch.storage.errors import FatalError, SyncSwitchError, one_line
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord
from syncswitch.trainers.cluster.processes.launcher import Launcher
from syncswitch.trainers.cluster.processes.zygote import Zygote
from syncswitch.trainers.trainer import Observer, Verdict

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer


@dataclass(frozen=True)
class ChiefPlan:
    """The plan of a chief that is a process of its own."""

    reference: str
    workers: int
    launcher: Launcher
    folder: Path


@dataclass(frozen=True)
class Progressed:
    """The number of worker-steps done, and the training time by then."""

    worker_step: int
    elapsed_seconds: float


@dataclass(frozen=True)
class Warned:
    """A warning for the user, on one line."""

    text: str


Message = Progressed | Evaluation | RunEvent | Warned | TrialRecord | SyncSwitchError | None
"""A message of the chief: None when its cluster is up; a record or an error ends a trial."""


_PACKAGE = "syncswitch"


def be_chief(plan: ChiefPlan, connection: Connection, zygote: Connection) -> None:
    """Runs the chief of a cluster, in a forked process, until nobody asks for trials any more."""
    reporter = _Reporter(connection)
    logging.getLogger(_PACKAGE).addHandler(_WarningSender(reporter))
    try:
        trainer = _trainer(plan, Zygote(zygote))
    except Exception as error:
        known = error if isinstance(error, SyncSwitchError) else FatalError(one_line(error))
        reporter.send(known)
        raise
    reporter.send(None)
    reporter.serve(trainer)


def _trainer(plan: ChiefPlan, zygote: Zygote) -> ClusterTrainer:
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
    from syncswitch.trainers.cluster.members.connected import ConnectedCluster
    from syncswitch.trainers.job.loading import load_workload

    launcher = plan.launcher
    engine = launcher.new_engine(plan.reference, plan.workers, plan.folder, zygote)
    return ClusterTrainer(
        load_workload(plan.reference),
        plan.workers,
        lambda program, workers: ConnectedCluster(program, workers, engine, launcher.servers),
        has_gpus=engine.has_gpus,
    )


class _Reporter(Observer):
    """Runs the trials that are asked for, and reports on them as their observer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._trainer: ClusterTrainer | None = None
        # The main thread reports progress, the evaluator's thread evaluations.
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        with self._sending:
            self._connection.send(message)

    def serve(self, trainer: ClusterTrainer) -> None:
        self._trainer = trainer
        while True:
            try:
                spec, lost = self._connection.recv()
            except EOFError:
                return
            try:
                self.send(trainer.train(spec, self, lost))
            except SyncSwitchError as error:
                self.send(error)

    def on_progress(self, worker_step: int) -> None:
        assert self._trainer is not None
        self.send(Progressed(worker_step, self._trainer.now_seconds))

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        self.send(evaluation)
        verdict = self._connection.recv()
        assert isinstance(verdict, Verdict)
        return verdict

    def on_event(self, event: RunEvent) -> None:
        self.send(event)


class _WarningSender(logging.Handler):
    """Sends this package's warnings to the process that the user sees."""

    def __init__(self, reporter: _Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the other process may be gone
            self._reporter.send(Warned(record.getMessage()))
