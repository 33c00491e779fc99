"""Real forks, of a process that has imported TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from syncswitch.trainers.cluster.members.launcher import ProcessState, ProcessStatus
from syncswitch.trainers.cluster.processes import fork_server as fork_servers
from syncswitch.trainers.cluster.processes.fork_server import shared_fork_server
from tests.failing import fails
from tests.processes import until
from tests.trainers.cluster.launchers import all_gone


def fork(
    folder: Path,
    target: Callable[..., None],
    argument: Any = None,
    environment: Mapping[str, str] | None = None,
    **fields: Any,
) -> int:
    return shared_fork_server().fork(
        target, argument, str(folder / "log"), environment or {}, **fields
    )


def ended(process_id: int) -> ProcessStatus:
    """Waits for a process to end, and returns its status."""
    fork_server = shared_fork_server()
    until(lambda: fork_server.status(process_id).state is not ProcessState.RUNNING)
    return fork_server.status(process_id)


# What is forked.


def tell(argument: Any) -> None:
    found = {
        "argument": argument,
        "tensorflow": "tensorflow" in sys.modules,
        "threads": threading.active_count(),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    print(json.dumps(found))


def fail(argument: Any) -> None:
    raise ZeroDivisionError(argument)


def leave(argument: Any) -> None:
    os._exit(argument)


def sleep(*_: Any) -> None:
    time.sleep(1000)


def fork_others(folder: Any, asker: Connection) -> None:
    asker.send([fork(Path(folder), sleep) for _ in range(2)])
    assert asker.recv() == "end one"
    asker.send(None)
    time.sleep(1000)


def test_it_has_tensorflow_one_thread_and_what_it_was_given(tmp_path: Path) -> None:
    argument = {"some": ["thing"]}
    assert (
        ended(fork(tmp_path, tell, argument, {"MINE": "1", "HOME": "here"})).state
        is ProcessState.DEAD
    )
    assert json.loads((tmp_path / "log").read_text()) == {
        "argument": argument,
        "tensorflow": True,
        "threads": 1,
        "folder": os.getcwd(),
        "environment": {**os.environ, "MINE": "1", "HOME": "here"},
    }
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_how_it_ended_is_known(tmp_path: Path) -> None:
    fork_server = shared_fork_server()
    for work, given, status in ((leave, 0, 0), (leave, 3, 3), (fail, "words", 1)):
        how = ProcessStatus(ProcessState.DEAD, f"ended with status {status}")
        assert ended(fork(tmp_path, work, given)) == how
    log = (tmp_path / "log").read_text()
    assert log.endswith("ZeroDivisionError: words\n")
    sleeping = fork(tmp_path, sleep)
    assert fork_server.status(sleeping) == ProcessStatus(ProcessState.RUNNING)
    for number, life in (
        (signal.SIGSTOP, ProcessState.STOPPED),
        (signal.SIGCONT, ProcessState.RUNNING),
    ):
        fork_server.signal(sleeping, number)
        until(lambda life=life: fork_server.status(sleeping).state is life)
    for _ in range(2):
        fork_server.signal(sleeping, signal.SIGKILL)
        assert fork_server.status(sleeping) == ProcessStatus(ProcessState.DEAD, "died of SIGKILL")
    assert not psutil.pid_exists(sleeping), "no zombie stays behind"


def test_it_touches_no_process_that_it_has_not_forked(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        shared_fork_server().signal(other.pid, signal.SIGKILL)
        assert shared_fork_server().status(other.pid).state is ProcessState.DEAD
        assert other.poll() is None
        other.kill()


def test_those_that_it_forks_itself_end_with_it(tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        ours, theirs = socket.socketpair()
        forking = fork(tmp_path, fork_others, str(tmp_path), connection=theirs)
        theirs.close()
        connection = Connection(ours.detach())
        grandchildren = list(map(psutil.Process, connection.recv()))
        assert len({process.pid for process in grandchildren}) == 2
        assert shared_fork_server().status(grandchildren[0].pid).state is ProcessState.DEAD, (
            "not its own"
        )
        connection.send("end one")
        connection.recv()
        assert all(process.is_running() for process in grandchildren)
        shared_fork_server().signal(forking, number)
        assert all_gone(grandchildren)


def test_many_threads_may_ask_at_once(tmp_path: Path) -> None:
    def ask(_: int) -> int:
        one = fork(tmp_path, sleep)
        assert shared_fork_server().status(one).state is ProcessState.RUNNING
        shared_fork_server().signal(one, signal.SIGKILL)
        assert shared_fork_server().status(one).state is ProcessState.DEAD
        return one

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(12)))) == 12


# What forks others needs nothing of what it imports for them, which takes seconds.
LIBRARIES = {"tensorflow": "class config: list_physical_devices = staticmethod(list)", "keras": ""}


def test_another_takes_the_place_of_one_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in LIBRARIES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(content)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[4]}")
    monkeypatch.setattr(fork_servers, "_shared", {})
    before = set(psutil.Process().children())
    first = shared_fork_server()
    child = psutil.Process(fork(tmp_path, sleep))
    assert shared_fork_server() is first
    (process,) = set(psutil.Process().children()) - before
    process.kill()
    assert all_gone([child]), "it outlives the one that has forked it"
    with fails("cluster-lost", "the fork server has exited"):
        first.status(child.pid)
    second = psutil.Process(fork(tmp_path, sleep))
    assert shared_fork_server() is not first
    fork_servers._shared["thread"].shutdown()
    assert all_gone([second]), "it ends with the thread that has started it"
