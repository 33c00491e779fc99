"""A network namespace for processes that the tests start: TensorFlow and Ray trust everybody.

python -m tests.private_network hold
python -m tests.private_network last PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_SKIPPED = 77


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


def allows_private_network() -> bool:
    """Whether `isolate_network` works here; the caller, who may have threads, stays where it is."""
    program = f"import sys; from {__name__} import isolate_network; sys.exit(not isolate_network())"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


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


def needs_private_network() -> pytest.MarkDecorator:
    """For tests that start servers of their own."""
    reason = "this system allows no private network namespace"
    return pytest.mark.skipif(not allows_private_network(), reason=reason)


def run_in_the_last(program: str) -> str:
    """What a Python program prints in a private network in which there can be no other one.

    Servers that it starts nevertheless can be reached by nobody.
    """
    words = [sys.executable, "-m", __name__, "last", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode == _SKIPPED:
        pytest.skip("this system allows no namespace of users")
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def private_network() -> Iterator[int | None]:
    """Identifier of a process in it, see `enter_network`; None where this system allows none."""
    holder = subprocess.Popen(
        [sys.executable, "-m", __name__, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        is_private = holder.stdout.readline() == b"True\n"
        yield holder.pid if is_private else None
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def _hold() -> None:
    print(isolate_network(), flush=True)
    sys.stdin.read()


def enter_network(process_id: int) -> None:
    """Joins the user and network namespaces of a process; before any thread is started."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        own, theirs = f"/proc/self/ns/{kind}", f"/proc/{process_id}/ns/{kind}"
        if os.readlink(own) != os.readlink(theirs):
            with open(theirs) as namespace:
                if libc.setns(namespace.fileno(), 0) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter {theirs}")


def _last(*command: str) -> None:
    user = os.getuid()
    try:
        # Limits of a namespace of users are its own: the system's stay as they are.
        if ctypes.CDLL(None).unshare(_CLONE_NEWUSER) != 0:
            sys.exit(_SKIPPED)
        with open("/proc/self/uid_map", "w") as uid_map:
            uid_map.write(f"{user} {user} 1")
        if not isolate_network():
            sys.exit(_SKIPPED)
        with open("/proc/sys/user/max_net_namespaces", "w") as limit:
            limit.write("0")
    except OSError:
        sys.exit(_SKIPPED)
    os.execv(command[0], list(command))


if __name__ == "__main__":
    {"hold": _hold, "last": _last}[sys.argv[1]](*sys.argv[2:])
