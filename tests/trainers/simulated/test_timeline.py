"""Runs on the virtual clock under all conditions: what is done, by whom and when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.faults.injections import injections
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
from syncswitch.trainers.simulated.timeline import TimedJob, Timeline, simulate_phases
from syncswitch.trainers.trainer import Observer
from tests.properties import more_examples
from tests.trainers.simulated.clusters import EVEN, PROTOCOLS_OF_FOUR, VARIED, Ledger, times_of


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
    log, ledger = RunLog(spec, Observer(), lambda accuracy: False), Ledger()
    times = times_of(profile, spec.identity.total_worker_steps)
    reached = [(0, 0.0)]

    def on_done(done: int, seconds: float) -> None:
        assert done > reached[-1][0]
        assert seconds >= reached[-1][1]
        reached.append((done, seconds))

    course = Timeline(spec, log, times, ledger, on_done)
    for segment in course.segments():
        assert log.done <= segment.end_worker_step
    return log.record(), ledger


def kinds(result: TrialRecord, *wanted: str) -> list[RunEvent]:
    return [event for event in result.events if event.kind in wanted]


def assert_exactly_w(spec: TrialSpec, result: TrialRecord, ledger: Ledger) -> None:
    W = spec.identity.total_worker_steps
    assert ledger.pushed == Counter(range(W))
    assert result.worker_steps == W
    assert sum(phase.end_worker_step - phase.start_worker_step for phase in result.phases) == W
    assert result.training_seconds == pytest.approx(
        math.fsum(phase.seconds for phase in result.phases)
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


class TestEveryRun:
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
        profile=st.sampled_from([EVEN, VARIED]),
    )
    def test_does_exactly_w_steps_and_counts_nothing_twice(
        self,
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
        assert_exactly_w(spec, result, ledger)
        again, other = run(spec, profile)
        again = replace(again, started_at=result.started_at, ended_at=result.ended_at)
        assert (again, other.rounds) == (result, ledger.rounds)
        assert len(kinds(result, "returned")) <= len(kinds(result, "lost"))

    def test_that_nobody_can_end_is_refused(self) -> None:
        kills = ["kill:worker=0,at=30%,for=10%", "kill:worker=1,at=31%,for=10%"]
        with pytest.raises(UserError, match="for=3s"):
            run(spec_of(100, inject=kills, workers=2))

    @pytest.mark.parametrize("text", ["kill:chief,at=50%", "kill:ps,at=50%", "hang:worker=1,at=5%"])
    def test_cannot_have_what_needs_processes(self, text: str) -> None:
        with pytest.raises(UserError, match="simulated cluster"):
            run(spec_of(100, inject=[text]))

    def test_cannot_start_servers_anew(self) -> None:
        spec = spec_of(100)
        with pytest.raises(UserError, match="--switch hot"):
            run(replace(spec, conditions=RunConditions(switch_mechanism="restart")))


class TestAKilledWorker:
    def test_in_a_round_is_not_waited_for_and_its_step_is_done_by_another(self) -> None:
        """Killed at 2.5 s for 2 s, in the third of rounds that take 1 s; 12 are left of 40 then."""
        spec = spec_of(40, 100.0, ["kill:worker=1,at=2500ms,for=2s"])
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        # Back at 4.5 s, in the fifth round: a member from the sixth on.
        assert [len(group) for group in ledger.rounds] == [4, 4, 3, 3, 3, 4, 4, 4, 4, 4, 3]
        assert result.training_seconds == pytest.approx(11.0)
        assert [(event.kind, event.worker, event.elapsed_seconds) for event in result.events] == [
            ("injected", 1, 2.5),
            ("lost", 1, 2.5),
            ("returned", 1, 4.5),
        ]
        assert kinds(result, "returned")[0].seconds == pytest.approx(2.0)

    def test_is_waited_for_when_nobody_else_is_there(self) -> None:
        """In the fifth round of 1 s: one worker is back at 7.5 s, the other one at 10.1 s."""
        kills = ["kill:worker=0,at=4500ms,for=3s", "kill:worker=1,at=4600ms,for=5500ms"]
        spec = spec_of(20, 100.0, kills, workers=2)
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        alone = [(0,)] * 3  # to 10.5 s: who is back waits for the next round
        assert ledger.rounds == [(0, 1)] * 4 + alone + [(0, 1)] * 4 + [(0,)]
        assert result.training_seconds == pytest.approx(15.5)

    def test_at_a_percent_is_killed_with_its_step_in_hand(self) -> None:
        spec = spec_of(40, 100.0, ["kill:worker=3,at=50%,for=1s"])
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        assert [len(group) for group in ledger.rounds[4:8]] == [4, 3, 4, 4]

    def test_that_comes_back_begins_its_round_with_the_others(self) -> None:
        """Slower than they, back at 4.5 s: rounds take 2 + 1 s with it, and 1 + 1 s without."""
        profile = ClusterProfile(
            compute_seconds=1.0, relative_speeds=(1.0, 0.5), barrier_seconds=1.0
        )
        spec = spec_of(12, 100.0, ["kill:worker=1,at=500ms,for=4s"], workers=2)
        result, ledger = run(spec, profile)
        # Alone from 0 to 6 s; then 4 rounds of both, and one step.
        assert ledger.rounds == [(0,)] * 3 + [(0, 1)] * 4 + [(0,)]
        assert result.training_seconds == pytest.approx(3 * 2.0 + 4 * 3.0 + 2.0)

    def test_that_comes_back_gets_the_replicas_of_the_others_when_it_begins(self) -> None:
        spec = spec_of(
            60, 100.0, ["kill:worker=2,at=2500ms,for=1s"], protocols=("local-sgd:3", "asp")
        )
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        assert ledger.came_back == [2]
        assert (0, 1, 3) in ledger.rounds

    def test_in_asp_costs_its_share(self) -> None:
        spec = spec_of(400, 0.0, ["kill:worker=0,at=25%,for=40s"])
        result, _ = run(spec)
        assert result.training_seconds == pytest.approx(100 + 40 / 4, abs=2.0)

    def test_is_not_there_at_the_switch(self) -> None:
        spec = spec_of(40, 50.0, ["kill:worker=1,at=40%,for=100s"])
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        assert ledger.members == [(0, 1, 2, 3), (0, 2, 3)]


class TestAStraggler:
    def test_slows_the_steps_that_begin_while_it_lasts(self) -> None:
        """Rounds that begin at 10, 11.3, ... 18.8 s."""
        inject = ["straggler:worker=1,at=10s,for=10s,delay=300ms"]
        result, _ = run(spec_of(400, 100.0, inject))
        assert result.training_seconds == pytest.approx(100 + 8 * 0.3)
        assert [event.worker for event in kinds(result, "injected")] == [1]

    def test_between_percents_slows_so_many_rounds(self) -> None:
        inject = ["straggler:worker=1,at=10%,for=20%,slowdown=2"]
        result, _ = run(spec_of(400, 100.0, inject))
        assert result.training_seconds == pytest.approx(100 + 20)

    def test_is_on_top_of_those_of_the_profile(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, relative_speeds=(0.5,))
        inject = ["straggler:worker=1,at=0%,for=50%,slowdown=3"]
        result, _ = run(spec_of(40, 100.0, inject), profile)
        assert result.training_seconds == pytest.approx(5 * 6 + 5 * 2)


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

    def test_without_one_nothing_is_decided(self) -> None:
        result, _ = run(self.spec("none"))
        assert [event.kind for event in result.events] == ["injected", "switched"]
        assert [phase.protocol for phase in result.phases] == ["bsp", "asp"]

    def test_elastic_goes_on_without_the_straggler_until_the_switch(self) -> None:
        spec = self.spec("elastic")
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
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
        assert result.training_seconds < undecided.training_seconds - 20

    def test_greedy_leaves_the_first_protocol_and_comes_back_for_its_full_share(self) -> None:
        spec = self.spec("greedy", 60.0)
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
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
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        assert [phase.protocol for phase in result.phases] == ["bsp", "asp", "bsp"]

    def test_after_the_switch_they_only_look(self) -> None:
        inject = ["straggler:worker=5,at=60%,for=30%,slowdown=3"]
        for online in ("greedy", "elastic"):
            result, _ = run(spec_of(800, 50.0, inject, online, workers=8))
            assert [phase.protocol for phase in result.phases] == ["bsp", "asp"]
            assert [e.kind for e in kinds(result, "removed", "detected")] == ["detected"]

    def test_a_removed_worker_that_is_killed_is_not_waited_for_at_the_switch(self) -> None:
        kill = "kill:worker=5,at=70%,for=1000s"
        spec = spec_of(800, 80.0, [*self.SLOW, kill], "elastic", workers=8)
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        assert ledger.members[-1] == (0, 1, 2, 3, 4, 6, 7)
        assert not kinds(result, "restored")

    def test_a_removed_worker_that_was_killed_and_is_there_again_rests_on(self) -> None:
        kill = "kill:worker=5,at=50%,for=1s"
        spec = spec_of(800, 80.0, [*self.SLOW, kill], "elastic", workers=8)
        result, ledger = run(spec)
        assert_exactly_w(spec, result, ledger)
        assert not ledger.came_back
        assert [event.worker for event in kinds(result, "restored")] == [5]
        assert ledger.members[-1] == tuple(range(8))


def seconds_of(
    profile: ClusterProfile, job: TimedJob, switch_percent: float = 100.0, **fields: Any
) -> float:
    phases = simulate_phases(profile, job, switch_percent, 0, **fields)
    return sum(phase.seconds for phase in phases)


COSTLY = ClusterProfile(compute_seconds=1.0, barrier_seconds=2.0, switch_seconds=0.5)
# A model of 100 values takes a second on these links.
LINKED = ClusterProfile(
    compute_seconds=1.0,
    worker_bandwidths_bytes_per_second=(400.0,),
    server_bandwidth_bytes_per_second=400.0,
)
BUSY = ClusterProfile(compute_seconds=0.1, apply_seconds=0.25)


class TestTimesAlone:
    @pytest.mark.parametrize(
        ("profile", "job", "switch_percent", "expected"),
        [
            # A barrier is paid in the first protocol alone, and a switch once.
            (COSTLY, TimedJob(4, 40, ("bsp", "asp")), 100.0, 30.0),
            (COSTLY, TimedJob(4, 40, ("bsp", "asp")), 50.0, 20.5),
            (COSTLY, TimedJob(4, 40, ("bsp", "asp")), 0.0, 10.0),
            # One worker: a pull, the computing, a push.
            (LINKED, TimedJob(1, 5, ("bsp", "asp"), 100), 100.0, 5 * 3.0),
            # Replicas of 4 in one group: 2 * 3 / 4 of the model after each step.
            (LINKED, TimedJob(4, 8, ("local-sgd:1", "asp"), 100), 100.0, 2 * (1.0 + 1.5)),
            # A parameter server that is busy for 0.25 s with each push sets the pace.
            (BUSY, TimedJob(16, 1600, ("bsp", "asp")), 0.0, 0.1 + 1600 * 0.25),
        ],
    )
    def test_known_answers(
        self, profile: ClusterProfile, job: TimedJob, switch_percent: float, expected: float
    ) -> None:
        assert seconds_of(profile, job, switch_percent) == pytest.approx(expected)

    def test_a_straggler_counts(self) -> None:
        found = RunConditions(injections=("straggler:worker=1,at=10%,for=20%,slowdown=2",))
        job = TimedJob(4, 400, ("bsp", "asp"))
        assert seconds_of(EVEN, job, conditions=found) == pytest.approx(120.0)

    @pytest.mark.parametrize(
        ("protocol", "mean", "most"),
        [("asp", (28 + 7 * 3992) / 4000, 7), ("ds-sync:2", None, None)],
    )
    def test_a_gradient_is_as_stale_as_there_are_others(
        self, protocol: str, mean: float | None, most: int | None
    ) -> None:
        """For replicas it is not known."""
        (phase,) = simulate_phases(EVEN, TimedJob(8, 4000, (protocol, "bsp")), 100.0, 0)
        assert (phase.mean_staleness, phase.max_staleness) == (mean, most)

    @pytest.mark.parametrize("workers", [2, 4])
    def test_dssp_is_between_ssp_and_asp_on_mixed_workers(self, workers: int) -> None:
        """Half of the workers are slow (arXiv 1908.11848)."""
        profile = load_profile("heterogeneous")
        order = ["bsp", "ssp:3", "dssp:3-15:unbounded", "asp"]
        times = [seconds_of(profile, TimedJob(workers, 4000, (name, name))) for name in order]
        assert times == sorted(times, reverse=True)

    def test_without_variation_unbounded_dssp_is_as_fast_as_asp(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, relative_speeds=(1.0, 1 / 1.9))
        bsp, ssp, dssp, asp = (
            seconds_of(profile, TimedJob(2, 4000, (name, name)))
            for name in ("bsp", "ssp:3", "dssp:3-15:unbounded", "asp")
        )
        assert asp == pytest.approx(dssp, rel=0.01)
        assert dssp < 0.75 * ssp < 0.75 * bsp
