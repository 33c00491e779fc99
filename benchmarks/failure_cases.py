"""The runs of the campaign of failures, drawn by a seed; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from syncswitch.storage.records.trial import TrialRecord
from syncswitch.trainers.faults.injections import parse_injection

TOTAL_WORKER_STEPS = 2_000
CHECKPOINT_PERCENTS = tuple(float(percent) for percent in range(10, 101, 10))

Lane = tuple[str, int, int]
"""Launcher, number of workers, and of parameter servers: what a cluster serves."""

PAIRS = (
    ("bsp", "asp"),
    ("bsp", "ssp:3"),
    ("bsp", "local-sgd:4"),
    ("bsp", "local-sgd:4:semi-sync"),
    ("asp", "bsp"),
    ("ssp:3", "bsp"),
    ("dssp:3-15", "asp"),
    ("bsp", "dssp:3-15"),
    ("ds-sync:2", "asp"),
    ("bsp", "ds-sync:2"),
    ("local-sgd:4", "asp"),
    ("bsp", "gba:8"),
    ("gba:8", "bsp"),
)
"""Each protocol before the switch and after it."""

WORKERS = (2, 3, 4)
SERVERS = {"in-process": (1,), "processes": (1, 2)}
REFERENCE, SEVERAL = "none (reference)", "two or three of these"
CHIEF_KILLED, DISK_FULL, TRUNCATED = "chief killed", "disk full", "checkpoint truncated"

_SHARED = {
    "worker killed": "kill:worker={worker},at={at}%",
    CHIEF_KILLED: "kill:chief,at={at}%",
    DISK_FULL: None,
    TRUNCATED: None,
    "straggler": "straggler:worker={worker},at={at}%,for={length}%,delay=4ms",
}
_PROCESSES = _SHARED | {
    "worker hung": "hang:worker={worker},at={at}%",
    "ps killed": "kill:ps={server},at={at}%",
    "ps hung": "hang:ps={server},at={at}%",
}
KINDS = tuple(_PROCESSES)
"""What may happen; for those that no injection can express, the campaign does it."""

_LAUNCHERS = {"in-process": _SHARED, "processes": _PROCESSES}
_LAUNCHER_WEIGHTS = (2, 3)
_COUNT_WEIGHTS = (14, 4, 2)  # of one, two and three failures in a run


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        number: In the campaign.
        kinds: Kinds of failures; empty for an undisturbed run.
        disk_full_percents: From which percent of W to which the disk is full.
        truncated_percent: At which percent of W everything is killed with -9 and the last
            checkpoint cut in half.
    """

    number: int
    launcher: str
    workers: int
    pair: tuple[str, str]
    switch_percent: float
    mechanism: str
    online: str
    seed: int
    kinds: tuple[str, ...] = ()
    injections: tuple[str, ...] = ()
    disk_full_percents: tuple[float, float] | None = None
    truncated_percent: float | None = None
    servers: int = 1

    @property
    def lane(self) -> Lane:
        return self.launcher, self.workers, self.servers

    @property
    def row(self) -> str:
        if len(self.kinds) > 1:
            return SEVERAL
        return self.kinds[0] if self.kinds else REFERENCE

    @property
    def is_often_killed(self) -> bool:
        """Whether the chief is killed, with which the whole record of the run may be lost."""
        return CHIEF_KILLED in self.kinds or self.truncated_percent is not None

    @property
    def text(self) -> str:
        happens = [*self.injections]
        if self.disk_full_percents:
            happens.append("disk full from {:g} to {:g} %".format(*self.disk_full_percents))
        if self.truncated_percent is not None:
            happens.append(f"all killed at {self.truncated_percent:g} %, checkpoint truncated")
        return (
            f"{self.launcher} {self.workers}+{self.servers} {','.join(self.pair)}"
            f" at {self.switch_percent:g} % {self.mechanism} {self.online} seed {self.seed}:"
            f" {'; '.join(happens) or 'nothing'}"
        )


class Request(NamedTuple):
    """A run to be trained, or to go on."""

    case: Case
    folder: Path
    resume: bool


class Done(NamedTuple):
    """The measurements of a run, and its threads that did not end with it."""

    record: TrialRecord
    threads: list[str]


class Error(NamedTuple):
    """It raised; whether that may go away by itself."""

    text: str
    is_retryable: bool


def drawn_cases(count: int, seed: int) -> list[Case]:
    """Disturbed runs, cluster by cluster; each depends on its number and the seed alone."""
    cases = [_drawn(number, random.Random(f"{seed}-{number}")) for number in range(count)]
    return sorted(cases, key=lambda case: (case.lane, case.number))


def reference_cases(seed: int) -> list[Case]:
    """Undisturbed runs: each pair once on each cluster, each with a seed of its own."""
    lanes = [
        (launcher, workers, servers)
        for launcher in _LAUNCHERS
        for workers in WORKERS
        for servers in SERVERS[launcher]
    ]
    cases = []
    for launcher, workers, servers in lanes:
        for pair in _fitting(workers):
            chance = random.Random(f"{seed}-{launcher}-{workers}-{servers}-{pair}")
            percent, job_seed = _percent(chance), chance.randrange(1_000_000)
            case = Case(-1, launcher, workers, pair, percent, "hot", "none", job_seed)
            cases.append(replace(case, servers=servers))
    return cases


def _drawn(number: int, chance: random.Random) -> Case:
    (launcher,) = chance.choices(list(_LAUNCHERS), _LAUNCHER_WEIGHTS)
    workers, servers = chance.choice(WORKERS), chance.choice(SERVERS[launcher])
    pair = chance.choice(_fitting(workers))
    possible = _LAUNCHERS[launcher]
    (count,) = chance.choices((1, 2, 3), _COUNT_WEIGHTS)
    # Another chief takes a while to start, so that these are drawn half as often.
    weights = [1 if kind in (CHIEF_KILLED, TRUNCATED) else 2 for kind in possible]
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        drawn[chance.choices(list(possible), weights)[0]] = None
    kinds = tuple(drawn)
    injections = []
    for kind in kinds:
        form = possible[kind]
        if form is not None:
            at, length = round(chance.uniform(0, 99), 1), chance.randint(20, 60)
            worker = chance.randrange(workers)
            server = chance.randrange(servers)
            text = form.format(worker=worker, server=server, at=at, length=length)
            injections.append(parse_injection(text).text)
    full_from = round(chance.uniform(0, 60), 1)
    return Case(
        number,
        launcher,
        workers,
        pair,
        _percent(chance),
        chance.choice(("hot", "restart")),
        chance.choice(("none", "greedy", "elastic")) if pair[0] == "bsp" else "none",
        chance.randrange(1_000_000),
        kinds,
        tuple(injections),
        (full_from, full_from + 40) if DISK_FULL in kinds else None,
        round(chance.uniform(0, 99), 1) if TRUNCATED in kinds else None,
        servers,
    )


def _fitting(workers: int) -> list[tuple[str, str]]:
    """Pairs for so many workers: groups of two need an even number."""
    return [pair for pair in PAIRS if workers % 2 == 0 or "ds-sync:2" not in pair]


def _percent(chance: random.Random) -> float:
    return float(chance.choice((0, chance.randint(1, 99), chance.randint(1, 99), 100)))
