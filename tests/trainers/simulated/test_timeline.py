"""Runs on the virtual clock under all conditions: what is done, by whom and when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.faults.injections import injections
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group, Ticket
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.simulated.events import Learner
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.timeline import TimedJob, Timeline, simulate_phases
from syncswitch.trainers.trainer import Observer
from tests.properties import more_examples
from tests.trainers.simulated.clusters import EVEN, PROTOCOLS_OF_FOUR, VARIED, times_of


class Ledger(Learner):
    """Checks the order and the workers of all notifications, and counts each gradient."""

    def __init__(self) -> None:
        self.pushed: Counter[int] = Counter()
        self.rounds: list[tuple[int, ...]] = []
        self.members: list[tuple[int, ...]] = []
        self.came_back: list[int] = []
        self._present: set[int] = set()
        self._under_way: dict[int, Ticket] = {}
        self._arrived: Counter[int] = Counter()
        self._exchange = Exchange.PUSH

    def begin(self, exchange: Exchange, members: Sequence[int], second_since: int | None) -> None:
        assert not self._under_way
        assert not self._arrived, "the gradients of a round were forgotten"
        self._exchange = exchange
        self._present = set(members)
        self.members.append(tuple(members))

    def pull(self, ticket: Ticket) -> None:
        assert ticket.worker in self._present
        assert ticket.worker not in self._under_way
        self._under_way[ticket.worker] = ticket

    def push(self, ticket: Ticket) -> None:
        assert self._under_way.pop(ticket.worker) is ticket
        self.pushed[ticket.worker_step] += 1
        if self._exchange in (Exchange.ROUND, Exchange.BUFFER):
            self._arrived[ticket.worker] += 1

    def join(self, group: Group, worker_step: int) -> None:
        self.rounds.append(group.workers)
        assert group.worker_steps or not self._under_way.keys() & set(group.workers)
        if self._exchange in (Exchange.ROUND, Exchange.BUFFER):
            assert self._arrived >= Counter(group.workers)
            self._arrived -= Counter(group.workers)
        else:
            assert self._present >= set(group.workers)

    def leave(self, worker: int) -> None:
        self._present.discard(worker)
        self._under_way.pop(worker, None)

    def come_back(self, worker: int) -> None:
        assert worker not in self._present
        self._present.add(worker)
        self.came_back.append(worker)


def spec_of(
    total: int,
    switch_percent: float = 50.0,
    inject: Iterable[str] = (),
    online: str = "none",
    workers: int = 4,
    protocols: tuple[str, str] = ("bsp", "asp"),
    **fields: Any,
) -> TrialSpec:
    found = injections(inject, workers, switch_percent)
    conditions = RunConditions(online, injections=tuple(one.text for one in found))
    identity = WorkloadIdentity(
        "nothing", *(None,) * 4, total, *(None,) * 5, total, workers, *protocols
    )  # fmt: skip
    return TrialSpec(identity, switch_percent, 1, conditions=conditions, **fields)


def run(spec: TrialSpec, profile: ClusterProfile = EVEN) -> tuple[TrialRecord, Ledger]:
    """Each step of the job is done and counted once."""
    log, ledger = RunLog(spec, Observer(), lambda accuracy: False), Ledger()
    W = spec.identity.total_worker_steps
    times = times_of(profile, W)
    reached = [(0, 0.0)]

    def on_done(done: int, seconds: float) -> None:
        assert done > reached[-1][0]
        assert seconds >= reached[-1][1]
        reached.append((done, seconds))

    course = Timeline(spec, log, times, ledger, on_done)
    for segment in course.segments():
        assert log.done <= segment.end_worker_step
    result = log.record()
    assert ledger.pushed == Counter(range(W))
    assert result.worker_steps == W
    assert sum(phase.end_worker_step - phase.start_worker_step for phase in result.phases) == W
    seconds = math.fsum(phase.seconds for phase in result.phases)
    assert result.training_seconds == pytest.approx(seconds)
    return result, ledger


def kinds(result: TrialRecord, *wanted: str) -> list[RunEvent]:
    return [event for event in result.events if event.kind in wanted]


COSTLY = ClusterProfile(compute_seconds=1.0, barrier_seconds=2.0, switch_seconds=0.5)
# A model of 100 values takes a second on these links.
LINKED = ClusterProfile(
    compute_seconds=1.0,
    worker_bandwidths_bytes_per_second=(400.0,),
    server_bandwidth_bytes_per_second=400.0,
)
# Several things take time, workers differ, and pushes wait in line.
BUSY = ClusterProfile(
    compute_seconds=1.0,
    compute_variation=3.0,
    relative_speeds=(0.3, 1.0, 5.0),
    parameter_bytes=3,
    worker_bandwidths_bytes_per_second=(14.0, 10.0),
    server_bandwidth_bytes_per_second=16.0,
    latency_seconds=0.2,
    apply_seconds=0.2,
    barrier_seconds=0.2,
)
KILLS = st.lists(
    st.builds(
        "kill:worker={},at={},for={}".format,
        st.integers(0, 2),
        st.sampled_from(["0%", "10%", "49%", "50%", "51%", "93%", "0s", "1s", "2500ms", "11s"]),
        st.sampled_from(["100ms", "1s", "7s", "30s"]),
    ),
    max_size=3,
    unique=True,
)
SLOWNESS = st.lists(
    st.builds(
        "straggler:worker={},at={},for={},{}".format,
        st.integers(0, 3),
        st.sampled_from(["0%", "20%", "3s"]),
        st.sampled_from(["30%", "9s"]),
        st.sampled_from(["slowdown=3", "delay=2s"]),
    ),
    max_size=2,
    unique=True,
)


@more_examples(4)
@given(
    kills=KILLS,
    slowness=SLOWNESS,
    pair=st.sampled_from(
        [
            *(("bsp", other) for other in PROTOCOLS_OF_FOUR if other != "bsp"),
            *((other, "bsp") for other in PROTOCOLS_OF_FOUR if other != "bsp"),
        ]
    ),
    online=st.sampled_from(["none", "greedy", "elastic"]),
    total=st.integers(20, 240),
    switch_percent=st.sampled_from([0.0, 30.0, 50.0, 100.0]),
    profile=st.sampled_from([EVEN, VARIED, BUSY]),
)
def test_every_run_does_exactly_w_steps_and_counts_nothing_twice(
    kills: list[str],
    slowness: list[str],
    pair: tuple[str, str],
    online: str,
    total: int,
    switch_percent: float,
    profile: ClusterProfile,
) -> None:
    spec = spec_of(total, switch_percent, [*kills, *slowness], online, protocols=pair)
    result, ledger = run(spec, profile)
    again, other = run(spec, profile)
    again = replace(again, started_at=result.started_at, ended_at=result.ended_at)
    assert (again, other.rounds) == (result, ledger.rounds)
    assert len(kinds(result, "returned")) <= len(kinds(result, "lost"))


TWO_LEAVE = ("kill:worker=0,at=30%,for=10%", "kill:worker=1,at=31%,for=10%")


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (RunConditions(injections=TWO_LEAVE), "for=3s"),
        *(
            (RunConditions(injections=(text,)), "simulated cluster")
            for text in ("kill:chief,at=50%", "kill:ps,at=50%", "hang:worker=1,at=5%")
        ),
        (RunConditions(switch_mechanism="restart"), "--switch hot"),
    ],
)
def test_what_a_simulated_cluster_cannot_do_is_refused(
    conditions: RunConditions, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        run(replace(spec_of(100, workers=2), conditions=conditions))


SLOW_SECOND = ClusterProfile(compute_seconds=1.0, relative_speeds=(1.0, 0.5), barrier_seconds=1.0)
HALF_SPEED = ClusterProfile(compute_seconds=1.0, relative_speeds=(0.5,))
ALL, BUT_1, BOTH, LONE = (0, 1, 2, 3), (0, 2, 3), (0, 1), (0,)


@pytest.mark.parametrize(
    ("inject", "total", "profile", "rounds", "seconds"),
    [
        # In the third of rounds that take 1 s: its step is done by another. Back at 4.5 s, when two
        # kills are over, it is a member from the sixth round on; after 3 s unless they say it.
        (["kill:worker=1,at=2500ms"], 40, EVEN, [ALL] * 2 + [BUT_1] * 4 + [ALL] * 5, 11.0),
        (
            ["kill:worker=1,at=2500ms,for=2s", "kill:worker=1,at=3s,for=1s"],
            40,
            EVEN,
            [ALL] * 2 + [BUT_1] * 3 + [ALL] * 5 + [(0, 1, 2)],
            11.0,
        ),
        # In the fifth round both leave: one is back at 7.5 s, the other one at 10.1 s.
        (
            ["kill:worker=0,at=4500ms,for=3s", "kill:worker=1,at=4600ms,for=5500ms"],
            20,
            EVEN,
            [BOTH] * 4 + [LONE] * 3 + [BOTH] * 4 + [LONE],
            15.5,
        ),
        # Nobody is there at the start, and one after 3 s.
        (
            ["kill:worker=0,at=0s,for=3s", "kill:worker=1,at=0%,for=4s"],
            4,
            EVEN,
            [LONE, BOTH, LONE],
            6.0,
        ),
        # At a percentage it is killed with its step in hand.
        (["kill:worker=1,at=50%,for=1s"], 40, EVEN, [ALL] * 5 + [BUT_1] + [ALL] * 4 + [LONE], 11.0),
        # Back at 4.5 s it begins its round with the other one, which takes 1 + 1 s alone.
        (
            ["kill:worker=1,at=500ms,for=4s"],
            12,
            SLOW_SECOND,
            [LONE] * 3 + [BOTH] * 4 + [LONE],
            3 * 2.0 + 4 * 3.0 + 2.0,
        ),
        # Rounds are slow that begin at 10, 11.3, ... 18.8 s.
        (["straggler:worker=1,at=10s,for=10s,delay=300ms"], 400, EVEN, [ALL] * 100, 100 + 8 * 0.3),
        # It is on top of the slowness of the profile.
        (
            [f"straggler:worker=1,at=0%,for=50%,{how}" for how in ("slowdown=3", "delay=1s")],
            40,
            HALF_SPEED,
            [ALL] * 10,
            5 * (2 * 3 + 1) + 10,
        ),
    ],
)
def test_known_rounds(
    inject: list[str],
    total: int,
    profile: ClusterProfile,
    rounds: list[tuple[int, ...]],
    seconds: float,
) -> None:
    spec = spec_of(total, 100.0, inject, workers=max(2, *map(len, rounds)))
    result, ledger = run(spec, profile)
    assert ledger.rounds == rounds
    assert result.training_seconds == pytest.approx(seconds)


def test_a_killed_worker_is_recorded_and_another_pair_of_protocols_knows_it_is_away() -> None:
    """Of 10 s; the second protocol begins after 5.5 s."""
    spec = spec_of(40, 50.0, ["kill:worker=1,at=2500ms,for=2s", "kill:worker=3,at=40%,for=100s"])
    result, ledger = run(spec)
    assert ledger.members == [(0, 1, 2, 3), (0, 1, 2)]
    assert [
        (event.kind, event.elapsed_seconds, event.seconds)
        for event in result.events
        if event.worker == 1
    ] == [("injected", 2.5, None), ("lost", 2.5, None), ("returned", 4.5, 2.0)]


def test_who_comes_back_gets_the_replicas_of_the_others_when_it_begins() -> None:
    kill = "kill:worker=2,at=2500ms,for=1s"
    spec = spec_of(60, 100.0, [kill], protocols=("local-sgd:3", "asp"))
    _, ledger = run(spec)
    assert ledger.came_back == [2]
    assert (0, 1, 3) in ledger.rounds


class TestOnlinePolicies:
    """One of 8 workers is three times as slow from 10 % to 40 % of a job of 800 steps."""

    SLOW = ("straggler:worker=5,at=10%,for=30%,slowdown=3",)

    def spec(self, online: str, switch_percent: float = 80.0) -> TrialSpec:
        return spec_of(800, switch_percent, self.SLOW, online, workers=8)

    def first_steps(self, result: TrialRecord) -> int:
        return sum(
            phase.end_worker_step - phase.start_worker_step
            for phase in result.phases
            if phase.protocol == "bsp"
        )

    def test_elastic_goes_on_without_the_straggler_until_the_switch(self) -> None:
        result, ledger = run(self.spec("elastic"))
        found = [(e.kind, e.worker) for e in kinds(result, "detected", "removed", "restored")]
        assert found == [("detected", 5), ("removed", 5), ("restored", 5)]
        assert [phase.protocol for phase in result.phases] == ["bsp", "asp"]
        assert ledger.members == [tuple(range(8))] * 2
        sizes = Counter(map(len, ledger.rounds))
        assert sizes[7] > 50
        # All of the first protocol's share, and one round that is short at its end.
        assert self.first_steps(result) == 640
        assert sum(map(len, ledger.rounds)) == 640
        undecided, _ = run(self.spec("none"))
        assert [event.kind for event in undecided.events] == ["injected", "switched"]
        assert result.training_seconds < undecided.training_seconds - 20

    def test_greedy_leaves_the_first_protocol_and_comes_back_for_its_full_share(self) -> None:
        result, ledger = run(self.spec("greedy", 60.0))
        assert [phase.protocol for phase in result.phases] == ["bsp", "asp", "bsp", "asp"]
        assert self.first_steps(result) == 480
        switches = kinds(result, "switched")
        assert len(switches) == 3
        assert [event.seconds for event in switches] == [None, None, EVEN.switch_seconds]
        assert result.switch_overhead_seconds == pytest.approx(3 * EVEN.switch_seconds)
        assert ledger.members == [tuple(range(8))] * 4

    def test_greedy_comes_back_from_a_detour_that_is_longer_than_what_was_missing(self) -> None:
        slow = "straggler:worker=5,at=10%,for=70%,slowdown=3"
        spec = spec_of(800, 60.0, [slow], "greedy", workers=8)
        result, _ = run(spec)
        assert [phase.protocol for phase in result.phases] == ["bsp", "asp", "bsp"]

    def test_after_the_switch_they_only_look(self) -> None:
        inject = ["straggler:worker=5,at=60%,for=30%,slowdown=3"]
        for online in ("greedy", "elastic"):
            result, _ = run(spec_of(800, 50.0, inject, online, workers=8))
            assert [phase.protocol for phase in result.phases] == ["bsp", "asp"]
            assert [e.kind for e in kinds(result, "removed", "detected")] == ["detected"]

    @pytest.mark.parametrize(
        ("kill", "restored"),
        [
            # It is not waited for at the switch.
            ("kill:worker=5,at=70%,for=1000s", []),
            # There again it rests on until then.
            ("kill:worker=5,at=50%,for=1s", [5]),
        ],
    )
    def test_a_removed_worker_may_be_killed(self, kill: str, restored: list[int]) -> None:
        spec = spec_of(800, 80.0, [*self.SLOW, kill], "elastic", workers=8)
        result, ledger = run(spec)
        assert not ledger.came_back
        assert [event.worker for event in kinds(result, "restored")] == restored
        assert ledger.members[-1] == (0, 1, 2, 3, 4, *restored, 6, 7)


@pytest.mark.parametrize(
    ("profile", "job", "switch_percent", "expected"),
    [
        # A barrier is paid in the first protocol alone, and a switch once.
        (COSTLY, TimedJob(4, 40, ("bsp", "asp")), 50.0, 20.5),
        # One worker: a pull, the computing, a push.
        (LINKED, TimedJob(1, 5, ("bsp", "asp"), 100), 100.0, 5 * 3.0),
        # Replicas of 4 in one group: 2 * 3 / 4 of the model after each step.
        (LINKED, TimedJob(4, 8, ("local-sgd:1", "asp"), 100), 100.0, 2 * (1.0 + 1.5)),
    ],
)
def test_times_alone_are_known(
    profile: ClusterProfile, job: TimedJob, switch_percent: float, expected: float
) -> None:
    phases = simulate_phases(profile, job, switch_percent, 0)
    assert sum(phase.seconds for phase in phases) == pytest.approx(expected)
    is_replica = job.protocols[0] == "local-sgd:1"
    assert (phases[0].mean_staleness is None, phases[0].max_staleness is None) == (is_replica,) * 2


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_in_asp_equal_workers_are_as_stale_as_there_are_others(workers: int) -> None:
    """But in the first round, whose parameters are those of the start."""
    job = TimedJob(workers, 20 * workers, ("asp", "asp"))
    (phase,) = simulate_phases(EVEN, job, 0.0, 0)
    others = workers - 1
    mean = (sum(range(workers)) + 19 * workers * others) / (20 * workers)
    assert (phase.mean_staleness, phase.max_staleness) == (pytest.approx(mean), others)
