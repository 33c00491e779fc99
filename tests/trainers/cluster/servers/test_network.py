from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from syncswitch.trainers.cluster.servers.network import free_ports
from tests.private_network import run_in_the_last


def run(code: str) -> str:
    program = f"from syncswitch.trainers.cluster.servers.network import *\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def test_a_private_network_reaches_itself_and_cannot_be_reached() -> None:
    code = """
import os, socket, sys
before = os.getuid()
if not isolate_network():
    print("refused")
    sys.exit()
server = socket.create_server(("0.0.0.0", 24681))
socket.create_connection(("127.0.0.1", 24681), timeout=5).close()
assert os.getuid() == before
assert [name for _, name in socket.if_nameindex()] == ["lo"]
print("private", flush=True)
sys.stdin.read()
"""
    program = f"from syncswitch.trainers.cluster.servers.network import *\n{code}"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    answer = process.stdout.readline().strip()
    try:
        if answer == "refused":
            pytest.skip("this system allows no private network namespace")
        assert answer == "private"
        with socket.socket() as outside, pytest.raises(ConnectionRefusedError):
            outside.connect(("127.0.0.1", 24681))
    finally:
        process.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's kernel offers it")
def test_a_child_dies_with_its_parent_even_when_that_is_killed() -> None:
    code = """
import os, signal, time
child = os.fork()
if child == 0:
    die_with_parent()
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""
    program = f"from syncswitch.trainers.cluster.servers.network import *\n{code}"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert psutil.pid_exists(child)
    assert process.wait() == -9
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(child)
    assert os.getpid() != child


def test_whether_there_can_be_one_is_found_out_from_outside() -> None:
    program = """
from syncswitch.trainers.cluster.servers.network import allows_private_network, isolate_network
print(allows_private_network(), isolate_network())
"""
    assert run_in_the_last(program) == "False False\n"
