"""The processes of the campaign of failures, seen from outside."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.failure_cases import Lane

_MARK = "SYNCSWITCH_CAMPAIGN"
_SETTLE_SECONDS = 5.0
_DUMP_SECONDS = 3.0
_CODE = "from benchmarks.failure_lane import main; main()"


class LaneDiedError(Exception):
    """The process that trains is gone."""


class StuckError(Exception):
    """A run takes too long."""


class LaneProcess:
    """A process that trains, and all that it starts, which has a mark in its environment.

    Args:
        lane: The lane that it serves.
        folder: For its log.
    """

    def __init__(self, lane: Lane, folder: Path) -> None:
        self.lane = lane
        self._mark = secrets.token_hex(8)
        self._temporary = folder / f"tmp-{self._mark}"
        self._temporary.mkdir()
        self._log = (folder / f"lane-{self._mark}.log").open("w+b")
        self._connection, theirs = multiprocessing.Pipe()
        environment = {
            **os.environ,
            _MARK: self._mark,
            "TMPDIR": str(self._temporary),
            # A process that gets SIGABRT says what its threads do.
            "PYTHONFAULTHANDLER": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        theirs.close()

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # then the answer does not come either
            self._connection.send(message)

    def receive(self, deadline: float) -> Any:
        """The next message.

        Raises:
            StuckError: There is none in time.
            LaneDiedError: There will be none.
        """
        try:
            if not self._connection.poll(max(0.0, deadline - time.monotonic())):
                raise StuckError
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise LaneDiedError from error

    def set_disk_full(self, is_full: bool) -> None:
        """Lets whoever writes checkpoints write to no file, or lets them again.

        The others may: their limit would be one on shared memory as well.
        """
        limit = 0 if is_full else resource.RLIM_INFINITY
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                log = Path(f"/proc/{process.pid}/fd/2").readlink().name
                if self.lane[0] != "in-process" and log != "chief.log":
                    continue
                resource.prlimit(
                    process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)
                )

    def kill(self) -> None:
        """Kills the process that trains; what it has started has to end by itself."""
        self._process.kill()

    def leftovers(self) -> list[str]:
        """Processes and files that should not be there, after a run or once this one has ended."""
        return [*self._excess_processes(), *self._excess_files()]

    def _excess_files(self) -> list[str]:
        files = sorted(path.name for path in self._temporary.iterdir())
        status = self._process.poll()
        if status is None and self.lane[0] != "in-process":
            # That of the living cluster's logs.
            logs = [name for name in files if name.startswith("syncswitch-cluster-")][:1]
            files = [name for name in files if name not in logs]
        is_killed = status is not None and status != 0
        return [] if is_killed else [f"{name} in TMPDIR" for name in files]

    def _excess_processes(self) -> list[str]:
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            found = self._processes()
            excess = len(found) - self._expected()
            if excess <= 0:
                return []
            if time.monotonic() > deadline:
                return [f"{excess} processes"]
            time.sleep(0.1)

    def log_text(self) -> str:
        """The output so far of the process and of the cluster that it has started."""
        texts = [self._own_log()]
        texts += [_written(log) for log in self._cluster_logs()]
        return "\n".join(texts)

    def stacks(self) -> str:
        """The stacks of all threads of all processes, which end by this."""
        logs = self._cluster_logs()
        # The youngest first: with the oldest all others end.
        processes = sorted(self._processes(), key=lambda process: -process.pid)
        lines = [f"{one.pid} child of {one.ppid()}, {one.status()}" for one in processes]
        for process in processes:
            process.send_signal(signal.SIGABRT)
            is_forked = process.ppid() != os.getpid() and process.ppid() != self._process.pid
            time.sleep(0.0 if is_forked else 1.0)
        time.sleep(_DUMP_SECONDS)
        return "\n".join([*lines, self._own_log(), *map(_written, logs)])

    def close(self) -> list[str]:
        """Ends it in order, else with force; what is left of it."""
        self._connection.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        left = self.leftovers()
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._log.close()
        Path(self._log.name).unlink()
        shutil.rmtree(self._temporary)
        return left

    def _expected(self) -> int:
        if self._process.poll() is not None:
            return 0
        launcher, workers, servers = self.lane
        if launcher == "in-process":
            return 1
        # Besides those: this one, fork server, chief.
        return 3 + workers + servers

    def _processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                is_alive = process.status() != psutil.STATUS_ZOMBIE
                if is_alive and process.environ().get(_MARK) == self._mark:
                    found.append(process)
        return found

    def _own_log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def _cluster_logs(self) -> list[Any]:
        """The open logs of clusters, which have no name."""
        logs = {}
        for process in self._processes():
            with contextlib.suppress(OSError):
                path = f"/proc/{process.pid}/fd/2"
                number = os.stat(path).st_ino
                if number not in logs and number != os.fstat(self._log.fileno()).st_ino:
                    logs[number] = open(path, "rb")  # noqa: SIM115 (read after its writer's end)
        return list(logs.values())


def _written(log: Any) -> str:
    with log:
        text: str = log.read().decode(errors="replace")
    return text
