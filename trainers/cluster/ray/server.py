"""One TensorFlow server on a node of a Ray cluster; says on standard output at which port.

    python -m syncswitch.trainers.cluster.ray.server HOST PORT JOB TASK

Port 0 is for one that the system chooses, as it does for one that is not free. The server ends when
its standard input does.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.servers.network import die_with_parent
from syncswitch.trainers.cluster.servers.server import do_without_keras, start_server


def main() -> None:
    """The program."""
    # However its actor ends; also while this process is stopped.
    die_with_parent()
    do_without_keras()
    host, port, job, task = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

    def start(port: str) -> Any:
        # Where the others are, the chief tells it later.
        return start_server({job: [f"{host}:{port}"] * (task + 1)}, job, task)

    try:
        server = start(port)
    except UserError:
        server = start("0")
    print(server.target.rpartition(":")[2], flush=True)
    sys.stdin.read()
    # Not an orderly end: the server has no means to stop.
    os._exit(0)


if __name__ == "__main__":
    main()
