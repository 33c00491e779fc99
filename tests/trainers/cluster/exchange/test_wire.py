from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.exchange import wire as wires
from syncswitch.trainers.cluster.exchange.plans import SERVER, Hold, Push, Task
from syncswitch.trainers.cluster.exchange.wire import (
    Listener,
    MalformedMessageError,
    Message,
    Wire,
    dial,
)
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.protocols import Exchange
from tests.properties import FIXTURES_STAY, more_examples
from tests.trainers.cluster.exchange.host import OF_SERVER, OF_WORKER, Host

DTYPES = (np.float32, np.float64, np.int64, np.uint8, np.bool_)


@pytest.fixture
def pair(host: Host) -> Iterator[tuple[Wire, Wire]]:
    both = host.connected()
    yield both
    for one in both:
        one.close()


def assert_equal(found: Any, sent: Any) -> None:
    """Asserts equal types, shapes and bits."""
    assert type(found) is type(sent)
    if isinstance(sent, np.ndarray):
        assert (found.shape, found.dtype) == (sent.shape, sent.dtype)
        assert found.tobytes() == sent.tobytes()
    elif isinstance(sent, list | tuple):
        for one, other in zip(found, sent, strict=True):
            assert_equal(one, other)
    else:
        assert found == sent


def got(wire: Wire, into: Any = None) -> Any:
    return wire.receive(into).read(Any)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    size = int(np.prod(shape))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    content = np.random.default_rng(draw(st.integers(0, 99))).bytes(size * dtype.itemsize)
    array = np.frombuffer(content, dtype) if dtype != np.bool_ else np.ones(size, bool)
    array = array.reshape(shape)
    return draw(
        st.sampled_from([array, np.asfortranarray(array), array.T, array[::-1] if shape else array])
    )


class TestMessages:
    @given(
        st.lists(
            st.one_of(arrays(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=3), st.none()),
            max_size=5,
        )
    )
    @more_examples(4, FIXTURES_STAY)
    def test_arrive_as_they_were_sent(self, pair: tuple[Wire, Wire], message: list[Any]) -> None:
        for sender, receiver in (pair, reversed(pair)):
            sender.send(message)
            assert_equal(got(receiver), message)

    def test_may_be_larger_than_what_the_system_keeps_and_have_any_number_of_arrays(
        self, pair: tuple[Wire, Wire]
    ) -> None:
        for content in (
            [np.arange(5_000_000, dtype=np.float32), np.zeros(0, np.float32), b"end"],
            *([np.full(3, one, np.float32) for one in range(count)] for count in (511, 1024, 5000)),
        ):
            with ThreadPoolExecutor(1) as pool:
                sending = pool.submit(pair[0].send, content)
                assert_equal(got(pair[1]), content)
                sending.result(20)

    def test_put_the_first_array_that_is_as_long_where_it_is_wanted(
        self, pair: tuple[Wire, Wire]
    ) -> None:
        short, sent, other = (np.full(*args, np.float32) for args in ((2, 1), (3, 2), (3, 4)))
        pair[0].send((short, sent, other))
        wanted = np.zeros(3, np.float32)
        found = got(pair[1], wanted)
        assert_equal(found, [short, sent, other])
        assert_equal(wanted, sent)
        assert np.shares_memory(found[1], wanted)
        assert not np.shares_memory(found[2], wanted)
        pair[0].send(short)
        found = got(pair[1], wanted)
        assert_equal(found, short)
        assert_equal(wanted, sent)
        found += 1.0
        assert found.ctypes.data % 64 == 0, "TensorFlow would copy it"

    def test_may_hold_texts_of_any_length_and_types_of_tensorflow(
        self, pair: tuple[Wire, Wire]
    ) -> None:
        import ml_dtypes

        for sent in (np.array(["a", b"bc", None], object), np.array(["d", "ef"]), np.array(3.5)):
            pair[0].send(sent)
            np.testing.assert_array_equal(got(pair[1]), sent)
        pair[0].send(np.ones(3, ml_dtypes.bfloat16))
        assert got(pair[1]).dtype == ml_dtypes.bfloat16

    def test_are_of_the_type_that_is_awaited(self, pair: tuple[Wire, Wire]) -> None:
        for sent, kind in (
            (Task(1, 2, 3, Exchange.ROUND, hold=Hold(0.5), taken=(1,)), Task),
            (Push(float("inf"), 1, 2), Push),
            (slice(3, 5), slice),
        ):
            pair[0].send(sent)
            assert pair[1].receive().read(kind) == sent
        for sent, kind in (
            (Push(0.5, 1, "2"), Push),
            ({**asdict(Hold()), "seconds": "1"}, Hold),
            (np.ones(3), Vector),
            ([1, 2], Vector),
            ([1], slice),
            (np.ones(3), int),
        ):
            pair[0].send(sent)
            with pytest.raises(MalformedMessageError, match="not what was expected"):
                pair[1].receive().read(kind)

    def test_hold_nothing_but_data(self, pair: tuple[Wire, Wire]) -> None:
        for odd in (open, object(), np.array([{}], object), Path("x")):
            with pytest.raises(TypeError, match="not data"):
                pair[0].send([odd])
        for kind, name, shape in (
            (1, "O", [1]),
            (1, "O,f4", [1]),
            (1, "<f4", [3]),
            (1, "<f4", [-2, -1]),
            (1, "<U0", [0]),
            (1, "nothing", [2]),
            (1, "<f4", ["2"]),
            (7, "<f4", [2]),
        ):
            head = msgspec.msgpack.encode((0, name, shape))
            content = msgspec.msgpack.encode(msgspec.msgpack.Ext(kind, head))
            with pytest.raises(MalformedMessageError):
                Message(memoryview(content), [memoryview(bytearray(8))]).read(Any)

    def test_what_is_none_ends_the_connection(self, host: Host) -> None:
        raw, receiver = host.connected()
        os.write(raw.fileno(), bytes(64))
        with pytest.raises(OSError, match=r"this is not a message|was changed on the way"):
            receiver.receive()
        raw.close()
        receiver.close()


class TestListener:
    def test_whoever_is_in_stays_when_it_closes(self, host: Host) -> None:
        outside, inside = host.connected()
        host.listener.close()
        host.listener.close()
        outside.send("there")
        assert got(inside) == "there"
        with pytest.raises(ConnectionRefusedError):
            dial(host.listener.address, SERVER, OF_WORKER)

    def test_a_guest_may_be_as_slow_as_he_likes(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The timeout of the handshake ends with it."""
        monkeypatch.setattr(wires, "_PATIENCE_SECONDS", 1)
        outside, inside = host.connected()
        threading.Timer(1.5, outside.send, [1]).start()
        assert got(inside) == 1

    @pytest.mark.parametrize("error", [EOFError, ZeroDivisionError])
    def test_one_that_raises_ends_the_wire(
        self, folder: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads = list[threading.Thread]()
        monkeypatch.setattr(threading, "excepthook", lambda found: None)

        def broken(wire: Wire) -> None:
            threads.append(threading.current_thread())
            raise error

        listener = Listener(str(folder / "broken"), OF_SERVER, ("worker",), broken)
        with pytest.raises(EOFError):
            dial(listener.address, SERVER, OF_WORKER).receive()
        threads[0].join(20)
        listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
def test_it_listens_at_the_given_address_alone(host: str) -> None:
    try:
        listener = Listener((host, 0), OF_SERVER, ("worker",), lambda wire: wire.send("in"))
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    assert listener.address[0] == host
    port = int(listener.address[1])
    listening = [
        one.laddr.ip
        for one in psutil.Process().net_connections()
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port
    ]
    assert listening == [host]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.3", port), timeout=5)
    wire = dial(listener.address, SERVER, OF_WORKER)
    assert got(wire) == "in"
    wire.close()
    listener.close()
