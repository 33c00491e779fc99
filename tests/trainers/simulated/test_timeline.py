"""The virtual clock: shared links against a fluid model, times against closed forms, conditions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.records.job import RunConditions, ScheduledJob
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.faults.injections import injections
from syncswitch.trainers.protocols import Exchange, ReplicaStep, choose_protocol
from syncswitch.trainers.protocols.steps import Group, Groups, SegmentSteps, Ticket
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.simulated.profile import ClusterProfile, Straggler
from syncswitch.trainers.simulated.timeline import (
    NEVER,
    Membership,
    SegmentPlayer,
    SharedLink,
    StepExecutor,
    TimedJob,
    Timeline,
    simulate_phases,
)
from syncswitch.trainers.trainer import Observer
from tests.properties import more_examples
from tests.records import changed
from tests.trainers.simulated.clusters import EVEN, PROTOCOLS_OF_FOUR, VARIED, times_of
from tests.wording import Said

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


def test_in_one_moment_lower_numbers_come_first() -> None:
    link: SharedLink[str] = SharedLink(10.0, [5.0, 2.5])
    for worker in (3, 2, 1, 0):
        link.start(1.0, worker, 10.0, f"of {worker}")
    ended = []
    while link.next != NEVER:
        ended.append((*link.next, link.end()))
    assert ended == [(5.0, worker, f"of {worker}") for worker in range(4)]


EXACT = 1e-9

# Steps of 1.0 and 1.9 s; the fast worker does 3000 pushes.
FINISH_SECONDS = {
    "bsp": 5699,
    "asp": 3000,
    "ssp:0": 5699,
    "ssp:3": 5693,
    "ssp:15": 5671,
    "dssp": 5680,
    "dssp:3-15:unbounded": 3000,
    "ds-sync:2": 5699,
    # The last of 3000 steps needs 374 whole periods of the slow worker, and 8 of its own.
    "local-sgd:8": round(374 * 8 * 1.9 + 8),
    # Of the 16 steps of each period the fast worker makes 10, and waits for the other's sixth.
    "local-sgd:8:semi-sync": round(299 * 6 * 1.9 + 10),
}


class Until(SegmentSteps):
    """Ends after a number of pushes of worker 0, and tells the time."""

    def __init__(self, protocol: str, speeds: Sequence[float], pushes: int) -> None:
        super().__init__(choose_protocol(protocol).machine(range(len(speeds))), 0, 10**9)
        self.end_seconds = math.nan
        self._left = pushes

    def push(self, worker: int, now_seconds: float, step: ReplicaStep | None = None) -> Groups:
        self._left -= worker == 0
        if self._left == 0 and math.isnan(self.end_seconds):
            self.end_seconds = now_seconds
            self.stop()
        return super().push(worker, now_seconds, step)


@pytest.mark.parametrize(("text", "seconds"), FINISH_SECONDS.items(), ids=FINISH_SECONDS)
def test_a_fast_and_a_slow_worker_finish_when_the_papers_rules_say(text: str, seconds: int) -> None:
    speeds = (1.0, 1 / 1.9)
    profile = ClusterProfile(compute_seconds=1.0, relative_speeds=speeds)
    steps = Until(text, speeds, 3000)
    membership = Membership(range(len(speeds)))
    times = times_of(profile, 6000)
    SegmentPlayer(steps, times, StepExecutor(), membership, 0.0, lambda *_: None).play()
    assert round(steps.end_seconds) == seconds


def play(
    protocol: str, profile: ClusterProfile, workers: int, steps: int
) -> list[tuple[int, float]]:
    """Worker-steps done, and when, after each update of a segment."""
    machine = choose_protocol(protocol).machine(range(workers))
    done: list[tuple[int, float]] = []
    SegmentPlayer(
        SegmentSteps(machine, 0, steps),
        times_of(profile, steps),
        StepExecutor(),
        Membership(range(workers)),
        0.0,
        lambda *update: done.append(update),
    ).play()
    return done


def cluster(**fields: Any) -> ClusterProfile:
    """A cluster of workers that compute for a second."""
    return ClusterProfile(**{"compute_seconds": 1.0, **fields})


def network(server: float | None = 400.0, own: Sequence[float] = (), **fields: Any) -> Any:
    """Links of this many bytes per second, and a model of 100 bytes: 0.25 s for a lone transfer."""
    return cluster(
        parameter_bytes=100,
        server_bandwidth_bytes_per_second=server,
        worker_bandwidths_bytes_per_second=tuple(own),
        **fields,
    )


def late(start_seconds: float, **fields: float) -> ClusterProfile:
    """Worker 1 is slow for 10 s from then on."""
    one = Straggler(worker=1, start_seconds=start_seconds, duration_seconds=10.0, **fields)
    return cluster(stragglers=(one,))


@pytest.mark.parametrize("start_seconds", [0.0, 5.0, 7.5])
def test_nobody_waits_longer_than_a_period_for_who_stays_away(start_seconds: float) -> None:
    """Two others do what is left, in periods of 12 steps; once they wait as long as one took."""
    away = late(start_seconds, delay_seconds=500.0)
    done = play("local-sgd:4:semi-sync", away, 3, 120)
    assert done[-1][0] == 120
    seconds = {steps: at for steps, at in done if at < 500.0}
    assert max(seconds) == 119
    assert seconds[119] <= 120 / 2 + 12 / 2
    assert done[-1][1] >= 500.0


UNEVEN = cluster(compute_seconds=0.3, relative_speeds=(1.0, 0.5, 2.0, 0.8))
BARRIER = network(barrier_seconds=0.5)
CHATTY = cluster(latency_seconds=0.125, barrier_seconds=0.5)
FAST = 1 + 2 * 100 / 350
# A mean of replicas: a ring's bytes, in three exchanges of two messages each.
REPLICAS = network(1.0, [400.0], latency_seconds=0.125)
MESSAGES = 6 * 0.125


@pytest.mark.parametrize(
    ("protocol", "profile", "workers", "steps", "expected"),
    [
        # A round waits for the slowest.
        ("bsp", UNEVEN, 4, 40, 10 * 0.3 / 0.5),
        # Speeds repeat along the workers.
        ("asp", cluster(relative_speeds=(1.0, 0.5)), 5, 5, [1.0, 1.0, 1.0, 2.0, 2.0]),
        # Rounds that start at 10.0, 11.3, ... 18.8 are late, the one at 20.1 is not.
        ("bsp", late(10.0, delay_seconds=0.3), 4, 400, 100 + 8 * 0.3),
        # Rounds that start at 10, 12, ... 18.
        ("bsp", late(10.0, slowdown=2.0), 4, 400, 100 + 5),
        # Only steps that start in the time of the straggler.
        ("bsp", late(99.0, delay_seconds=1.0), 4, 400, 101.0),
        ("bsp", late(99.5, delay_seconds=1.0), 4, 400, 100.0),
        ("bsp", late(100.0, delay_seconds=1.0), 4, 400, 100.0),
        # All have the parameters after n transfers; so it is with their gradients.
        ("asp", network(), 4, 4, [4 * 0.25 + 1 + 4 * 0.25] * 4),
        # A round sends n models each way.
        ("bsp", BARRIER, 1, 5, 5 * (2 * 0.25 + 1.5)),
        ("bsp", BARRIER, 3, 15, 5 * (6 * 0.25 + 1.5)),
        ("bsp", BARRIER, 8, 40, 5 * (16 * 0.25 + 1.5)),
        # Pulls and pushes do not share. Both have pulled at 0.5 s. Worker 1 pushes from 1.0 to
        # 1.25 s, pulls until 1.5 s, computes until 2.0 s; worker 0 pushes from 1.5 to 1.75 s.
        ("asp", network(relative_speeds=(1.0, 2.0)), 2, 3, [1.25, 1.75, 2.25]),
        # Updates queue, also behind transfers; a round is one.
        ("asp", cluster(apply_seconds=0.5), 4, 4, [1.5, 2.0, 2.5, 3.0]),
        ("asp", network(apply_seconds=0.5), 2, 2, [2.5, 3.0]),
        ("bsp", cluster(apply_seconds=0.25), 4, 8, 2 * 1.25),
        # A gradient that arrives during the update of a full buffer counts after it.
        ("gba:0", cluster(apply_seconds=1.5, relative_speeds=(2.0, 1.0)), 2, 6, [2.5, 4.5, 6.5]),
        # 4 links of 50 bytes a second fit into 400: nobody waits for anybody.
        ("bsp", network(own=[50.0]), 4, 4, 2.0 + 1 + 2.0),
        ("asp", network(None, [50.0]), 3, 3, 2.0 + 1 + 2.0),
        # The slow one takes 2 + 1 + 2 seconds for a step, and is not in the fast one's way.
        ("asp", network(own=[50.0, 350.0]), 2, 5, [FAST, 2 * FAST, 3 * FAST, 5.0, 4 * FAST]),
        # The worker asks, the parameters come, the gradient goes.
        ("bsp", CHATTY, 4, 8, 2 * 1.875),
        ("asp", CHATTY, 4, 8, 2 * 1.375),
        # A lone transfer takes its latency, and the time on the slower link.
        ("asp", network(latency_seconds=0.125), 1, 1, 0.375 + 2 * 0.25 + 1),
        ("asp", network(own=[200.0], latency_seconds=0.125), 1, 1, 0.375 + 2 * 0.5 + 1),
        ("asp", network(own=[800.0], latency_seconds=0.125), 1, 1, 0.375 + 2 * 0.25 + 1),
        # Members average among themselves, all groups at once, without the server.
        ("ds-sync:2", REPLICAS, 4, 12, 3 * (1 + 0.25 + MESSAGES)),
        ("ds-sync:2", REPLICAS, 16, 48, 3 * (1 + 0.25 + MESSAGES)),
        ("ds-sync:4", REPLICAS, 4, 12, 3 * (1 + 1.5 * 0.25 + MESSAGES)),
        ("local-sgd:1:kept", REPLICAS, 5, 15, 3 * (1 + 1.6 * 0.25 + MESSAGES)),
        # Local steps cost no network, and one alone has nothing to average.
        ("local-sgd:5:kept", REPLICAS, 4, 40, 10 + 2 * (1.5 * 0.25 + MESSAGES)),
        ("local-sgd:1", REPLICAS, 1, 3, 3.0),
        # Of the flags only the latency is left.
        ("selsync:0.3", REPLICAS, 1, 3, 3 * (1 + MESSAGES / 6)),
        ("selsync:0", REPLICAS, 5, 15, 3 * (1 + MESSAGES / 6 + 1.6 * 0.25 + MESSAGES)),
        # The slowest link of a group sets the pace of its mean: first 0 and 1, 2 and 3 are groups,
        # then 0 and 2, 1 and 3. Gradients of replicas count when they are there.
        ("ds-sync:2", network(own=[400.0, 400.0, 100.0, 100.0]), 4, 4, [1.0, 1.25, 1.25, 2.0]),
        ("ds-sync:2", network(own=[400.0, 400.0, 100.0, 100.0]), 4, 8, 2 * 2.0),
    ],
)
def test_known_times(
    protocol: str, profile: ClusterProfile, workers: int, steps: int, expected: float | list[float]
) -> None:
    """The time of each update, or of the last one."""
    ends = [seconds for _, seconds in play(protocol, profile, workers, steps)]
    found: Any = ends if isinstance(expected, list) else max(ends)
    assert found == pytest.approx(expected, abs=EXACT)


def test_a_delay_is_not_slowed_down_two_add_up_and_each_gradient_is_late_once() -> None:
    one = Straggler(worker=0, start_seconds=0, duration_seconds=1, delay_seconds=0.5, slowdown=3)
    times = times_of(cluster(stragglers=(one, one)), 8)
    assert times.compute_seconds(0, 0, 0.5) == pytest.approx((1 * 3 + 0.5) * 3 + 0.5)
    assert times.compute_seconds(0, 3, 0.5, batches=4) == pytest.approx((4 * 3 + 0.5) * 3 + 0.5)


def test_computing_varies_as_the_profile_says_with_the_step_and_the_seed_alone() -> None:
    """A longer job begins like a short one."""

    def found(steps: int, seed: int = 1) -> list[float]:
        times = times_of(VARIED, steps, seed=seed)
        return [times.compute_seconds(0, step, 0.0) for step in range(steps)]

    seconds = np.array(found(20_000))
    assert seconds.mean() == pytest.approx(0.05, rel=0.02)
    assert seconds.std() / seconds.mean() == pytest.approx(0.3, rel=0.05)
    assert found(50) == list(seconds[:50])
    assert found(50, seed=2) != found(50)


class Ledger(StepExecutor):
    """Checks the order and the workers of all notifications, and counts each gradient."""

    def __init__(self) -> None:
        self.pushed: Counter[int] = Counter()
        self.rounds: list[tuple[int, ...]] = []
        self.members: list[tuple[int, ...]] = []
        # Workers, each with the number of groups that were joined before it began again.
        self.came_back: list[tuple[int, int]] = []
        self._present: set[int] = set()
        self._under_way: dict[int, Ticket] = {}
        self._arrived: Counter[int] = Counter()
        self._exchange = Exchange.PUSH

    def begin(
        self,
        exchange: Exchange,
        members: Sequence[int],
        second_since: int | None,
        done: int | None = None,
        *,
        is_trial: bool = False,
    ) -> None:
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
        self.came_back.append((worker, len(self.rounds)))


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
    unknown = ScheduledJob.undescribed("nothing", total, workers, protocols, Metric())
    identity = changed(unknown, evaluation_interval_worker_steps=total)
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


def test_what_a_simulated_cluster_cannot_do_is_refused(said: Said) -> None:
    spec = spec_of(100, workers=2)
    for texts in (
        TWO_LEAVE,
        *((text,) for text in ("kill:chief,at=50%", "kill:ps,at=50%", "hang:worker=1,at=5%")),
    ):
        conditions = RunConditions(injections=texts)
        said.refusal("parameter-invalid", run, replace(spec, conditions=conditions))
    restart = RunConditions(switch_mechanism="restart")
    said.refusal("parameters-conflict", run, replace(spec, conditions=restart))


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
        # Several add up, on top of the slowness of the profile, each as long as it lasts.
        (
            [
                *(f"straggler:worker=1,at=0%,for=50%,slowdown={factor}" for factor in (2, 3)),
                "straggler:worker=1,at=0%,for=50%,delay=1s",
                "straggler:worker=1,at=20%,for=30%,delay=2s",
            ],
            40,
            HALF_SPEED,
            [ALL] * 10,
            2 * (2 * 2 * 3 + 1) + 3 * (2 * 2 * 3 + 1 + 2) + 5 * 2,
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
    assert ledger.came_back == [(2, 2)]
    assert ledger.rounds[:2] == [(0, 1, 3)] * 2


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
        (LINKED, TimedJob(4, 8, ("local-sgd:1:kept", "asp"), 100), 100.0, 2 * (1.0 + 1.5)),
        # And as much of a momentum.
        (LINKED, TimedJob(4, 8, ("local-sgd:1", "asp"), 100), 100.0, 2 * (1.0 + 3.0)),
    ],
)
def test_times_alone_are_known(
    profile: ClusterProfile, job: TimedJob, switch_percent: float, expected: float
) -> None:
    phases = simulate_phases(profile, job, switch_percent, 0)
    assert sum(phase.seconds for phase in phases) == pytest.approx(expected)
    is_replica = job.protocols[0].startswith("local-sgd:1")
    assert (phases[0].mean_staleness is None, phases[0].max_staleness is None) == (is_replica,) * 2


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_in_asp_equal_workers_are_as_stale_as_there_are_others(workers: int) -> None:
    """But in the first round, whose parameters are those of the start."""
    job = TimedJob(workers, 20 * workers, ("asp", "asp"))
    (phase,) = simulate_phases(EVEN, job, 0.0, 0)
    others = workers - 1
    mean = (sum(range(workers)) + 19 * workers * others) / (20 * workers)
    assert (phase.mean_staleness, phase.max_staleness) == (pytest.approx(mean), others)


def test_what_a_step_takes_is_told_by_computing_and_all_but_waiting() -> None:
    """A request, its answer and a gradient take 0.125 s each."""
    told: list[tuple[int, float, float]] = []
    profile = cluster(latency_seconds=0.125, relative_speeds=(1.0, 0.5))
    for protocol, busy in (("bsp", 0.375), ("local-sgd:2", 0.0)):
        SegmentPlayer(
            SegmentSteps(choose_protocol(protocol).machine(range(2)), 0, 2),
            times_of(profile, 2),
            StepExecutor(),
            Membership(range(2)),
            0.0,
            lambda *_: None,
            lambda *step: told.append(step),
        ).play()
        assert [worker for worker, _, _ in told] == [0, 1]
        assert [seconds for _, seconds, _ in told] == [1.0, 2.0]
        assert [seconds - compute for _, compute, seconds in told] == pytest.approx([busy, busy])
        told.clear()
