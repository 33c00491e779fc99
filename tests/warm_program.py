"""The command lines as real processes that need not import TensorFlow first.

The import takes four seconds of a processor. They are forks of a server of `multiprocessing`, which
has imported `warm_libraries.py`; the first fork server of each is a fork of the program itself.
`program.py` starts the same programs afresh.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

from syncswitch.trainers.cluster.processes import fork_server
from syncswitch.trainers.parent import die_with_parent
from tests import program

ROOT = Path(__file__).parents[1]


@cache
def server() -> ForkServerContext:
    """What starts processes that are forks of the server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm_libraries"])
    with mock.patch.dict(os.environ, PYTHONPATH=str(ROOT)):
        forkserver.ensure_running()
    # Else `multiprocessing` would wait for what a test has left behind.
    atexit.register(lambda: [process.kill() for process in multiprocessing.active_children()])
    return context


def at_once(function: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
    """What a function gives for each of some arguments, each in a process of its own."""
    given = list(arguments)
    with ProcessPoolExecutor(len(given), server()) as pool:
        return list(pool.map(function, given))


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
        streams = {descriptor: Connection(descriptor) for descriptor in set(descriptors)}
        standard = [streams[descriptor] for descriptor in descriptors]
        self._process = server().Process(
            target=_become, args=(code, words, folder, dict(environment), standard)
        )
        self._process.start()
        for stream in streams.values():
            stream.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self, timeout: float | None = 0) -> int | None:
        self._process.join(timeout)
        return self._process.exitcode

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


# What a shell starts: passes its words, surroundings and streams on, and ends as the fork does.
_DIALS = """#!{python} -IS
import json, os, socket, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
forks = ["-m", "reproduction"], ["-m", "ipykernel_launcher"]
if words[0] == "python" and words[1:3] not in forks:
    os.execv({python!r}, [{python!r}, *words[1:]])
with socket.socket(socket.AF_UNIX) as dialed:
    dialed.connect({address!r})
    told = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(dialed, [len(told).to_bytes(8, "big")], [0, 1, 2])
    dialed.sendall(told)
    sys.exit(int(dialed.recv(16)))
"""


@contextmanager
def for_shells(folder: Path) -> Iterator[Path]:
    """Makes a folder with both programs, and a Python, whose modules for notebooks are forks."""
    folder.mkdir()
    address = str(folder / "socket")
    for name in (*program.PROGRAMS, "python"):
        (folder / name).write_text(_DIALS.format(python=sys.executable, address=address))
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(8) as answering:
        listening.bind(address)
        listening.listen()

        def answer_all() -> None:
            while True:
                dialed, _ = listening.accept()
                if (folder / "closed").exists():
                    return
                answering.submit(_answer, dialed)

        answering.submit(answer_all)
        try:
            yield folder
        finally:
            (folder / "closed").touch()
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(address)


def _answer(dialed: socket.socket) -> None:
    with dialed, dialed.makefile("rb") as reader:
        size, descriptors, *_ = socket.recv_fds(dialed, 8, 3)
        words, folder, variables = json.loads(reader.read(int.from_bytes(size, "big")))
        if words[0] == "python":
            code = f"import runpy; runpy.run_module({words[2]!r}, run_name='__main__')"
            words = words[2:]
        else:
            code = program.code(words[0])
        streams = (descriptors[0], descriptors[1], descriptors[2])
        status = Fork(code, words, Path(folder), variables, streams).wait()
        dialed.sendall(str(status if status >= 0 else 128 - status).encode())


def _become(
    code: str,
    words: list[str],
    folder: Path,
    environment: Mapping[str, str],
    standard: list[Connection],
) -> None:
    """In the fork."""
    die_with_parent()
    for number, stream in enumerate(standard):
        os.dup2(stream.fileno(), number)
    for stream in standard:
        stream.close()
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    sys.orig_argv[:] = [sys.executable, "-c", code, *words[1:]]  # to be started once more
    sys.path.insert(0, "")
    fork_first_server()
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(code, main.__dict__)


def fork_first_server() -> None:
    """Has the first fork server of this process be a fork of it."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if not os.fork():
        ours.close()
        _be_fork_server(theirs, parent)
    theirs.close()
    start = fork_server._start

    def start_first() -> fork_server.ForkServer:
        fork_server._start = start
        return fork_server.ForkServer(Connection(ours.detach()))

    fork_server._start = start_first


def _be_fork_server(channel: socket.socket, parent: int) -> NoReturn:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() == parent:
            wait([channel])
            fork_server._Family(Connection(channel.detach())).serve()
    finally:
        os._exit(0)
