"""The trainer whose whole cluster, chief included, is processes of its own.

The process that asks for trials and that of the chief talk over a pair of sockets, with pickled
messages. The one sends a spec for each trial, with a `LostChief` if another chief began it, and a
`Verdict` for each `Evaluation`; for what the other sends see `Message`.
"""

from __future__ import annotations

import logging
import math
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from syncswitch.storage.errors import (
    FatalError,
    RetryableError,
    SyncSwitchError,
    UserError,
    one_line,
)
from syncswitch.storage.files import OwnedFolder
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.clock import LostChief
from syncswitch.trainers.cluster.members.launcher import Launcher, tail_of_log
from syncswitch.trainers.cluster.processes.fork_server import ForkServer, shared_fork_server
from syncswitch.trainers.cluster.processes.this_machine import NO_GPU, LocalLauncher
from syncswitch.trainers.trainer import Observer, Trainer, Verdict

_LOG = logging.getLogger(__name__)
_PACKAGE = "syncswitch"
_CHIEFS_LOG = "chief.log"
_MOST_CLUSTERS = 5
_STARTS = 3.0


class Progressed(NamedTuple):
    """The number of worker-steps done, and the training time by then."""

    worker_step: int
    elapsed_seconds: float


Message = Progressed | Evaluation | RunEvent | str | TrialRecord | SyncSwitchError | None
"""A message of the chief.

None when its cluster is up; a string is a warning for the user; a record or an error ends a trial.
"""


class _ClusterLostError(RetryableError):
    """The chief's process has died or hangs."""


class ProcessTrainer(Trainer):
    """Trains on a cluster whose chief is a process of its own, as the other parts are.

    A cluster that fails is discarded, and the next trial starts another. By default the other
    processes are on the CPUs of this machine.

    Raises:
        UserError: The workload cannot be loaded, or there is no such cluster.
        RetryableError: A part does not start.
    """

    def __init__(self, reference: str, workers: int, launcher: Launcher | None = None) -> None:
        self._reference = reference
        self._workers = workers
        self._launcher = launcher or LocalLauncher()
        self._process_id: int | None = None
        self._fork_server: ForkServer | None = None
        self._connection: Connection | None = None
        self._folder: OwnedFolder | None = None
        self._patience_seconds: float | None = None
        self._warnings: set[str] = set()
        # The state of the trial under way, as its chief last reported it.
        self._heard = LostChief()
        self._events: list[RunEvent] = []
        try:
            self._start()
        except _ClusterLostError as error:
            raise self._given_up(str(error)) from error
        except BaseException:
            self.close()
            raise

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        # If the chief is lost or hangs, a run that writes checkpoints goes on from the last one on
        # another cluster, or from its start if there is none yet.
        observer = observer or Observer()
        current, lost, self._heard, self._events = spec, None, LostChief(), []
        for _ in range(_MOST_CLUSTERS):
            try:
                record = self._train(current, lost, observer)
                chosen = replace(spec, identity=record.spec.identity)
                return replace(record, spec=chosen, events=tuple(self._events))
            except _ClusterLostError as error:
                if not spec.checkpoint_percents:
                    raise self._given_up(str(error)) from error
                _LOG.warning("%s; going on from the last checkpoint", error)
                current = replace(spec, resume=True)
                lost = replace(self._heard, reason=f"the chief: {error}")
        raise self._given_up(f"the cluster of {self._workers} workers died {_MOST_CLUSTERS} times")

    def _train(self, spec: TrialSpec, lost: LostChief | None, observer: Observer) -> TrialRecord:
        if self._connection is None:
            self._start()
        is_refused = False
        try:
            self._send((spec, lost))
            reached, since = -1, time.monotonic()
            self._heard = LostChief(told_step=self._heard.told_step)
            while True:
                match self._receive():
                    case Progressed(worker_step, elapsed_seconds):
                        told_step = self._heard.told_step
                        self._heard = LostChief(worker_step, elapsed_seconds, told_step)
                        if worker_step != reached:
                            reached, since = worker_step, time.monotonic()
                        waited_seconds = time.monotonic() - since
                        if waited_seconds > (self._patience_seconds or math.inf):
                            raise self._hanging(f"it has got no further for {waited_seconds:.0f} s")
                        observer.on_progress(worker_step)
                    case Evaluation() as evaluation:
                        # Tests are progress too.
                        since = time.monotonic()
                        self._heard = replace(self._heard, told_step=evaluation.worker_step)
                        self._send(observer.on_evaluation(evaluation))
                    case RunEvent() as event:
                        if event.kind == "alarmed":  # the tests that follow are new ones
                            self._heard = replace(self._heard, told_step=-1)
                        self._events.append(event)
                        observer.on_event(event)
                    case TrialRecord() as record:
                        return record
                    case SyncSwitchError() as error:
                        # Refusing a trial does no harm to the cluster.
                        is_refused = isinstance(error, UserError)
                        raise error
        except BaseException:
            if not is_refused:
                self._end()
            raise

    def close(self) -> None:
        self._end()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.remove()

    def _end(self) -> None:
        """Ends every process of the cluster, but keeps its logs."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        process_id, self._process_id = self._process_id, None
        if process_id is not None:
            assert self._fork_server is not None
            with suppress(RetryableError):  # the processes died with the fork server
                self._fork_server.signal(process_id, signal.SIGKILL)

    def _start(self) -> None:
        place = tempfile.gettempdir()
        if place != place.encode(errors="replace").decode():
            raise UserError(
                f"the folder for temporary files {place!a} is not UTF-8 text, which processes need"
                " to meet in it: set TMPDIR to a folder whose path is",
                code="file-unusable",
            )
        self._fork_server = shared_fork_server()
        self._folder = self._folder or OwnedFolder("syncswitch-cluster-")
        folder = self._folder.path
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        try:
            self._process_id = self._fork_server.fork(
                _run_chief,
                (self._reference, self._workers, self._launcher, folder),
                str(folder / _CHIEFS_LOG),
                NO_GPU,
                connection=theirs,
            )
        finally:
            theirs.close()
        start = time.monotonic()
        self._patience_seconds = None
        try:
            if isinstance(error := self._receive(), SyncSwitchError):
                raise error
        except BaseException:
            self._end()
            raise
        # A chief may be silent while it rebuilds its cluster, as long as the first start took.
        took_seconds = time.monotonic() - start
        least_seconds = self._launcher.least_patience_seconds
        self._patience_seconds = max(least_seconds, _STARTS * took_seconds)

    def _hanging(self, how: str) -> _ClusterLostError:
        return _ClusterLostError(f"the cluster of {self._workers} workers hangs: {how}")

    def _send(self, message: tuple[TrialSpec, LostChief | None] | Verdict) -> None:
        assert self._connection is not None
        try:
            self._connection.send(message)
        except OSError as error:
            raise _ClusterLostError(self._death_report()) from error

    def _receive(self) -> Message:
        assert self._connection is not None
        while True:
            try:
                if not self._connection.poll(self._patience_seconds):
                    raise self._hanging(f"it has said nothing for {self._patience_seconds:.0f} s")
                message: Message = self._connection.recv()
            except (EOFError, OSError) as error:
                raise _ClusterLostError(self._death_report()) from error
            if not isinstance(message, str):
                return message
            # Each replacement of a cluster would repeat it.
            if message not in self._warnings:
                self._warnings.add(message)
                _LOG.warning("%s", message)

    def _death_report(self) -> str:
        assert self._fork_server is not None
        assert self._folder is not None
        how = "died"
        if self._process_id is not None:
            with suppress(RetryableError):
                how = self._fork_server.status(self._process_id).report or how
        log = self._folder.path / _CHIEFS_LOG
        return f"the cluster of {self._workers} workers {how}; {tail_of_log(log)}"

    def _given_up(self, problem: str) -> RetryableError:
        folder, self._folder = self._folder, None
        assert folder is not None
        return RetryableError(
            f"{problem}; its logs are in {folder.keep('syncswitch-logs-')}", code="cluster-lost"
        )


def _run_chief(plan: tuple[str, int, Launcher, Path], connection: Connection) -> None:
    """Runs the chief of a cluster, in a forked process, until nobody asks for trials any more."""
    reference, workers, launcher, folder = plan
    reporter = _Reporter(connection)
    logging.getLogger(_PACKAGE).addHandler(_WarningSender(reporter))
    try:
        from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
        from syncswitch.trainers.cluster.members.connected import ConnectedCluster
        from syncswitch.trainers.job.loading import load_workload

        launcher.open(reference, workers, folder)
        trainer = ClusterTrainer(
            load_workload(reference),
            workers,
            lambda program, workers: ConnectedCluster(program, workers, launcher),
            has_gpus=launcher.has_gpus,
        )
    except Exception as error:
        known = error if isinstance(error, SyncSwitchError) else FatalError(one_line(error))
        reporter.send(known)
        raise
    reporter.now_seconds = lambda: trainer.now_seconds
    reporter.send(None)
    while True:
        try:
            spec, lost = connection.recv()
        except EOFError:
            return
        try:
            reporter.send(trainer.train(spec, reporter, lost))
        except SyncSwitchError as error:
            reporter.send(error)


class _Reporter(Observer):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.now_seconds: Callable[[], float] = lambda: 0.0
        # The main thread reports progress, the evaluator's thread evaluations.
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        with self._sending:
            self._connection.send(message)

    def on_progress(self, worker_step: int) -> None:
        self.send(Progressed(worker_step, self.now_seconds()))

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
            self._reporter.send(record.getMessage())
