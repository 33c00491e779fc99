"""One TensorFlow server, for the engine that has to be compared with, and a network for several.

python -m tests.benchmarks.server ADDRESSES_AS_JSON JOB TASK
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import signal
import socket
import struct
import sys

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def enter_private_network() -> bool:
    """Moves this process, which has no other thread yet, to a network with loopback alone.

    TensorFlow's servers listen on all interfaces and trust everybody.

    Returns:
        Whether the system allows it.
    """
    libc = ctypes.CDLL(None)
    if libc.unshare(_CLONE_NEWNET) != 0 and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return True


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that has started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    die_with_parent()
    # A server needs no Keras, which is 40 % of the time of the import.
    sys.modules["keras"] = None  # type: ignore[assignment]
    import tensorflow as tf

    addresses, job, task = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    tf.distribute.Server(tf.train.ClusterSpec(addresses), job, task, protocol="grpc").join()


if __name__ == "__main__":
    main()
