"""DS-Sync, divide and shuffle: replicas are averaged in small groups that change every round."""

from __future__ import annotations

import hashlib
from bisect import insort
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


@lru_cache(maxsize=1024)
def partition(
    roster: tuple[int, ...], group_size: int, round_number: int
) -> tuple[tuple[int, ...], ...]:
    """Divides the workers into the groups of a round; the same everywhere.

    With m = `group_size` and n = m^d workers, a group are those whose ranks (positions in the
    roster), written to the base m, differ in digit `round_number` mod d only, digit 0 being the
    lowest: after d rounds in a row everybody has everybody's share (arXiv 2007.03298). For any
    other n the paper has no groups: there the roster is shuffled anew in each round and cut into
    pieces of m, of which the last may be shorter.

    Returns:
        The groups, each ascending; together the roster.
    """
    digits = _digits(len(roster), group_size)
    if digits is None:
        shuffled = sorted(roster, key=lambda worker: _lot(worker, round_number))
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
    """A worker waits only for the members of its group of this round, then their mean is taken.

    Source: Wang et al., DS-Sync: Addressing Network Bottlenecks with Divide-and-Shuffle
    Synchronization for Distributed DNN Training (arXiv 2007.03298). There is no barrier: groups of
    different rounds may be at work at once. Groups of one never average, the group of all is full
    averaging.

    Workers come and go, which the paper leaves out. The roster keeps those that leave: groups are
    divided as before, and shrink. One that comes back starts in the round of the foremost, and
    groups of earlier rounds do not wait for it. A stranger makes the roster longer.
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
        # Of active workers: in which round each one is, and who has done its step of it.
        self._round = dict.fromkeys(self.active, 0)
        self._arrived: set[int] = set()

    @classmethod
    def check_cluster(cls, workers: int, options: Mapping[str, Any]) -> None:
        """Refuses workers that cannot be divided into groups of m."""
        super().check_cluster(workers, options)
        if workers % options["group_size"]:
            sizes = [str(size) for size in range(1, workers + 1) if workers % size == 0]
            raise ValueError(
                f"GROUP_SIZE must divide the number of workers; give one of {', '.join(sizes)}"
            )

    def on_push(self, worker: int, now_seconds: float) -> Release:
        """Releases the group of `worker` when it was the last one of it."""
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
        """Releases `worker` into the foremost round, and those whose groups a stranger changed."""
        if worker in self.active:
            return NOBODY
        self.active.add(worker)
        self._round[worker] = max(self._round.values(), default=0)
        if worker not in self._roster:
            insort(self._roster, worker)
        others = self._release_complete(self._groups_waited_in())
        return Release(tuple(sorted((worker, *others.workers))), others.groups)

    def remove(self, worker: int) -> Release:
        """Releases the groups in which only `worker` was missing."""
        if worker not in self.active:
            return NOBODY
        self.active.discard(worker)
        del self._round[worker]
        self._arrived.discard(worker)
        return self._release_complete(self._groups_waited_in())

    def _groups_waited_in(self) -> list[tuple[int, tuple[int, ...]]]:
        """Each group in which somebody waits, behind the number of its round."""
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
            # Those in later rounds have this one behind them, or came back after it.
            expected = [one for one in group if self._round.get(one, number + 1) <= number]
            present = tuple(one for one in expected if self._is_in(one, number))
            if len(present) < len(expected):
                continue
            released += present
            if len(present) > 1:
                averaged.append(present)
        for worker in released:
            self._round[worker] += 1
        self._arrived.difference_update(released)
        return Release(tuple(sorted(released)), tuple(averaged))

    def _is_in(self, worker: int, number: int) -> bool:
        return worker in self._arrived and self._round[worker] == number


@lru_cache(maxsize=1024)
def _groups_by_member(
    roster: tuple[int, ...], group_size: int, round_number: int
) -> Mapping[int, tuple[int, ...]]:
    groups = partition(roster, group_size, round_number)
    return {worker: group for group in groups for worker in group}


def _digits(workers: int, group_size: int) -> int | None:
    """The d of n = m^d; None for any other n."""
    if group_size < 2:
        return None
    digits, power = 1, group_size
    while power < workers:
        digits, power = digits + 1, power * group_size
    return digits if power == workers else None


def _lot(worker: int, round_number: int) -> bytes:
    # A hash, since the streams of random generators may change from version to version.
    return hashlib.sha256(f"syncswitch {round_number} {worker}".encode()).digest()
