"""A network namespace for processes that the tests start: TensorFlow and Ray trust everybody."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def isolate_network() -> bool:
    """Moves this process and its later children into a network namespace with loopback alone.

    Must be called before any thread is started. Needs root or unprivileged user namespaces.

    Returns:
        Whether that worked; otherwise nothing has changed.
    """
    if not sys.platform.startswith("linux") or not _can_isolate():
        return False
    _isolate()
    return True


def _can_isolate() -> bool:
    """Tries it in a child process, as a half-made namespace cannot be left again."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        _isolate()
        os._exit(0)
    finally:
        os._exit(1)


def _isolate() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    user = os.getuid()
    if libc.unshare(_CLONE_NEWNET) != 0:
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace")
        # Without a map the process would be nobody, and its files would look foreign.
        with open("/proc/self/uid_map", "w") as uid_map:
            uid_map.write(f"{user} {user} 1")
    _bring_loopback_up()


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback interface."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh", b"lo", 0)
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = struct.unpack("16sh", answer)[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP))


def enter_network(process_id: int) -> None:
    """Joins the user and network namespaces of a process; before any thread is started."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        own, theirs = f"/proc/self/ns/{kind}", f"/proc/{process_id}/ns/{kind}"
        if os.readlink(own) != os.readlink(theirs):
            with open(theirs) as namespace:
                if libc.setns(namespace.fileno(), 0) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter {theirs}")
