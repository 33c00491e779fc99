"""DS-Sync, divide and shuffle: replicas are averaged in small groups that change every round."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


@lru_cache(maxsize=1024)
def partition(
    roster: tuple[int, ...], group_size: int, round_number: int
) -> tuple[tuple[int, ...], ...]:
    """Divides the workers into the groups of a round; a pure function of its arguments.

    With m = `group_size` and n = m^d workers, a group consists of workers whose ranks (positions in
    the roster), written in base m, differ only in digit `round_number` mod d, where digit 0 is the
    lowest: after d consecutive rounds everybody has a share from everybody (arXiv 2007.03298).
    For other n the paper defines no groups; here the roster is shuffled anew in each round and cut
    into pieces of m, of which the last may be shorter.
    """
    digits = _digits(len(roster), group_size)
    if digits is None:
        # By a hash, as the streams of random generators may differ between versions.
        shuffled = sorted(
            roster,
            key=lambda worker: sha256(f"syncswitch {round_number} {worker}".encode()).digest(),
        )
        groups = [shuffled[i : i + group_size] for i in range(0, len(shuffled), group_size)]
    else:
        place = group_size ** (round_number % digits)
        by_other_digits: dict[int, list[int]] = {}
        for rank, worker in enumerate(roster):
            digit = rank // place % group_size
            by_other_digits.setdefault(rank - digit * place, []).append(worker)
        groups = list(by_other_digits.values())
    return tuple(sorted(tuple(sorted(group)) for group in groups))


class DSSync(SyncProtocol):
    """A worker waits only for the members of its group in this round, whose replicas are averaged.

    Source: Wang et al., DS-Sync: Addressing Network Bottlenecks with Divide-and-Shuffle
    Synchronization for Distributed DNN Training (arXiv 2007.03298). There is no barrier: groups of
    different rounds may be at work at the same time. Groups of one never average; one group of all
    workers is full averaging.

    The paper does not cover workers that come and go. Here the roster keeps workers that leave:
    groups are divided as before, and shrink. A worker that comes back starts in the foremost round,
    and groups of earlier rounds do not wait for it. A new worker is added to the roster.
    """

    name = "ds-sync"
    usage = "ds-sync:GROUP_SIZE"
    exchange = Exchange.REPLICA
    least_workers = 2
    number = ("group_size", "GROUP_SIZE", 1)

    def __init__(self, workers: Iterable[int], group_size: int) -> None:
        super().__init__(workers)
        self._group_size = group_size
        self._roster = sorted(self.active)
        # The round of each active worker, and the workers that have done their step of it.
        self._round = dict.fromkeys(self.active, 0)
        self._arrived: set[int] = set()

    @classmethod
    def check_cluster(cls, workers: int, options: Mapping[str, Any]) -> None:
        super().check_cluster(workers, options)
        if workers % options["group_size"]:
            sizes = [str(size) for size in range(1, workers + 1) if workers % size == 0]
            raise ValueError(
                f"GROUP_SIZE must divide the number of workers; give one of {', '.join(sizes)}"
            )

    def on_push(self, worker: int, now_seconds: float) -> Release:
        if worker not in self.active:
            return NOBODY
        if worker in self._arrived:
            raise ValueError(
                f"worker {worker} has no step under way in round {self._round[worker]}"
            )
        self._arrived.add(worker)
        number = self._round[worker]
        group = _groups_by_member(tuple(self._roster), self._group_size, number)[worker]
        return self._release_complete([(number, group)])

    def add(self, worker: int) -> Release:
        """Releases `worker` into the foremost round, and groups that a new worker has completed."""
        if worker in self.active:
            return NOBODY
        self.active.add(worker)
        self._round[worker] = max(self._round.values(), default=0)
        if worker not in self._roster:
            insort(self._roster, worker)
        others = self._release_complete(self._groups_waited_in())
        return Release(tuple(sorted((worker, *others.workers))), others.groups)

    def remove(self, worker: int) -> Release:
        if worker not in self.active:
            return NOBODY
        self.active.discard(worker)
        del self._round[worker]
        self._arrived.discard(worker)
        return self._release_complete(self._groups_waited_in())

    def _groups_waited_in(self) -> list[tuple[int, tuple[int, ...]]]:
        """The groups of all rounds in which somebody waits, each after the number of its round."""
        roster = tuple(self._roster)
        return [
            (number, group)
            for number in sorted({self._round[worker] for worker in self._arrived})
            for group in partition(roster, self._group_size, number)
        ]

    def _release_complete(self, groups: Iterable[tuple[int, tuple[int, ...]]]) -> Release:
        released: list[int] = []
        averaged: list[tuple[int, ...]] = []
        for number, group in groups:
            # Workers in later rounds are done with this one, or came back after it.
            expected = [other for other in group if self._round.get(other, number + 1) <= number]
            present = tuple(
                other
                for other in expected
                if other in self._arrived and self._round[other] == number
            )
            if len(present) < len(expected):
                continue
            released += present
            if len(present) > 1:
                averaged.append(present)
        for worker in released:
            self._round[worker] += 1
        self._arrived.difference_update(released)
        return Release(tuple(sorted(released)), tuple(averaged))


@lru_cache(maxsize=1024)
def _groups_by_member(
    roster: tuple[int, ...], group_size: int, round_number: int
) -> Mapping[int, tuple[int, ...]]:
    groups = partition(roster, group_size, round_number)
    return {worker: group for group in groups for worker in group}


def _digits(workers: int, group_size: int) -> int | None:
    """The d for which n = m^d; None if there is none."""
    if group_size < 2:
        return None
    digits, power = 1, group_size
    while power < workers:
        digits, power = digits + 1, power * group_size
    return digits if power == workers else None
