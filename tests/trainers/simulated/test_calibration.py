from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.trainers.replay.recording import Recording
from syncswitch.trainers.simulated.calibration import (
    Measured,
    calibrate,
    measured_pace,
    slowest_of,
)
from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
from syncswitch.trainers.simulated.times import TimedJob, simulate_phases


def phase(protocol: str, start: int, end: int, seconds: float) -> PhaseRecord:
    return PhaseRecord(protocol, start, end, seconds, None, None)


BSP = (phase("bsp", 0, 800, 200.0),)
ASP = (phase("asp", 0, 800, 50.0),)
SWITCHED = (phase("bsp", 0, 400, 120.0), phase("asp", 400, 800, 20.0))


class TestMeasuredPace:
    def test_runs_with_one_protocol_alone_come_first(self) -> None:
        assert measured_pace(8, [BSP, SWITCHED, ASP]) == Measured(8, 2.0, 0.5, 2)

    def test_phases_do_where_there_are_no_such_runs(self) -> None:
        assert measured_pace(8, [BSP, SWITCHED]) == Measured(8, pytest.approx(320 / 150), 0.4, 2)

    @pytest.mark.parametrize(("runs", "missing"), [([BSP], "ASP"), ([ASP], "BSP"), ([], "BSP")])
    def test_without_one_of_the_two_there_is_none(
        self, runs: list[tuple[PhaseRecord, ...]], missing: str
    ) -> None:
        with pytest.raises(UserError, match=f"no measured time with {missing}") as error:
            measured_pace(8, runs)
        assert "\n" not in str(error.value)


class TestSlowestOf:
    def test_known_answers(self) -> None:
        assert slowest_of(5, 0.0) == pytest.approx(1.0)
        assert slowest_of(1, 0.7) == pytest.approx(1.0, abs=1e-6)

    @given(st.integers(2, 64), st.floats(0.01, 2.0))
    def test_it_is_the_mean_of_the_longest_of_drawn_times(
        self, workers: int, variation: float
    ) -> None:
        variance = math.log1p(variation**2)
        times = np.random.default_rng(0).lognormal(
            -variance / 2, math.sqrt(variance), (4000, workers)
        )
        longest = times.max(axis=1)
        error = 5 * longest.std() / math.sqrt(len(longest))
        assert slowest_of(workers, variation) == pytest.approx(longest.mean(), abs=error)


@given(
    workers=st.integers(1, 12),
    asp=st.floats(0.01, 10.0),
    barrier=st.floats(0.0, 5.0),
    variation=st.floats(0.0, 0.5),
)
def test_a_simulated_job_takes_as_long_as_was_measured(
    workers: int, asp: float, barrier: float, variation: float
) -> None:
    slowest = asp * slowest_of(workers, variation)
    profile = calibrate(Measured(workers, slowest + barrier, asp, 2), variation)
    rounds = 400
    job = TimedJob(workers, rounds * workers, ("bsp", "asp"))
    for percent, expected in ((100.0, slowest + barrier), (0.0, asp)):
        seconds = sum(one.seconds for one in simulate_phases(profile, job, percent, 0))
        assert seconds / rounds == pytest.approx(expected, rel=0.1)


def test_bsp_faster_than_its_slowest_worker_is_refused() -> None:
    with pytest.raises(UserError, match="smaller --variation"):
        calibrate(Measured(8, 1.0, 1.0, 2), 0.5)


class TestThePapersFirstSetup:
    """Speed-ups of Table I, from the BSP and ASP times of the authors' logs alone."""

    WORKER_STEPS = 64_000

    def speed_ups(self, profile: ClusterProfile, percents: list[float]) -> list[float]:
        job = TimedJob(8, self.WORKER_STEPS, ("bsp", "asp"))
        seconds = [
            sum(phase.seconds for phase in simulate_phases(profile, job, percent, 0))
            for percent in [100.0, *percents]
        ]
        return [seconds[0] / one for one in seconds[1:]]

    # The runs that the paper calls 12.5 % and 6.25 % did 10 % and 5 % in BSP.
    MEASURED = ((50.0, 10603.8 / 5993.8), (10.0, 10603.8 / 2542.7), (5.0, 10603.8 / 2084.1))

    def test_the_profile_that_comes_along(self) -> None:
        profile = load_profile("sync-switch-resnet32")
        found = self.speed_ups(profile, [percent for percent, _ in self.MEASURED])
        for speed_up, (_, measured) in zip(found, self.MEASURED, strict=True):
            assert speed_up == pytest.approx(measured, rel=0.05)

    def test_it_is_what_calibrating_on_the_logs_gives(self, authors: dict[int, Recording]) -> None:
        measured = measured_pace(8, [run.phases for run in authors[8].runs if not run.diverged])
        found = calibrate(measured, 0.1)
        known = load_profile("sync-switch-resnet32")
        assert found.compute_seconds == pytest.approx(known.compute_seconds, rel=1e-3)
        assert found.barrier_seconds == pytest.approx(known.barrier_seconds, rel=1e-3)
