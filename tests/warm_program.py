"""The command lines as real processes that need not import TensorFlow first: see `warm_server.py`.

`program.py` starts the same programs afresh.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

from tests import program, warm_server


class Fork:
    """A Python program in a fork of the server.

    Args:
        code: What it does.
        words: Its `sys.argv`.
        folder: It works in.
        environment: All of it.
        descriptors: Its standard input, output and error, which end here.
    """

    def __init__(
        self,
        code: str,
        words: list[str],
        folder: Path,
        environment: Mapping[str, str],
        descriptors: tuple[int, int, int],
    ) -> None:
        server = warm_server.shared()
        self.pid, self._status = server.start(
            _become, code, words, folder, environment, descriptors=descriptors
        )
        for descriptor in set(descriptors):
            os.close(descriptor)
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self, timeout: float | None = 0) -> int | None:
        if self._returncode is None and self._status.poll(timeout):
            self._returncode = self._status.recv()
        return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""
        if (code := self.poll(timeout)) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmProcess(Fork):
    """One whose output is read here; used like `subprocess.Popen`."""

    def __init__(self, code: str, *arguments: str, folder: Path, **variables: str) -> None:
        out, child_out = os.pipe()
        err, child_err = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        environment = {**program.environment(), **variables}
        standard = (nothing, child_out, child_err)
        super().__init__(code, ["-c", *arguments], folder, environment, standard)
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)

    def communicate(self, timeout: float = 240) -> tuple[str, str]:
        """All that it still writes, once it has ended; kills it if that takes too long."""
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            if self.poll(timeout) is None:
                self.kill()
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            return texts[0].result(), texts[1].result()


def start(name: str, *arguments: object, folder: Path) -> WarmProcess:
    """Starts a program in a folder, with the database `syncswitch.db` there."""
    return WarmProcess(program.code(name), *map(str, arguments), folder=folder)


def run(name: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    return _ended(start(name, *arguments, folder=folder))


def run_code(code: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python code to its end."""
    return _ended(WarmProcess(code, *map(str, arguments), folder=folder))


def _ended(process: WarmProcess) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate()
    assert process.returncode is not None
    return subprocess.CompletedProcess([], process.returncode, out, err)


def _become(
    code: str, words: list[str], folder: Path, environment: Mapping[str, str], *descriptors: int
) -> None:
    """In the fork."""
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    sys.orig_argv[:] = [sys.executable, "-c", code, *words[1:]]  # to be started once more
    sys.path.insert(0, "")
    warm_server.fork_zygote()
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(code, main.__dict__)
