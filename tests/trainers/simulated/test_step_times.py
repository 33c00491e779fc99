"""A shared link, against its laws and a plain fluid model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.simulated.step_times import NEVER, SharedLink

CLOSE = 1e-6


@dataclass(frozen=True)
class Transfer:
    start: float
    worker: int
    size: float


transfers = st.lists(
    st.builds(
        Transfer,
        # Few values, so that some coincide.
        start=st.integers(0, 20).map(lambda tenths: tenths / 4) | st.floats(0, 5),
        worker=st.integers(0, 5),
        size=st.sampled_from([1.0, 7.0, 7.0, 40.0]),
    ),
    min_size=1,
    max_size=12,
)
servers = st.sampled_from([math.inf, 1.0, 3.0, 10.0])
own_links = st.lists(st.sampled_from([0.5, 1.0, 2.5, 8.0]), min_size=1, max_size=4)


def ends_of(server: float, own: Sequence[float], wanted: Sequence[Transfer]) -> list[float]:
    """The end of each transfer."""
    link: SharedLink[int] = SharedLink(server, own)
    ends = [math.nan] * len(wanted)

    def end_next() -> None:
        seconds, worker = link.next
        number = link.end()
        assert wanted[number].worker == worker
        ends[number] = seconds

    # Stable: those of one moment begin in the order of `wanted`.
    for number in sorted(range(len(wanted)), key=lambda number: wanted[number].start):
        one = wanted[number]
        while link.next[0] < one.start:
            end_next()
        link.start(one.start, one.worker, one.size, number)
    while link.next != NEVER:
        end_next()
    return ends


def fluid_ends(server: float, own: Sequence[float], wanted: Sequence[Transfer]) -> list[float]:
    """The same from a plain model of each transfer, with rates found by trying levels."""
    left = [one.size for one in wanted]
    ends = [math.nan] * len(wanted)
    now = 0.0
    while any(map(math.isnan, ends)):
        active = [
            number
            for number, one in enumerate(wanted)
            if one.start <= now and math.isnan(ends[number])
        ]
        limits = [own[wanted[number].worker % len(own)] for number in active]
        rates = dict(zip(active, fair_rates(server, limits), strict=True))
        moments = [one.start for one in wanted if one.start > now]
        moments += [now + left[number] / rate for number, rate in rates.items()]
        following = min(moments)
        for number, rate in rates.items():
            left[number] -= rate * (following - now)
            if left[number] <= CLOSE**2:
                ends[number] = following
        now = following
    return ends


def fair_rates(server: float, limits: Sequence[float]) -> list[float]:
    """min(limit, level) for each, with the level at which they use up the server's link."""
    if sum(limits) <= server:
        return list(limits)
    low, high = 0.0, server
    for _ in range(200):
        level = (low + high) / 2
        if sum(min(limit, level) for limit in limits) > server:
            high = level
        else:
            low = level
    return [min(limit, low) for limit in limits]


@given(server=servers, own=own_links, wanted=transfers)
def test_it_is_the_plain_fluid_model(
    server: float, own: list[float], wanted: list[Transfer]
) -> None:
    assert ends_of(server, own, wanted) == pytest.approx(fluid_ends(server, own, wanted), abs=CLOSE)


@given(
    server=st.floats(1, 1e15),
    own=st.floats(1, 1e15),
    size=st.integers(1, 10**15),
    start=st.floats(0, 1e9),
)
def test_a_lone_transfer_takes_as_long_as_on_the_slower_link(
    server: float, own: float, size: int, start: float
) -> None:
    (end,) = ends_of(server, [own], [Transfer(start, 0, size)])
    assert end == start + size / min(server, own)


def test_in_one_moment_lower_numbers_come_first() -> None:
    link: SharedLink[str] = SharedLink(10.0, [5.0, 2.5])
    for worker in (3, 2, 1, 0):
        link.start(1.0, worker, 10.0, f"of {worker}")
    ended = []
    while link.next != NEVER:
        ended.append((*link.next, link.end()))
    assert ended == [(5.0, worker, f"of {worker}") for worker in range(4)]
