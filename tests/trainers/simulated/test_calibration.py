from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.trainers.replay import Recording
from syncswitch.trainers.simulated.calibration import (
    MeasuredTimes,
    Network,
    asp_seconds,
    calibrate,
    measured_pace,
)
from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
from syncswitch.trainers.simulated.timeline import TimedJob, simulate_phases
from tests.wording import Said


def phase(protocol: str, start: int, end: int, seconds: float) -> PhaseRecord:
    return PhaseRecord(protocol, start, end, seconds, None, None)


BSP = (phase("bsp", 0, 800, 200.0),)
ASP = (phase("asp", 0, 800, 50.0),)
SWITCHED = (phase("bsp", 0, 400, 120.0), phase("asp", 400, 800, 20.0))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # Runs with one protocol alone come first.
        ([BSP, SWITCHED, ASP], MeasuredTimes(8, 2.0, 0.5, 2)),
        ([BSP, SWITCHED], MeasuredTimes(8, pytest.approx(320 / 150), 0.4, 2)),
    ],
)
def test_the_pace_is_that_of_all_phases(
    runs: list[tuple[PhaseRecord, ...]], expected: MeasuredTimes
) -> None:
    assert measured_pace(8, runs) == expected


def test_without_a_time_of_each_there_is_no_pace(said: Said) -> None:
    for runs in ([BSP], []):
        said.refusal("nothing-recorded", measured_pace, 8, runs)


class TestAKnownNetwork:
    """1000 numbers over links of 40,000 bytes a second: 0.1 s for a transfer alone."""

    NETWORK = Network(80_000.0, 40_000.0, 0.01, values=1000)

    def test_what_it_does_not_take_is_computing_and_the_barriers(self) -> None:
        """One worker, whose transfers nobody disturbs."""
        profile = calibrate(MeasuredTimes(1, 1.73, 1.23, 2), 0.0, "mine", self.NETWORK)
        assert profile.compute_seconds == pytest.approx(1.0, rel=1e-4)
        assert profile.barrier_seconds == pytest.approx(0.5, rel=1e-3)
        assert profile.worker_bandwidths_bytes_per_second == (80_000.0,)
        assert profile.server_bandwidth_bytes_per_second == 40_000.0
        assert profile.latency_seconds == 0.01
        assert profile.description == "mine"

    @pytest.mark.parametrize(
        ("workers", "compute", "barrier", "variation"), [(2, 1.0, 0.1, 0.2), (12, 2.0, 1.0, 0.5)]
    )
    def test_a_simulated_cluster_is_found_again(
        self, workers: int, compute: float, barrier: float, variation: float
    ) -> None:
        profile = ClusterProfile(
            compute_seconds=compute,
            compute_variation=variation,
            barrier_seconds=barrier,
            worker_bandwidths_bytes_per_second=(80_000.0,),
            server_bandwidth_bytes_per_second=40_000.0,
            latency_seconds=0.01,
        )
        rounds = 800
        bsp, asp = (
            sum(phase.seconds for phase in simulate_phases(profile, job, 100.0, 7)) / rounds
            for job in (
                TimedJob(workers, rounds * workers, (protocol, protocol), 1000)
                for protocol in ("bsp", "asp")
            )
        )
        found = calibrate(MeasuredTimes(workers, bsp, asp, 2), variation, network=self.NETWORK)
        assert found.compute_seconds == pytest.approx(compute, rel=0.05)
        assert found.barrier_seconds == pytest.approx(barrier, abs=0.05)

    def test_one_that_is_slower_than_what_was_measured_is_refused(self, said: Said) -> None:
        for measured in (MeasuredTimes(4, 5.0, 0.2, 2), MeasuredTimes(4, 1.0, 1.2, 2)):
            said.refusal("input-invalid", calibrate, measured, 0.0, network=self.NETWORK)


def asp_throughput(workers: int, compute_seconds: float, transfer_seconds: float) -> float:
    """Worker-steps per second in ASP if one transfer at a time has the whole link.

    Exact for a network of queues with two stations whose customers share it evenly, whatever the
    distribution of the times (Reiser and Lavenberg, Mean-Value Analysis of Closed Multichain
    Queuing Networks, 1980).
    """
    throughput = waiting = 0.0
    for customers in range(1, workers + 1):
        seconds = transfer_seconds * (1 + waiting)
        throughput = customers / (compute_seconds + 2 * seconds)
        waiting = throughput * seconds
    return throughput


class TestAspSeconds:
    """100 numbers are 400 bytes: 1 s alone on the server's link of 400 bytes a second."""

    @pytest.mark.parametrize("workers", [1, 7, 2000])
    def test_it_is_mean_value_analysis_where_the_servers_link_alone_limits(
        self, workers: int
    ) -> None:
        found = asp_seconds(workers, 3.0, Network(None, 400.0, 0.5, values=100))
        assert found == pytest.approx(workers / asp_throughput(workers, 4.5, 1.0))

    @given(
        workers=st.integers(1, 300),
        compute=st.floats(1e-9, 1e9),
        own=st.floats(1, 1e15),
        server=st.floats(1, 1e15),
        values=st.integers(0, 10**12),
    )
    def test_it_is_a_number_within_the_laws(
        self, workers: int, compute: float, own: float, server: float, values: int
    ) -> None:
        seconds = asp_seconds(workers, compute, Network(own, server, values=values))
        lone = compute + 2 * 4 * values / min(own, server)
        assert seconds >= 0.999999 * max(lone, workers * 4 * values / server)
        assert seconds <= 1.000001 * (compute + 2 * workers * 4 * values / min(own, server))


def test_from_bsp_and_asp_alone_follow_the_papers_speed_ups(authors: dict[int, Recording]) -> None:
    """Of Table I, in a quarter of the steps; those at 12.5 % and 6.25 % did 10 % and 5 % in BSP."""
    profile = load_profile("sync-switch-resnet32")
    job = TimedJob(8, 16_000, ("bsp", "asp"))
    bsp, *others = (
        sum(phase.seconds for phase in simulate_phases(profile, job, percent, 0))
        for percent in (100.0, 50.0, 10.0, 5.0)
    )
    speed_ups = [bsp / seconds for seconds in others]
    measured = [10603.8 / seconds for seconds in (5993.8, 2542.7, 2084.1)]
    assert speed_ups == pytest.approx(measured, rel=0.05)
    pace = measured_pace(8, [run.phases for run in authors[8].runs if not run.diverged])
    found = calibrate(pace, 0.1)
    assert found.compute_seconds == pytest.approx(profile.compute_seconds, rel=1e-3)
    assert found.barrier_seconds == pytest.approx(profile.barrier_seconds, rel=1e-3)
