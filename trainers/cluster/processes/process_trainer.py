"""A trainer whose whole cluster, chief included, runs in processes of its own."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import IO

from typing_extensions import override

from syncswitch.storage import errors
from syncswitch.storage.errors import RetryableError, SyncSwitchError, UserError
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.processes.log_tail import tail_of_log
from syncswitch.trainers.cluster.processes.messages import (
    Failed,
    Message,
    Progressed,
    Ready,
    Warned,
)
from syncswitch.trainers.cluster.servers.placement import Placement, place_on_cpus
from syncswitch.trainers.faults.grammar import parse_injection
from syncswitch.trainers.trainer import Observer, SilentObserver, Trainer, Verdict

_LOG = logging.getLogger(__name__)
_STOP_SECONDS = 10
_MOST_CLUSTERS = 5
_STARTS = 3.0


class _ClusterLostError(RetryableError):
    """The chief's process has died or hangs."""


class _OnceObserver:
    """Passes each evaluation on once, also where a restarted cluster repeats it.

    Attributes:
        events: All that happened, on whatever cluster.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._tested_step = -1
        self.events: list[RunEvent] = []

    def on_progress(self, worker_step: int) -> None:
        self._observer.on_progress(worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        if evaluation.worker_step <= self._tested_step:
            return Verdict.CONTINUE
        self._tested_step = evaluation.worker_step
        return self._observer.on_evaluation(evaluation)

    def on_event(self, event: RunEvent) -> None:
        self.events.append(event)
        self._observer.on_event(event)


class ProcessTrainer(Trainer):
    """Trains on real TensorFlow servers in a private network namespace.

    The chief has to be in the namespace too, and this process must stay outside, where the database
    is: so they are different processes. A cluster that fails is thrown away, and the next trial
    starts another.

    Args:
        reference: The workload, as `load_workload` takes it.
        workers: n.
        placement: Devices of the servers; by default they use no GPUs.
        open_network: Go on where the system allows no private network namespace, and let the
            servers listen on all interfaces.
    """

    least_patience_seconds = 30.0
    """A chief that trains reports several times a second; so long without a word, it hangs."""

    def __init__(
        self,
        reference: str,
        workers: int,
        placement: Placement | None = None,
        *,
        open_network: bool = False,
    ) -> None:
        self._reference = reference
        self._open_network = open_network
        self._workers = workers
        self._placement = placement or place_on_cpus(workers)
        # These are reached through a delaying proxy.
        self._proxied: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._log: IO[bytes] | None = None
        self._patience_seconds: float | None = None
        self._warnings: set[str] = set()
        self._start()

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        # When the chief is lost or hangs, a run that writes checkpoints goes on from the last one,
        # on another cluster, or from its start where there is none yet.
        once = _OnceObserver(observer or SilentObserver())
        current = spec
        for _ in range(_MOST_CLUSTERS):
            try:
                record = self._train(current, once)
                return replace(record, spec=spec, events=tuple(once.events))
            except _ClusterLostError as error:
                if not spec.checkpoint_percents:
                    raise RetryableError(str(error)) from error
                _LOG.warning("%s; going on from the last checkpoint", error)
                current = replace(spec, resume=True)
        raise RetryableError(f"the cluster of {self._workers} workers died {_MOST_CLUSTERS} times")

    def _train(self, spec: TrialSpec, observer: Observer) -> TrialRecord:
        proxied = _proxied_workers(spec)
        if not proxied <= self._proxied:
            self.close()
            self._proxied = proxied
        if self._connection is None:
            self._start()
        is_refused = False
        try:
            self._send(spec)
            reached, since = -1, time.monotonic()
            while True:
                match self._receive():
                    case Progressed(worker_step):
                        if worker_step != reached:
                            reached, since = worker_step, time.monotonic()
                        self._check_patience(time.monotonic() - since)
                        observer.on_progress(worker_step)
                    case Evaluation() as evaluation:
                        self._send(observer.on_evaluation(evaluation))
                    case RunEvent() as event:
                        observer.on_event(event)
                    case TrialRecord() as record:
                        return record
                    case Failed() as failed:
                        # A trial that does not fit does no harm to the cluster.
                        is_refused = isinstance(error := _error_of(failed), UserError)
                        raise error
        except BaseException:
            if not is_refused:
                self.close()
            raise

    def close(self) -> None:
        """Ends every process of the cluster. May be called twice."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def program(self, socket_fd: int) -> list[str]:
        """The module that starts the cluster, or joins one, and its arguments.

        Args:
            socket_fd: Inherited by it; for its chief (see `chief.py`).
        """
        proxied = map(str, sorted(self._proxied))
        placement = self._placement.as_json()
        return [
            "syncswitch.trainers.cluster.processes.zygote",
            *(str(socket_fd), self._reference, placement),
            *("open" if self._open_network else "private", *proxied),
        ]

    def _start(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._log = tempfile.TemporaryFile(prefix="syncswitch-cluster-")  # noqa: SIM115 (see close)
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self.program(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            # Ctrl-C is for this process, which then ends the cluster in order.
            start_new_session=True,
        )
        theirs.close()
        start = time.monotonic()
        self._patience_seconds = None
        try:
            message = self._receive()
            if isinstance(message, Failed):
                raise _error_of(message)
        except BaseException:
            self.close()
            raise
        # What it may have to do without a word is to build all that it has built now.
        took_seconds = time.monotonic() - start
        self._patience_seconds = max(self.least_patience_seconds, _STARTS * took_seconds)
        if isinstance(message, Ready) and not message.private_network:
            _LOG.warning(
                "the cluster's servers listen on all interfaces, and TensorFlow asks nobody for a "
                "password"
            )

    def _check_patience(self, seconds: float) -> None:
        """A chief that reports no progress for too long is taken for hanging."""
        if self._patience_seconds is not None and seconds > self._patience_seconds:
            raise self._hanging(f"it has got no further for {seconds:.0f} s")

    def _hanging(self, how: str) -> _ClusterLostError:
        return _ClusterLostError(f"the cluster of {self._workers} workers hangs: {how}")

    def _send(self, message: TrialSpec | Verdict) -> None:
        assert self._connection is not None
        try:
            self._connection.send(message)
        except OSError as error:
            raise _ClusterLostError(self._death_report()) from error

    def _receive(self) -> Message:
        while isinstance(message := self._next_message(), Warned):
            # Each cluster that takes the place of another would say it again.
            if message.text not in self._warnings:
                self._warnings.add(message.text)
                _LOG.warning("%s", message.text)
        return message

    def _next_message(self) -> Message:
        assert self._connection is not None
        try:
            if not self._connection.poll(self._patience_seconds):
                raise self._hanging(f"it has said nothing for {self._patience_seconds:.0f} s")
            message: Message = self._connection.recv()
        except (EOFError, OSError) as error:
            raise _ClusterLostError(self._death_report()) from error
        return message

    def _death_report(self) -> str:
        assert self._process is not None
        assert self._log is not None
        cause = ""
        with suppress(subprocess.TimeoutExpired):
            cause = _cause_of_death(self._process.wait(_STOP_SECONDS))
        return f"the cluster of {self._workers} workers died{cause}; {tail_of_log(self._log)}"


def _cause_of_death(status: int) -> str:
    """Such as ` of SIGABRT`; empty for a process that no signal has ended."""
    number = -status if status < 0 else status - 128
    with suppress(ValueError):
        return f" of {signal.Signals(number).name}"
    return ""


def _proxied_workers(spec: TrialSpec) -> set[int]:
    """Workers that are to be reached through a delaying proxy."""
    found = map(parse_injection, spec.conditions.injections)
    return {one.worker for one in found if one.by == "proxy" and one.worker is not None}


def _error_of(message: Failed) -> SyncSwitchError:
    error: SyncSwitchError = getattr(errors, message.kind)(message.text)
    return error
