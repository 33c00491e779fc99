"""The command lines as real processes that need not import TensorFlow first.

The import takes seven seconds of a processor. A fork server makes it once for all tests; each
program is a fork of it, with its own folder, environment and standard streams. `program.py` starts
the same programs afresh.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

from tests import program

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.warm_libraries"])


class WarmProcess:
    """A Python program in a fork of the server; used like `subprocess.Popen`."""

    def __init__(self, code: str, *arguments: str, folder: Path) -> None:
        out, child_out = _SERVER.Pipe(duplex=False)
        err, child_err = _SERVER.Pipe(duplex=False)
        words = ["-c", *arguments]
        environment = program.environment()
        self._process = _SERVER.Process(
            target=_become, args=(code, words, folder, environment, child_out, child_err)
        )
        self._process.start()
        for end in (child_out, child_err):
            end.close()
        self.stdout, self.stderr = _text(out), _text(err)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float = 240) -> tuple[str, str]:
        """All that it still writes, once it has ended; kills it if that takes too long."""
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self._process.join(timeout)
            if self._process.exitcode is None:
                self._process.kill()
                raise subprocess.TimeoutExpired(repr(self._process), timeout)
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


def _text(end: Connection) -> TextIO:
    """The reading end of a pipe as a file."""
    file = os.fdopen(os.dup(end.fileno()))
    end.close()
    return file


def _become(
    code: str,
    words: list[str],
    folder: Path,
    environment: Mapping[str, str],
    out: Connection,
    err: Connection,
) -> None:
    """In the fork: `python -c CODE WORDS` in a folder."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (out.fileno(), 1), (err.fileno(), 2)):
        os.dup2(descriptor, standard)
    out.close()
    err.close()
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    sys.path.insert(0, "")
    exec(code, {"__name__": "__main__"})
