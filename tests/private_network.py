"""A network namespace for processes that the tests start: TensorFlow's servers trust everybody.

python -m tests.private_network hold
python -m tests.private_network enter PROCESS_ID PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from syncswitch.trainers.cluster.network import isolate_network


@contextmanager
def private_network() -> Iterator[list[str]]:
    """Words to put before a command that is to run in it; none where this system allows none."""
    holder = subprocess.Popen(
        [sys.executable, "-m", __name__, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        is_private = holder.stdout.readline() == b"True\n"
        words = [sys.executable, "-m", __name__, "enter", str(holder.pid)]
        yield words if is_private else []
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def _hold() -> None:
    print(isolate_network(), flush=True)
    sys.stdin.read()


def _enter(process_id: str, *command: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        own, theirs = f"/proc/self/ns/{kind}", f"/proc/{process_id}/ns/{kind}"
        if os.readlink(own) != os.readlink(theirs):
            with open(theirs) as namespace:
                if libc.setns(namespace.fileno(), 0) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter {theirs}")
    os.execv(command[0], list(command))


if __name__ == "__main__":
    {"hold": _hold, "enter": _enter}[sys.argv[1]](*sys.argv[2:])
