"""Runs a module in the network of another process.

python -m tests.trainers.cluster.ray.enter_network PROCESS_ID MODULE [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys


def enter_network(process_id: int) -> None:
    """Joins the user and network namespaces of a process; before any thread is started."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        theirs, own = f"/proc/{process_id}/ns/{kind}", f"/proc/self/ns/{kind}"
        if os.readlink(theirs) == os.readlink(own):
            continue
        descriptor = os.open(theirs, os.O_RDONLY)
        if libc.setns(descriptor, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot join the {kind} namespace")
        os.close(descriptor)


if __name__ == "__main__":
    enter_network(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
