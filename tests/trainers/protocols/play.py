"""A tiny virtual clock: workers with steps of fixed lengths, and a protocol."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncswitch.trainers.protocols import Release, SyncProtocol, choose_protocol


@dataclass(frozen=True)
class Push:
    """A push, when it happened, and the answer to it."""

    worker: int
    now_seconds: float
    release: Release


def play(protocol: SyncProtocol, step_seconds: Sequence[float]) -> Iterator[Push]:
    """Pushes in the order of time, then of workers; without end unless everybody waits."""
    ends: list[tuple[float, int]] = []

    def let_go(release: Release, now_seconds: float) -> None:
        for worker in release.workers:
            heapq.heappush(ends, (now_seconds + step_seconds[worker], worker))

    let_go(protocol.start(), 0.0)
    while ends:
        now_seconds, worker = heapq.heappop(ends)
        release = protocol.on_push(worker, now_seconds)
        let_go(release, now_seconds)
        yield Push(worker, now_seconds, release)


def play_choice(text: str, step_seconds: Sequence[float]) -> Iterator[Push]:
    return play(choose_protocol(text).machine(range(len(step_seconds))), step_seconds)


def finish_seconds(text: str, step_seconds: Sequence[float], pushes: int) -> float:
    """The time at which worker 0 has made this many pushes."""
    done = 0
    for push in play_choice(text, step_seconds):
        done += push.worker == 0
        if done == pushes:
            return push.now_seconds
    raise AssertionError(f"{text} blocks everybody")
