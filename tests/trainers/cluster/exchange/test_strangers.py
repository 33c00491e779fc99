"""Attacks: by outsiders, by somebody in the middle, and by parts that break the rules."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.cluster.exchange import wire as wires
from syncswitch.trainers.cluster.exchange.parameter_server import FencedError
from syncswitch.trainers.cluster.exchange.parts import ServerPart, WorkerPart
from syncswitch.trainers.cluster.exchange.plans import (
    CHIEF,
    SERVER,
    WORKER,
    Caller,
    ServerPlan,
    Sizes,
    Task,
)
from syncswitch.trainers.cluster.exchange.remote import TO_WORKER, Remote, RemoteError, RemoteServer
from syncswitch.trainers.cluster.exchange.security import (
    _AHEAD_BYTES,
    AuthenticationError,
    Identity,
    Reader,
    Sealed,
    request_entry,
)
from syncswitch.trainers.cluster.exchange.vectors import Block
from syncswitch.trainers.cluster.exchange.wire import Listener, dial
from syncswitch.trainers.cluster.members.connected import Rendezvous
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.protocols import Exchange
from tests.processes import until
from tests.trainers.cluster.exchange.host import LOOPBACK, OF_SERVER, OF_WORKER, SECRET, Host


@pytest.fixture(autouse=True)
def _no_thread_dies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert not died


def assert_shown_out(raw: socket.socket) -> None:
    with raw, suppress(ConnectionResetError):
        while raw.recv(1000):
            pass


class Tapped:
    """A connection to a host, on which somebody keeps what is said and changes the hello."""

    def __init__(self, host: Host, change: Callable[[bytes], bytes] = bytes) -> None:
        self._raw, self._change = host.stranger(), change
        self._address = host.listener.address
        self.said: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def sendall(self, content: bytes) -> None:
        self._raw.sendall(content if self.said else self._change(content))
        self.said.append(content)

    def ask(self) -> None:
        request_entry(self, OF_WORKER, SERVER, self._address, time.monotonic() + 20)  # type: ignore[arg-type]


class TestWhoKnocks:
    def test_without_the_secret_comes_in_nowhere(self) -> None:
        """Nor do an open network and a closed one meet."""
        other = b"of another cluster, as long"
        for ours, theirs in ((SECRET, other), (SECRET, None), (None, SECRET)):
            host = Host(LOOPBACK, replace(OF_SERVER, secret=ours))
            with pytest.raises(ConnectionRefusedError, match="does not know the cluster's secret"):
                dial(host.listener.address, SERVER, replace(OF_WORKER, secret=theirs))
            assert host.guests.empty()
            dial(host.listener.address, SERVER, replace(OF_WORKER, secret=ours))
            host.guests.get(timeout=20)
            host.listener.close()

    def test_in_a_role_that_has_no_business_there_neither(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wires, "_PATIENCE_SECONDS", 0.2)
        with pytest.raises(ConnectionRefusedError, match="accepts no connections"):
            dial(host.listener.address, SERVER, OF_SERVER)
        with pytest.raises(ConnectionRefusedError, match="or is no chief of it"):
            dial(host.listener.address, CHIEF, OF_WORKER)
        assert host.guests.empty()

    def test_and_talks_at_length_is_shown_out_unread(self, host: Host) -> None:
        """No message with a length is read before the handshake."""
        raw = host.stranger()
        with suppress(BrokenPipeError, ConnectionResetError):
            raw.sendall(b"\xff" * (1 << 16))
        assert_shown_out(raw)
        assert host.guests.empty()

    def test_and_is_silent_keeps_nobody_out_and_has_to_leave(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wires, "_PATIENCE_SECONDS", 2.0)
        silent = [host.stranger() for _ in range(3)]
        dial(host.listener.address, SERVER, OF_WORKER)
        assert host.guests.get(timeout=20).peer == (WORKER, 3)
        for one in silent:
            assert_shown_out(one)


class TestWhoIsOnTheWay:
    def test_cannot_pass_it_on_to_the_same_role_at_another_address(self, host: Host) -> None:
        reached, host.listener.address = host.listener.address, LOOPBACK
        with pytest.raises(ConnectionRefusedError, match="does not know the cluster's secret"):
            dial(reached, SERVER, OF_WORKER)
        assert host.guests.empty()

    def test_cannot_say_again_what_was_said_before(self, host: Host) -> None:
        """A recorded handshake proves nothing on another connection."""
        line = Tapped(host)
        line.ask()
        assert host.guests.get(timeout=20).peer == (WORKER, 3)
        again = host.stranger()
        again.sendall(b"".join(line.said))
        assert_shown_out(again)
        assert host.guests.empty()

    @pytest.mark.parametrize(
        ("part", "other"), [(b"worker", b"chief\0"), (b"\x03\0\0\0", b"\x04\0\0\0")]
    )
    def test_cannot_make_somebody_another_part(self, host: Host, part: bytes, other: bytes) -> None:
        host.listener._roles = (WORKER, CHIEF)
        line = Tapped(host, lambda hello: hello.replace(part, other, 1))
        with pytest.raises(AuthenticationError):
            line.ask()
        assert part in line.said[0]

    def test_a_key_of_low_order_is_refused(self, host: Host) -> None:
        with pytest.raises(EOFError):
            Tapped(host, lambda hello: hello[:-32] + bytes(32)).ask()

    def test_reads_nothing_of_what_is_said(self) -> None:
        """Everything is encrypted, unless the network is open."""
        numbers = np.full(9, 7.5, np.float32)
        for secret, is_seen in ((SECRET, False), (None, True)):
            host = Host(LOOPBACK, replace(OF_SERVER, secret=secret))
            wire = dial(host.listener.address, SERVER, replace(OF_WORKER, secret=secret))
            wire.send([b"what nobody should know", numbers])
            wire.close()
            guest = host.guests.get(timeout=20)
            with socket.socket(fileno=os.dup(guest.fileno())) as line:
                passed = b"".join(iter(lambda line=line: line.recv(4096), b""))
            assert len(passed) > len(b"what nobody should know") + numbers.nbytes
            assert (b"nobody should know" in passed) == is_seen
            assert (numbers.tobytes() in passed) == is_seen
            host.listener.close()


class Line:
    """A sealed connection, and somebody in the middle who holds its records."""

    def __init__(self) -> None:
        keys = os.urandom(32), os.urandom(32)
        ours, self.theirs = socket.socketpair()
        mine, yours = socket.socketpair()
        self.held = yours
        self._sender = Sealed(ours, *keys)
        self.reader = Reader(Sealed(mine, *reversed(keys)))

    def records(self, *contents: bytes) -> list[bytes]:
        found = []
        for content in contents:
            self._sender.send_all([memoryview(content)])
            found.append(self.theirs.recv(1 << 20))
        return found

    def pass_on(self, *records: bytes) -> None:
        self.held.sendall(b"".join(records))
        self.held.shutdown(socket.SHUT_WR)


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a bit is another": lambda found: [found[0][:-3] + bytes([found[0][-3] ^ 1]) + found[0][-2:]],
    "the length is another": lambda found: [b"\x02" + found[0][1:]],
    "the length is too large": lambda found: [b"\xff\xff\xff\xff" + found[0][4:]],
    "one comes twice": lambda found: [found[0], found[0], found[1]],
    "one is left out": lambda found: [found[0], found[2], found[2]],
    "they change places": lambda found: [found[1], found[0], found[2]],
    "one is cut": lambda found: [found[0], found[1][:-1]],
    "it ends early": lambda found: found[:2],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_on_the_way_is_found_out(change: str) -> None:
    line = Line()
    records = line.records(b"one", b"two", b"six")
    line.pass_on(*CHANGES[change](records))
    found = map(bytes, map(line.reader.next, [3] * 3))
    with pytest.raises((ConnectionResetError, EOFError)):
        assert [*found] == ["nothing of it"]
    untouched = Line()
    untouched.pass_on(*untouched.records(b"one", b"two"))
    assert untouched.reader.next(6) == b"onetwo"


class TestAFlood:
    def test_of_silent_strangers_pushes_out_the_oldest(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wires, "_MOST_PENDING", 8)
        with ExitStack() as held:
            flood = [held.enter_context(host.stranger()) for _ in range(40)]
            wire = dial(host.listener.address, SERVER, OF_WORKER)
            host.guests.get(timeout=20)
            wire.send("in")
            assert len(host.listener._pending) <= 8
            for first in flood[:20]:
                assert_shown_out(first)

    def test_that_takes_all_descriptors_keeps_nobody_out(self) -> None:
        command = [sys.executable, "-c", FLOODED]
        pipe = subprocess.PIPE
        with (
            subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as child,
            ExitStack() as held,
        ):
            held.callback(child.kill)
            assert child.stdout is not None
            address = "127.0.0.1", int(child.stdout.readline())
            for _ in range(100):
                held.enter_context(socket.create_connection(address))
            wire = dial(address, SERVER, OF_WORKER)
            wire.send("in")
            assert wire.receive().read(str) == "in"
            child.kill()
            _, said = child.communicate()
        assert said.count("Too many open files") == 1, "not ten times a second"


FLOODED = f"""
import os, resource, threading
from syncswitch.trainers.cluster.exchange.security import Identity
from syncswitch.trainers.cluster.exchange.wire import Listener
open_files = len(os.listdir("/proc/self/fd"))
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 20, hard))
listener = Listener(("127.0.0.1", 0), Identity(("ps", 0), {SECRET!r}), ("worker",),
            lambda wire: wire.send(wire.receive().read(str)))
print(listener.address[1], flush=True)
threading.Event().wait()
"""


class TestWhoIsInAndDoesNotKeepToTheRules:
    def test_is_told_that_it_is_too_early_or_may_not_call_that(self) -> None:
        part = WorkerPart(OF_WORKER)
        listener = Listener(LOOPBACK, OF_WORKER, part.admits, part.on_wire)
        for role in (CHIEF, WORKER):
            wire = dial(listener.address, WORKER, Identity((role, 0), SECRET))
            remote = Remote(wire, "it", {**TO_WORKER, "build": (tuple[int], None)})
            with pytest.raises(RemoteError, match="'fetch' cannot be called yet"):
                remote.call("fetch", "model", 0, 1)
            for method in ("build", "__class__"):
                with pytest.raises(RemoteError, match=f"'{method}' may not be called here"):
                    remote.call(method)
            remote.close()
        listener.close()
        assert set(part.methods) == {"build"}, "nor may the chief before that"

    def test_gets_no_more_from_a_parameter_server_than_a_worker_should(self) -> None:
        part, sizes = ServerPart(), Sizes(3, 0, 3)
        listener = Listener(LOOPBACK, OF_SERVER, part.admits, part.on_wire)
        with pytest.raises((EOFError, OSError)):
            dial(listener.address, SERVER, OF_WORKER).receive()
        zeros = np.zeros(3, np.float32)
        part.methods["build"](ServerPlan(sizes, zeros[:0], None, 4, slice(0, 3), 3))
        assert set(part.methods) == set(part.calls), "what nobody answers would have no type"
        part.methods["load"](ModelState(zeros, zeros, zeros[:0]))
        wire = dial(listener.address, SERVER, OF_WORKER)
        server = RemoteServer(wire, "it", slice(0, 3), Block(1, 3)).remote
        own, task = Caller(3, 0), Task(1, 0, 0, Exchange.PUSH, 0.1)
        with pytest.raises(FencedError, match="worker 0 is another one"):
            server.call("pull", Caller(0, 0), ())
        for arguments, words in (
            ((own, replace(task, rate="fast"), zeros, ()), "Expected `float`, got `str`"),
            ((own, task, np.zeros(3), ()), "of another kind"),
            ((own, task, np.zeros(2, np.float32), ()), "a gradient of another length"),
            ((own, task, None, ()), "a gradient of another length"),
            ((own, task), "Expected `array` of length 4"),
        ):
            with pytest.raises(RemoteError, match=words):
                server.call("push", *arguments)
        for method in ("load", "fence", "build", "marked"):
            with pytest.raises(RemoteError, match=f"'{method}' may not be called here"):
                server.call(method)
        assert server.call("push", own, task, zeros, ()) == 1
        wire.send("nonsense")
        with pytest.raises((EOFError, OSError)):
            wire.receive()
        listener.close()

    @pytest.mark.parametrize(
        ("count", "lengths"),
        [(0, [2**62]), (1, [3, 2**62]), (2**32 - 1, [3]), (0, [1 << 28]), (1 << 25, [3])],
    )
    def test_and_announces_much_gets_no_memory_before_it_comes(
        self, host: Host, count: int, lengths: list[int]
    ) -> None:
        wire, guest = host.connected()
        length, *arrays = lengths
        head = struct.pack(f"<4sIQ{len(arrays)}Q3x", b"sync", count, length, *arrays)
        wire._channel.send_all([memoryview(head + bytes(_AHEAD_BYTES))])
        wire.close()
        tracemalloc.start()
        with pytest.raises((OSError, EOFError)):
            guest.receive()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1 << 25 or arrays, "what there is no room for counts as tried"

    def test_and_says_no_hello_is_shown_out_by_the_chief(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        rendezvous = Rendezvous(LOOPBACK, SECRET)
        wire = dial(rendezvous.address, CHIEF, OF_WORKER)
        wire.send({"token": 1, "address": None})
        with pytest.raises((EOFError, OSError)):
            wire.receive()
        until(lambda: "worker 3 is cut off: not what was expected: Expected `str`" in caplog.text)
        rendezvous.close()
