from __future__ import annotations

import threading
import time
from collections.abc import Iterator
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


class Guest:
    """A process that connects to the hub as a part."""

    def __init__(self, hub: Hub, part: Part, token: str) -> None:
        self._hub, self._part, self._token = hub, part, token
        self.wire = dial(hub.address, CHIEF, Identity(part, SECRET))
        self.wire.send(Hello(token, "where others reach it"))

    def pulse(self) -> Wire:
        return pulse_of(self._hub, self._part, self._token)


def pulse_of(hub: Hub, part: Part, token: str) -> Wire:
    wire = dial(hub.address, CHIEF, Identity(part, SECRET))
    wire.send(Hello(token, None))
    return wire


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    made = Hub(str(folder / "chief"), SECRET)
    yield made
    made.close()


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
    found: list[Arrival | None] = []
    waiting = threading.Thread(target=lambda: found.append(hub.wait_for(ONE, 60.0)))
    waiting.start()
    other, guest = Guest(hub, (SERVER, 0), "a"), Guest(hub, ONE, "b")
    waiting.join(20)
    (arrival,) = found
    assert arrival is hub.wait_for(ONE, 0.0)
    assert arrival is not None
    assert (arrival.token, arrival.address) == ("b", "where others reach it")
    arrival.wire.send("to it alone")
    assert guest.wire.receive().read(str) == "to it alone"
    arrived(hub, (SERVER, 0)).wire.send("and to the other")
    assert other.wire.receive().read(str) == "and to the other"


def test_a_pulse_says_that_it_lives(hub: Hub) -> None:
    guest = Guest(hub, ONE, "a")
    arrival, pulse = arrived(hub), guest.pulse()
    for _ in range(3):
        before = arrival.heard_seconds
        pulse.send(None)
        until(lambda before=before: arrival.heard_seconds > before)
    assert not arrival.is_gone


def test_with_its_pulse_it_is_gone_and_whoever_waits_for_it_is_told(hub: Hub) -> None:
    guest = Guest(hub, ONE, "a")
    arrival, pulse = arrived(hub), guest.pulse()
    pulse.send(None)
    until(lambda: arrival.pulse is not None)
    ended: list[bool] = []
    waiting = threading.Thread(target=lambda: ended.append(has_ended(arrival.wire)))
    waiting.start()
    pulse.close()
    waiting.join(20)
    assert ended == [True]
    assert arrival.is_gone
    assert hub.wait_for(ONE, 0.0) is None
    assert has_ended(guest.wire), "and it itself as well, should it live yet"


def test_a_pulse_may_overtake_the_first_word(hub: Hub) -> None:
    """Each wire has a thread of its own, and the machine may be busy."""
    pulse = pulse_of(hub, ONE, "a")
    pulse.send(None)
    time.sleep(0.05)
    Guest(hub, ONE, "a")
    arrival = arrived(hub)
    until(lambda: arrival.pulse is not None)
    assert not arrival.is_gone


def test_a_pulse_of_another_process_counts_for_none(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_PATIENCE_SECONDS", 0.05)
    Guest(hub, ONE, "old")
    former = arrived(hub)
    guest = Guest(hub, ONE, "new")
    until(lambda: hub.wait_for(ONE, 0.0) not in (former, None))
    arrival = arrived(hub)
    assert has_ended(pulse_of(hub, ONE, "old"))
    assert has_ended(pulse_of(hub, (WORKER, 7), "old"))
    assert arrival.pulse is None
    guest.pulse().send(None)
    until(lambda: arrival.pulse is not None)


def test_who_comes_again_takes_the_place_of_the_one_before(hub: Hub) -> None:
    old = Guest(hub, ONE, "old")
    former = arrived(hub)
    new = Guest(hub, ONE, "new")
    assert has_ended(old.wire)
    assert former.is_gone
    assert arrived(hub).token == "new"
    arrived(hub).wire.send(1)
    assert new.wire.receive().read(int) == 1


def test_who_is_dropped_is_told(hub: Hub) -> None:
    guest = Guest(hub, ONE, "a")
    arrival, pulse = arrived(hub), guest.pulse()
    until(lambda: arrival.pulse is not None)
    hub.drop((WORKER, 2))
    hub.drop(ONE)
    hub.drop(ONE)
    assert has_ended(guest.wire)
    assert has_ended(pulse)
    assert hub.wait_for(ONE, 0.0) is None


def test_closed_it_gives_up_all_and_lets_nobody_in(hub: Hub) -> None:
    guests = [Guest(hub, ONE, "a"), Guest(hub, (SERVER, 0), "b")]
    for part in (ONE, (SERVER, 0)):
        arrived(hub, part)
    hub.close()
    hub.close()
    assert all(has_ended(guest.wire) for guest in guests)
    with pytest.raises(ConnectionRefusedError):
        dial(hub.address, CHIEF, Identity(ONE, SECRET))
