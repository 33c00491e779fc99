from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from syncswitch.trainers.cluster.exchange.handshake import Identity, Part
from syncswitch.trainers.cluster.exchange.plans import CHIEF, SERVER, WORKER, Hello
from syncswitch.trainers.cluster.exchange.wire import Wire, dial
from syncswitch.trainers.cluster.members import connected as hubs
from syncswitch.trainers.cluster.members.connected import Arrival, Hub
from tests.processes import until

SECRET = b"of this cluster alone"
ONE: Part = (WORKER, 1)
OTHER: Part = (SERVER, 0)


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    made = Hub(str(folder / "chief"), SECRET)
    yield made
    made.close()


def wire_of(hub: Hub, part: Part, token: str) -> Wire:
    """Connects to the hub as a process that is a part."""
    wire = dial(hub.address, CHIEF, Identity(part, SECRET))
    wire.send(Hello(token, "where others reach it"))
    return wire


def pulse_of(hub: Hub, part: Part, token: str) -> Wire:
    wire = dial(hub.address, CHIEF, Identity(part, SECRET))
    wire.send(Hello(token, None))
    return wire


def arrived(hub: Hub, part: Part = ONE) -> Arrival:
    found = hub.wait_for(part, 20.0)
    assert found is not None
    return found


def has_ended(wire: Wire) -> bool:
    """Waits for the other end to close a wire; returns whether it does."""
    try:
        wire.receive()
    except (OSError, EOFError):
        return True
    return False


def test_whoever_waits_is_told_of_an_arrival(hub: Hub) -> None:
    assert hub.wait_for(ONE, 0.05) is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hub.wait_for, ONE, 60.0)
        wires = {part: wire_of(hub, part, "a") for part in (OTHER, ONE)}
        arrival = waiting.result(20)
    assert arrival is hub.wait_for(ONE, 0.0)
    assert arrival is not None
    assert (arrival.token, arrival.address) == ("a", "where others reach it")
    for part, wire in wires.items():
        arrived(hub, part).wire.send(part)
        assert wire.receive().read(Part) == part


def test_a_pulse_says_that_it_lives_and_with_it_a_part_is_gone(hub: Hub) -> None:
    wire, pulse = wire_of(hub, ONE, "a"), pulse_of(hub, ONE, "a")
    arrival = arrived(hub)
    for _ in range(3):
        before = arrival.heard_seconds
        pulse.send(None)
        until(lambda before=before: arrival.heard_seconds > before)
    assert not arrival.is_gone
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(has_ended, arrival.wire)
        pulse.close()
        assert waiting.result(20), "whoever waits for it is told"
    assert arrival.is_gone
    assert hub.wait_for(ONE, 0.0) is None
    assert has_ended(wire), "and it itself as well, should it live yet"


def test_a_pulse_may_overtake_the_first_word(hub: Hub) -> None:
    """Each wire has a thread of its own, and the machine may be busy."""
    pulse = pulse_of(hub, ONE, "a")
    pulse.send(None)
    time.sleep(0.05)
    _wire = wire_of(hub, ONE, "a")
    arrival = arrived(hub)
    until(lambda: arrival.pulse is not None)
    assert not arrival.is_gone


def test_who_comes_again_takes_the_place_of_the_one_before(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_PATIENCE_SECONDS", 0.05)
    old = wire_of(hub, ONE, "old")
    former = arrived(hub)
    new = wire_of(hub, ONE, "new")
    assert has_ended(old)
    assert former.is_gone
    arrival = arrived(hub)
    arrival.wire.send(arrival.token)
    assert new.receive().read(str) == "new"
    # Pulses of other processes count for none.
    assert has_ended(pulse_of(hub, ONE, "old"))
    assert has_ended(pulse_of(hub, (WORKER, 7), "old"))
    assert arrival.pulse is None
    pulse = pulse_of(hub, ONE, "new")
    pulse.send(None)
    until(lambda: arrival.pulse is not None)


def test_who_is_dropped_is_told_and_closed_it_lets_nobody_in(hub: Hub) -> None:
    wires = [wire_of(hub, ONE, "a"), pulse_of(hub, ONE, "a"), wire_of(hub, OTHER, "b")]
    arrival = arrived(hub)
    until(lambda: arrival.pulse is not None)
    hub.drop((WORKER, 2))
    hub.drop(ONE)
    hub.drop(ONE)
    assert all(map(has_ended, wires[:2]))
    assert hub.wait_for(ONE, 0.0) is None
    arrived(hub, OTHER)
    hub.close()
    hub.close()
    assert has_ended(wires[2])
    with pytest.raises(ConnectionRefusedError):
        dial(hub.address, CHIEF, Identity(ONE, SECRET))
