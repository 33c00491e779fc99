from __future__ import annotations

import pytest

from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
from syncswitch.trainers.simulated.timeline import TimedJob, simulate_phases

STEADY = ClusterProfile(compute_seconds=1.0)


def seconds(
    profile: ClusterProfile, job: TimedJob, switch_percent: float = 100.0, seed: int = 0
) -> float:
    return sum(phase.seconds for phase in simulate_phases(profile, job, switch_percent, seed))


@pytest.mark.parametrize(("switch_percent", "expected"), [(100.0, 30.0), (50.0, 20.5), (0.0, 10.0)])
def test_a_barrier_is_paid_in_the_first_protocol_alone_and_a_switch_once(
    switch_percent: float, expected: float
) -> None:
    profile = ClusterProfile(compute_seconds=1.0, barrier_seconds=2.0, switch_seconds=0.5)
    assert seconds(profile, TimedJob(4, 40, ("bsp", "asp")), switch_percent) == pytest.approx(
        expected
    )


def test_in_asp_a_gradient_is_as_stale_as_there_are_others() -> None:
    (phase,) = simulate_phases(STEADY, TimedJob(8, 4000, ("bsp", "asp")), 0.0, 0)
    assert phase.mean_staleness == pytest.approx(7, abs=0.05)
    assert phase.max_staleness == 7


def test_replicas_have_no_staleness() -> None:
    (phase,) = simulate_phases(STEADY, TimedJob(4, 40, ("ds-sync:2", "asp")), 100.0, 0)
    assert (phase.mean_staleness, phase.max_staleness) == (None, None)


def test_a_model_of_known_size_takes_its_time() -> None:
    """400 bytes, and all links carry 400 a second."""
    profile = ClusterProfile(
        compute_seconds=1.0,
        worker_bandwidths_bytes_per_second=(400.0,),
        server_bandwidth_bytes_per_second=400.0,
    )
    # One worker: a pull, the computing, a push.
    assert seconds(profile, TimedJob(1, 5, ("bsp", "asp"), 100)) == pytest.approx(5 * 3.0)
    # Replicas of 4 in one group: 2 * 3 / 4 of the model after each step.
    averaged = TimedJob(4, 8, ("local-sgd:1", "asp"), 100)
    assert seconds(profile, averaged) == pytest.approx(2 * (1.0 + 1.5))


def test_a_parameter_server_that_is_busy_slows_asp_down() -> None:
    """16 pushes of 0.25 s cannot take less than 4 s, however fast the workers are."""
    profile = ClusterProfile(compute_seconds=0.1, apply_seconds=0.25)
    job = TimedJob(16, 1600, ("bsp", "asp"))
    assert seconds(profile, job, 0.0) == pytest.approx(1600 * 0.25, rel=0.01)


class TestTheOrderOfTheDsspPaper:
    """Where half of the workers are slow, DSSP is faster than SSP and BSP (arXiv 1908.11848)."""

    @pytest.mark.parametrize("workers", [2, 4])
    def test_on_mixed_workers(self, workers: int) -> None:
        profile = load_profile("heterogeneous")
        order = ["bsp", "ssp:3", "dssp:3-15:unbounded", "asp"]
        times = [seconds(profile, TimedJob(workers, 4000, (name, name))) for name in order]
        assert times == sorted(times, reverse=True)

    def test_without_variation_unbounded_dssp_is_as_fast_as_asp(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, relative_speeds=(1.0, 1 / 1.9))
        bsp, ssp, dssp, asp = (
            seconds(profile, TimedJob(2, 4000, (name, name)))
            for name in ("bsp", "ssp:3", "dssp:3-15:unbounded", "asp")
        )
        assert asp == pytest.approx(dssp, rel=0.01)
        assert dssp < 0.75 * ssp < 0.75 * bsp
