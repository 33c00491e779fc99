"""Local SGD whose period is counted over all workers, or grows from the switch on."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import NOBODY, Exchange, ReplicaStep, choose_protocol
from syncswitch.trainers.protocols.local_sgd import LocalSGD, grown_steps
from tests.properties import more_examples
from tests.trainers.protocols.protocol_contract import (
    MORE_WORKERS,
    Cluster,
    ProtocolContract,
    cluster,
    trace,
)

CHOICES = st.binary(max_size=200)
"""Which of the running workers push, one after the other."""


class TestSemiSynchronous(ProtocolContract):
    kind = LocalSGD
    exchange = Exchange.REPLICA
    texts = (
        *("local-sgd:1:semi-sync", "local-sgd:2:semi-sync", "local-sgd:5:zeroed:semi-sync"),
        *("local-sgd:4:growing", "local-sgd:4:kept:semi-sync:growing"),
    )


def pushed(driven: Cluster, choice: int) -> int:
    """Lets one of the running workers push, and returns which."""
    running = sorted(driven.running)
    worker = running[choice % len(running)]
    driven.push(worker)
    return worker


@given(st.integers(1, 5), MORE_WORKERS, CHOICES)
@more_examples(20)
def test_a_period_is_of_n_h_steps_whoever_makes_them(
    period: int, more: int, choices: bytes
) -> None:
    driven = cluster(f"local-sgd:{period}:semi-sync", 2 + more)
    begun, ended = Counter(driven.released), Counter[int]()
    for choice in choices:
        before = set(driven.running)
        worker = pushed(driven, choice)
        ended[worker] += 1
        if begun.total() < period * (2 + more):
            assert driven.released == [worker]
            begun.update(driven.released)
            continue
        if not driven.released:
            continue
        late = before - {worker}
        assert not late & ended.keys(), "who has ended a step is waited for"
        assert set(driven.released) == driven.active - late
        averaged = tuple(driven.released)
        assert driven.groups == ((averaged,) if len(averaged) > 1 else ())
        begun, ended = Counter(driven.released), Counter()


@given(st.integers(1, 5), MORE_WORKERS, CHOICES)
@more_examples(20)
def test_nobody_waits_for_more_than_one_step(period: int, more: int, choices: bytes) -> None:
    driven = cluster(f"local-sgd:{period}:semi-sync", 2 + more)
    for choice in choices:
        pushed(driven, choice)
    waiting = driven.waiting
    for worker in sorted(driven.running):
        if waiting <= driven.running:
            break
        driven.push(worker)
    assert waiting <= driven.running


@given(st.integers(2, 16), st.integers(2, 8), st.integers(1, 400))
def test_others_do_not_wait_for_a_worker_that_never_comes(
    period: int, workers: int, pushes: int
) -> None:
    driven = cluster(f"local-sgd:{period}:semi-sync", workers)
    groups = set[tuple[int, ...]]()
    for choice in range(pushes):
        driven.groups = ()
        others = sorted(driven.running - {0})
        driven.push(others[choice % len(others)])
        groups.update(driven.groups)
    assert groups <= {tuple(range(1, workers))}
    assert bool(groups) == (workers > 2 and pushes >= period * workers - 1)


@given(st.integers(2, 8), st.integers(3, 6), st.integers(0, 60), st.integers(0, 7))
def test_nor_for_one_that_stays_away_whenever_it_does(
    period: int, workers: int, before: int, choice: int
) -> None:
    """They wait for as long as the period has taken, and not again in the next one."""
    driven = cluster(f"local-sgd:{period}:semi-sync", workers)
    protocol = driven.protocol
    for place in range(before):
        pushed(driven, place)
    lost = sorted(driven.running)[choice % len(driven.running)]
    waits = 0
    for _ in range(4 * workers * period):
        if driven.running == {lost}:
            at = protocol.next_seconds
            assert driven.now_seconds < at <= 2 * driven.now_seconds
            assert protocol.on_time(at - 0.5) == NOBODY
            assert driven.on_time(at) == sorted(driven.active - {lost})
            waits += 1
        driven.push(min(driven.running - {lost}))
    assert waits <= 1
    driven.push(lost)
    assert math.isinf(protocol.next_seconds) or driven.waiting


def test_nobody_waits_for_the_time_without_the_word() -> None:
    driven = cluster("local-sgd:3", 2)
    for _ in range(3):
        driven.push(0)
    assert math.isinf(driven.protocol.next_seconds)
    assert driven.on_time(1e6) == []


@given(st.integers(1, 5), MORE_WORKERS, st.integers(0, 40))
def test_equal_workers_do_as_in_local_sgd(period: int, more: int, rounds: int) -> None:
    workers = 2 + more
    # Of running workers the first one pushes: all of them, once each.
    events = [("push", place) for _ in range(rounds) for place in range(workers)]
    text = f"local-sgd:{period}"
    assert trace(f"{text}:semi-sync", workers, events) == trace(text, workers, events)


def periods(text: str, done: int, second_since: int, rates: list[float]) -> list[int]:
    """The lengths of the periods of two workers that step together with these rates."""
    protocol = choose_protocol(text).machine(range(2), done, second_since)
    driven, found = Cluster(protocol), [0]
    for rate in rates:
        found[-1] += 1
        for worker in range(2):
            driven.groups = ()
            protocol.observe(worker, ReplicaStep(1.0, rate))
            driven.push(worker)
        if driven.groups:
            found.append(0)
    return found[:-1]


@pytest.mark.parametrize("words", ["growing", "semi-sync:growing"])
def test_a_period_doubles_as_the_steps_since_the_start_do(words: str) -> None:
    # 20 worker-steps before the switch, so 40 after 10 more of each worker, and 80 after 30.
    assert periods(f"local-sgd:8:{words}", 20, 20, [0.1] * 55) == [2] * 5 + [4] * 5 + [8] * 3
    # A segment that begins later goes on as the one before.
    assert periods(f"local-sgd:8:{words}", 44, 20, [0.1] * 26) == [4] * 5
    # The quadratic rule has the word once the least period is reached.
    rates = [0.05] * 30 + [0.025] * 40
    assert periods(f"qsr:4:0.1:{words}", 20, 20, rates) == [2] * 5 + [4] * 6 + [16] * 2
    # Nothing was done before.
    assert periods(f"local-sgd:8:{words}", 0, 0, [0.1] * 24) == [8] * 3


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 100), st.integers(0, 10**6))
def test_it_grows_from_two_to_h_and_never_falls(
    since: int, factor: int, least: int, further: int
) -> None:
    done = since * factor
    steps = grown_steps(least, 2 * least, done, since)
    assert min(2, least) <= steps <= 2 * least
    assert steps <= grown_steps(least, 2 * least, done + further, since)
    assert grown_steps(least, 2 * least, since, since) == (2 if least > 2 else 2 * least)
