"""A Ray actor that runs one TensorFlow server as a process of its own.

So a server can be stopped, killed and asked for its last words, and neither shares a process with
Ray nor keeps its log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import psutil

from syncswitch.trainers.cluster.processes.log_tail import tail_of_log

RUNNING, STOPPED, DEAD = "running", "stopped", "dead"


@dataclass(frozen=True, slots=True)
class Start:
    """How a server started.

    Attributes:
        address: Where it listens; None where it did not get so far.
        host: Its node.
        problem: How it ended, or how the one before it had ended by itself; None for neither.
    """

    address: str | None
    host: str
    problem: str | None = None


class ServerActor:
    """One server; Ray calls one method after the other.

    Args:
        job: `ps` or `worker`.
        task: Its number.
        environment: Set before TensorFlow is imported, besides the GPUs that Ray gives it.
    """

    def __init__(self, job: str, task: int, environment: Mapping[str, str]) -> None:
        import ray

        self._arguments = (job, str(task))
        self._environment = {**os.environ, **environment}
        self._host = ray.util.get_node_ip_address()
        self._port = "0"
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> Start:
        """Starts the server, or another one in its place; returns when it listens."""
        before = self._end()
        self._log = tempfile.TemporaryFile(prefix="syncswitch-server-")  # noqa: SIM115 (see _end)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "syncswitch.trainers.cluster.ray.server"),
                *(self._host, self._port, *self._arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=self._environment,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().decode().strip()
        if port:
            # The next one is there, too: calls that wait for this one end.
            self._port = port
            return Start(f"{self._host}:{port}", self._host, before)
        self._process.wait()
        return Start(None, self._host, self._death_report())

    def state(self) -> str:
        """`RUNNING`, `STOPPED` or `DEAD`."""
        if self._process is None or self._process.poll() is not None:
            return DEAD
        status = psutil.Process(self._process.pid).status()
        return STOPPED if status == psutil.STATUS_STOPPED else RUNNING

    def signal(self, number: int) -> None:
        """Sends it a signal; where that kills, returns when it is dead."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            if number == signal.SIGKILL:
                self._process.wait()

    def _end(self) -> str | None:
        """Ends the server; how it ended before, where it was dead already."""
        process, log = self._process, self._log
        if process is None or log is None:
            return None
        obituary = None if process.poll() is None else self._death_report()
        process.kill()
        process.wait()
        for file in (process.stdin, process.stdout, log):
            assert file is not None
            file.close()
        return obituary

    def _death_report(self) -> str:
        assert self._process is not None
        assert self._log is not None
        return f"ended with status {self._process.returncode}; {tail_of_log(self._log)}"
