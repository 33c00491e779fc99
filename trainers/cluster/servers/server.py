"""One TensorFlow server: a fork of a process with TensorFlow, or a program of its own.

python -m syncswitch.trainers.cluster.servers.server ADDRESSES JOB TASK PORT
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn, cast

from syncswitch.storage.errors import UserError, one_line

_STANDARD_INPUT = 0


def serve(addresses: Mapping[str, Sequence[str]], job: str, task: int, port: int) -> NoReturn:
    """Runs a TensorFlow server until the process is killed."""
    own = {name: list(each) for name, each in addresses.items()}
    own[job][task] = f"127.0.0.1:{port}"
    # Kept in a variable: a server that nobody refers to is stopped.
    server = start_server(own, job, task)
    while True:
        # Not server.join(): it would ignore signals.
        signal.pause()
        assert server is not None


def start_server(addresses: Mapping[str, Sequence[str]], job: str, task: int) -> Any:
    """Starts a TensorFlow server in this process, at its own address and all its interfaces."""
    from syncswitch.trainers.model.tensorflow_api import tf

    try:
        return tf.distribute.Server(
            tf.train.ClusterSpec(dict(addresses)), job_name=job, task_index=task, protocol="grpc"
        )
    except tf.errors.UnknownError as error:
        raise UserError(
            f"{job} {task} cannot listen at {addresses[job][task]} ({one_line(error)}); end what"
            " listens there, or give it another port"
        ) from error


def do_without_keras() -> None:
    """Has this process import TensorFlow without Keras, which a server does not need.

    Keras is 40 % of the time that the import takes, and 150 MB.
    """
    sys.modules.setdefault("keras", cast(ModuleType, None))


def become_server(
    addresses: Mapping[str, Sequence[str]],
    job: str,
    task: int,
    port: int,
    environment: Mapping[str, str],
) -> NoReturn:
    """Replaces this process by a fresh program that serves; for `serve`'s arguments.

    Args:
        addresses: See `serve`.
        job: See `serve`.
        task: See `serve`.
        port: See `serve`.
        environment: Set on top of this process's own before TensorFlow is imported.
    """
    # A fork has closed its standard input, and the next file to be opened would become it.
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, _STANDARD_INPUT)
    os.set_inheritable(_STANDARD_INPUT, True)
    content = json.dumps({name: list(each) for name, each in addresses.items()})
    arguments = ["-m", __name__, content, job, str(task), str(port)]
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **environment})


def main() -> None:
    """The program."""
    content, job, task, port = sys.argv[1:]
    do_without_keras()
    serve(json.loads(content), job, int(task), int(port))


if __name__ == "__main__":
    main()
