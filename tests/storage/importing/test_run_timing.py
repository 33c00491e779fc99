from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.run_logs import Clock, LogRow
from syncswitch.storage.importing.run_timing import (
    Pause,
    Phases,
    clock_without,
    pauses,
    seconds_per_step,
    switch_seconds,
    worker_steps_per_step,
)
from tests.recordings import STARTED, log_rows, walls

BSP_FIRST = Phases(500, 8, 1, 16)

protocols = st.sampled_from([("bsp", "asp"), ("asp", "bsp"), ("bsp", "ssp"), ("dssp", "bsp")])
percents = st.floats(0, 100)
seconds = st.floats(0.01, 5.0)


def rows(steps: list[int], times: list[float]) -> list[LogRow]:
    return log_rows(steps, times, [0.5] * len(steps))


class TestWorkerSteps:
    def test_a_round_counts_once_per_worker(self) -> None:
        assert worker_steps_per_step("bsp", 8) == 8
        assert [worker_steps_per_step(name, 8) for name in ("asp", "ssp", "dssp")] == [1, 1, 1]

    def test_nobody_knows_how_an_unknown_protocol_counts(self) -> None:
        with pytest.raises(RecordingError, match=r"'bps' .* known: asp, bsp, dssp, ssp"):
            worker_steps_per_step("bps", 8)

    @pytest.mark.parametrize(
        ("percent", "pair", "last_step"),
        [
            (100.0, ("bsp", "asp"), 8000),
            (50.0, ("bsp", "asp"), 36000),
            (25.0, ("bsp", "asp"), 50000),
            (2.0, ("bsp", "asp"), 62880),
            (0.0, ("bsp", "asp"), 64000),
            (25.0, ("asp", "bsp"), 22000),
            (75.0, ("asp", "bsp"), 50000),
        ],
    )
    def test_jobs_of_the_paper_are_whole(
        self, percent: float, pair: tuple[str, str], last_step: int
    ) -> None:
        assert Phases.of(percent, 64000, 8, pair).worker_step(last_step) == 64000

    @given(percents, st.integers(1, 10**12), st.integers(1, 64), protocols, st.integers(0, 10**12))
    def test_each_step_counts_more_than_the_one_before(
        self, percent: float, W: int, workers: int, pair: tuple[str, str], step: int
    ) -> None:
        phases = Phases.of(percent, W, workers, pair)
        assert phases.worker_step(0) == 0
        gained = phases.worker_step(step + 1) - phases.worker_step(step)
        assert gained in {1, workers}

    @given(percents, st.integers(1000, 10**9), st.integers(2, 64), protocols)
    def test_the_switch_is_where_the_label_says_to_the_nearest_step(
        self, percent: float, W: int, workers: int, pair: tuple[str, str]
    ) -> None:
        phases = Phases.of(percent, W, workers, pair)
        if phases.switch_step is None:
            assert percent == 100.0
        else:
            at = phases.worker_step(phases.switch_step)
            assert abs(at - percent / 100 * W) <= phases.first_worker_steps / 2 * (1 + 1e-9)

    @given(st.integers(0, 100), st.integers(100, 10_000), st.integers(2, 64), protocols)
    def test_the_label_that_makes_a_run_whole_is_found(
        self, percent: int, hundredth_rounds: int, workers: int, pair: tuple[str, str]
    ) -> None:
        W = hundredth_rounds * 100 * workers
        truth = Phases.of(percent, W, workers, pair)
        switch_step = percent * W // 100 // truth.first_worker_steps
        rest = W - switch_step * truth.first_worker_steps
        last_step = switch_step + rest // truth.second_worker_steps
        label = Phases.of(37.0, W, workers, pair)
        assert label.whole_switch_step(last_step, W) == switch_step

    def test_no_label_makes_too_long_a_run_whole(self) -> None:
        assert BSP_FIRST.whole_switch_step(9000, 8000) is None
        assert Phases(5, 1, 1, 2).whole_switch_step(90, 100) is None


class TestPauses:
    @given(
        st.integers(60, 400),
        seconds,
        seconds,
        st.floats(0.5, 5000),
        st.integers(7, 60),
        st.integers(7, 60),
        st.booleans(),
    )
    def test_a_restart_at_the_switch_is_measured(
        self,
        switch_step: int,
        first: float,
        second: float,
        gap: float,
        first_interval: int,
        second_interval: int,
        is_bsp_first: bool,
    ) -> None:
        """Wherever between two rows the switch is, and however fast the protocols are."""
        phases = Phases(switch_step, *((2, 1) if is_bsp_first else (1, 2)), 4)
        late = range(switch_step + second_interval // 2 + 1, switch_step + 600, second_interval)
        steps = [*range(0, switch_step + 1, first_interval), *late]
        times = walls(
            steps,
            switch_step=switch_step,
            first_seconds=first,
            second_seconds=second,
            pauses=[(switch_step, gap)],
        )
        log = rows(steps, times)
        if None in phases.speeds(log):
            assert pauses(log, phases) == []
            return
        (pause,) = [pause for pause in pauses(log, phases) if pause.is_switch]
        assert pause.seconds == pytest.approx(gap, abs=1e-3)
        assert pause.began_at_seconds == pytest.approx(STARTED + switch_step * first, abs=1e-3)
        clock = clock_without(log, [pause])
        trained = switch_step * first + (steps[-1] - switch_step) * second
        assert clock.total_seconds == pytest.approx(trained, abs=1e-2)
        # An asynchronous phase may have ended a little later.
        slack = 0.0 if is_bsp_first else phases.slack_steps * second
        at_switch = switch_seconds(clock, phases, log)
        assert -1e-2 <= at_switch - switch_step * first <= slack + 1e-2

    def test_noise_of_a_tenth_costs_little(self) -> None:
        draw = random.Random(7)
        steps = [*range(1, 4001, 100), *range(4070, 36000, 120)]
        exact = walls(
            steps,
            switch_step=4000,
            first_seconds=1.27,
            second_seconds=0.024,
            pauses=[(4000, 150.0)],
        )
        noisy = [STARTED]
        for before, after in pairwise(exact):
            noise = draw.uniform(0.9, 1.1) if after - before < 140 else 1.0
            noisy.append(noisy[-1] + (after - before) * noise)
        log = rows(steps, noisy)
        found = pauses(log, Phases(4000, 8, 1, 16))
        assert [pause.is_switch for pause in found] == [True]
        trained = noisy[-1] - noisy[0] - 150.0
        assert clock_without(log, found).total_seconds == pytest.approx(trained, rel=0.01)

    def test_a_counter_that_runs_past_the_switch_hides_no_restart(self) -> None:
        phases = Phases(16000, 1, 8, 16)
        steps = [*range(0, 16000, 100), 16011, 16014, *range(16100, 22000, 100)]
        times = walls(
            steps,
            switch_step=16013,
            first_seconds=0.024,
            second_seconds=1.27,
            pauses=[(16013, 300.0)],
        )
        (pause,) = pauses(rows(steps, times), phases)
        assert pause.is_switch
        assert pause.seconds == pytest.approx(300.0, rel=0.02)

    def test_an_interruption_elsewhere_is_no_switch(self) -> None:
        steps = list(range(0, 8000, 100))
        log = rows(steps, walls(steps, pauses=[(5450, 2779.0)]))
        whole = Phases(None, 8, 1, 16)
        assert pauses(log, whole) == [Pause(STARTED + 5400, 2779.0, 5400, is_switch=False)]
        assert clock_without(log, pauses(log, whole)).total_seconds == pytest.approx(7900)

    @pytest.mark.parametrize("pause_seconds", [59.0, 350.0])
    def test_what_is_short_or_merely_slow_is_no_interruption(self, pause_seconds: float) -> None:
        steps = list(range(0, 8000, 100))
        log = rows(steps, walls(steps, pauses=[(5450, pause_seconds)]))
        assert pauses(log, Phases(None, 8, 1, 16)) == []

    @given(
        st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20)), max_size=4),
        st.lists(st.floats(0, 100), min_size=1, max_size=10),
    )
    def test_training_time_never_goes_back_nor_is_it_more_than_time(
        self, found: list[tuple[float, float]], times: list[float]
    ) -> None:
        # One after the other, as intervals of a log are.
        ends = [0.0]
        chain = []
        for start, length in found:
            chain.append(Pause(ends[-1] + start, length, 0, is_switch=False))
            ends.append(ends[-1] + start + length)
        times = sorted(times)
        clock = clock_without(rows(list(range(len(times))), times), chain)
        assert clock.seconds[0] == 0.0
        for (before, after), (t0, t1) in zip(pairwise(clock.seconds), pairwise(times), strict=True):
            assert -1e-9 <= after - before <= t1 - t0 + 1e-9


class TestSwitchSeconds:
    def test_an_interval_is_shared_as_the_speeds_say(self) -> None:
        steps = [*range(0, 501, 50), *range(550, 4501, 50)]
        log = rows(steps, walls(steps, switch_step=500, first_seconds=2.0, second_seconds=0.25))
        # Steps 400 to 500 take 200 s, 500 to 1700 take 300 s.
        assert switch_seconds(Clock([0, 400, 1700], [0.0, 800.0, 1300.0]), BSP_FIRST, log) == 1000.0

    def test_the_last_steps_in_flight_are_asynchronous(self) -> None:
        clock = Clock([0, 14000, 16013, 16263], [0.0, 340.0, 400.0, 700.0])
        assert switch_seconds(clock, Phases(16000, 1, 8, 16), []) == 400.0


class TestContradiction:
    def steps_and_log(self, switch_step: int, last_step: int) -> list[LogRow]:
        steps = list(range(0, last_step + 1, 20))
        return rows(
            steps, walls(steps, switch_step=switch_step, first_seconds=1.1, second_seconds=0.024)
        )

    def test_a_wrong_label_is_found_by_its_speed(self) -> None:
        """25 % BSP that is labelled as 15 %."""
        log = self.steps_and_log(2000, 50000)
        label = Phases.of(15.0, 64000, 8, ("bsp", "asp"))
        whole = label.whole_switch_step(50000, 64000)
        assert whole == 2000
        assert label.is_contradicted(log, whole)

    def test_a_run_that_stopped_is_not(self) -> None:
        """15 % BSP, stopped at the step at which one with 25 % ends."""
        log = self.steps_and_log(1200, 50000)
        assert not Phases.of(15.0, 64000, 8, ("bsp", "asp")).is_contradicted(log, 2000)

    def test_equal_speeds_tell_nothing(self) -> None:
        steps = list(range(0, 50001, 20))
        log = rows(steps, walls(steps))
        assert not Phases.of(15.0, 64000, 8, ("bsp", "asp")).is_contradicted(log, 2000)

    def test_asynchronous_first(self) -> None:
        """25 % ASP, labelled as 50 % and cut short, so that it seems whole with 25 %."""
        label = Phases.of(50.0, 64000, 8, ("asp", "bsp"))
        for truth, is_wrong in ((16000, True), (32000, False)):
            steps = list(range(0, 34001, 20))
            log = rows(
                steps, walls(steps, switch_step=truth, first_seconds=0.024, second_seconds=1.1)
            )
            assert label.is_contradicted(log, 16000) is is_wrong


def test_the_median_ignores_what_is_outside() -> None:
    log = rows([0, 10, 20, 30, 40], [0.0, 10.0, 20.0, 60.0, 61.0])
    assert seconds_per_step(log, 0, 20) == 1.0
    assert seconds_per_step(log, 0, None) == 1.0
    assert seconds_per_step(log, 25, 35) is None
