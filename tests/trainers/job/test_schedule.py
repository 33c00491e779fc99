from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import (
    Segment,
    after_failures,
    decay_factor,
    keeps_switch,
    last_boundary,
    next_segment,
    percent_to_worker_steps,
    round_worker_steps,
    segments,
    switch_points,
    switch_worker_step,
)
from tests.identities import GENERATED


def trial(
    W: int,
    workers: int,
    switch_percent: float,
    checkpoints: tuple[float, ...] = (),
    protocols: tuple[str, str] = ("bsp", "asp"),
) -> TrialSpec:
    first, second = protocols
    identity = replace(
        GENERATED,
        total_worker_steps=W,
        workers=workers,
        first_protocol=first,
        second_protocol=second,
    )
    return TrialSpec(identity, switch_percent, seed=0, checkpoint_percents=checkpoints)


jobs = st.tuples(st.integers(1, 5000), st.integers(1, 16))
percents = (
    st.floats(0, 100) | st.integers(0, 100).map(float) | st.integers(0, 5).map(lambda k: 100 / 2**k)
)


def ends_of_rounds(cut: list[Segment], workers: int) -> set[int]:
    """Where updates of aggregating segments end: each segment starts a new round."""
    ends: set[int] = set()
    for segment in cut:
        if segment.protocol == "bsp":
            ends.update(
                range(segment.start_worker_step + workers, segment.end_worker_step, workers)
            )
            ends.add(segment.end_worker_step)
    return ends


class TestPercentToWorkerSteps:
    @pytest.mark.parametrize(
        ("percent", "W", "round_size", "steps"),
        [
            (0, 1000, 4, 0),
            (100, 1001, 4, 1001),
            (50, 1000, 4, 500),
            (6.25, 64000, 8, 4000),
            (3.125, 64000, 8, 2000),
            (50, 1001, 4, 500),
            (50, 7, 4, 4),
            (10, 7, 4, 4),
            (3.125, 4000, 256, 256),
            (12.5, 100, 1, 13),
        ],
    )
    def test_known_answers(self, percent: float, W: int, round_size: int, steps: int) -> None:
        assert percent_to_worker_steps(percent, W, round_size) == steps

    @given(jobs, percents)
    def test_is_within_half_a_round_but_at_least_one_and_never_beyond_the_job(
        self, job: tuple[int, int], percent: float
    ) -> None:
        W, n = job
        steps = percent_to_worker_steps(percent, W, n)
        assert 0 <= steps <= W
        is_first_round = percent > 0 and steps == min(n, W)
        assert is_first_round or abs(steps - percent / 100 * W) <= n / 2 + 1e-6
        assert (steps > 0) == (percent > 0)
        assert steps == W or steps % n == 0

    @given(jobs, percents, percents)
    def test_is_monotonic(self, job: tuple[int, int], one: float, other: float) -> None:
        low, high = sorted((one, other))
        assert percent_to_worker_steps(low, *job) <= percent_to_worker_steps(high, *job)


class TestSegments:
    def test_a_switch_cuts_the_job_in_two(self) -> None:
        assert segments(trial(1000, 4, 25)) == [
            Segment("bsp", 0, 250 + 2),
            Segment("asp", 252, 1000),
        ]

    @pytest.mark.parametrize(("percent", "protocol"), [(100, "bsp"), (0, "asp")])
    def test_at_the_ends_there_is_one_protocol(self, percent: float, protocol: str) -> None:
        assert segments(trial(1001, 4, percent)) == [Segment(protocol, 0, 1001)]

    def test_a_checkpoint_at_the_switch_is_written_before_it(self) -> None:
        assert segments(trial(1000, 4, 50, (50.0,))) == [
            Segment("bsp", 0, 500, (50.0,)),
            Segment("asp", 500, 1000),
        ]

    def test_checkpoints_cut_within_a_protocol(self) -> None:
        assert segments(trial(1000, 4, 50, (20.0, 75.0))) == [
            Segment("bsp", 0, 200, (20.0,)),
            Segment("bsp", 200, 500),
            Segment("asp", 500, 750, (75.0,)),
            Segment("asp", 750, 1000),
        ]

    def test_a_fork_starts_where_its_checkpoint_stopped(self) -> None:
        assert segments(trial(1000, 4, 50, (20.0,)), 300) == [
            Segment("bsp", 300, 500),
            Segment("asp", 500, 1000),
        ]
        assert segments(trial(1000, 4, 50), 500) == [Segment("asp", 500, 1000)]
        assert segments(trial(1000, 4, 50), 1000) == []

    @given(
        jobs,
        percents,
        st.lists(percents, max_size=3).map(tuple),
        st.sampled_from([("bsp", "asp"), ("asp", "bsp")]),
        st.floats(0, 1),
    )
    def test_segments_cover_the_job_in_order_with_one_switch(
        self,
        job: tuple[int, int],
        switch: float,
        checkpoints: tuple[float, ...],
        protocols: tuple[str, str],
        start_fraction: float,
    ) -> None:
        W, n = job
        start = int(start_fraction * W)
        cut = segments(trial(W, n, switch, checkpoints, protocols), start)
        position = start
        for segment in cut:
            assert segment.start_worker_step == position
            assert segment.end_worker_step > position
            position = segment.end_worker_step
        assert position == W
        names = [segment.protocol for segment in cut]
        assert names == sorted(names, key=protocols.index)

    @given(
        jobs,
        percents,
        st.lists(percents, min_size=1, max_size=3).map(tuple),
        st.sampled_from([("bsp", "asp"), ("asp", "bsp")]),
    )
    def test_a_checkpoint_does_not_change_the_training(
        self,
        job: tuple[int, int],
        switch: float,
        checkpoints: tuple[float, ...],
        protocols: tuple[str, str],
    ) -> None:
        """A round cut short by a checkpoint would be an update with another batch size."""
        W, n = job
        plain = segments(trial(W, n, switch, (), protocols))
        cut = segments(trial(W, n, switch, checkpoints, protocols))
        assert ends_of_rounds(cut, n) == ends_of_rounds(plain, n)

    def test_a_checkpoint_just_after_the_switch_does_not_come_before_it(self) -> None:
        """94 % is rounded up to 12 rounds of 8, 95 % is rounded to 95 worker-steps."""
        assert segments(trial(100, 8, 94, (95.0,)))[0].end_worker_step == 96

    def test_a_checkpoint_within_a_second_protocol_of_rounds_ends_a_round(self) -> None:
        cut = segments(trial(100, 4, 25, (50.0,), ("asp", "bsp")))
        checkpoint = next(segment for segment in cut if 50.0 in segment.checkpoint_percents)
        assert checkpoint.start_worker_step == 25
        assert (checkpoint.end_worker_step - 25) % 4 == 0

    def test_of_two_checkpoints_at_one_worker_step_none_is_forgotten(self) -> None:
        """Somebody asked for each of them and will look for it under its percent."""
        cut = segments(trial(40, 4, 100, (50.0, 51.0)))
        assert {percent for s in cut for percent in s.checkpoint_percents} == {50.0, 51.0}


class TestSwitchesAfterAFailure:
    @given(jobs, percents, st.sets(percents, max_size=6))
    def test_each_is_later_until_there_is_none(
        self, job: tuple[int, int], percent: float, others: set[float]
    ) -> None:
        later = tuple(sorted(one for one in others if percent < one < 100))
        spec = replace(trial(*job, percent), retry_percents=later)
        points = switch_points(spec)
        assert (points[0], points[-1]) == (percent, 100.0)
        assert set(points[1:-1]) <= set(later)
        plans = [after_failures(spec, failures) for failures in range(len(points))]
        steps = [switch_worker_step(plan) for plan in plans]
        assert steps == sorted(set(steps)) or steps[0] == steps[-1] == job[0]
        # What is left out would have been one of these.
        known = {switch_worker_step(trial(*job, one)) for one in (percent, *later, 100.0)}
        assert set(steps) == known
        # From a switch that failed it is the first protocol up to the next one.
        for start, plan, switch in zip(steps, plans[1:], steps[1:], strict=False):
            assert segments(plan, start)[:1] == [Segment("bsp", start, switch)][: switch > start]


class TestLearningRate:
    BOUNDARIES = ((500, 0.1), (750, 0.01))

    @pytest.mark.parametrize(
        ("worker_step", "factor"),
        [(0, 1.0), (499, 1.0), (500, 0.1), (749, 0.1), (750, 0.01), (10**9, 0.01)],
    )
    def test_a_decay_starts_with_its_worker_step(self, worker_step: int, factor: float) -> None:
        assert decay_factor(self.BOUNDARIES, worker_step) == factor

    def test_without_boundaries_nothing_decays(self) -> None:
        assert decay_factor((), 10) == 1.0
        assert (last_boundary(()), last_boundary(self.BOUNDARIES)) == (0, 750)


def test_names_that_only_a_command_knows_have_no_rounds() -> None:
    cut = segments(trial(100, 8, 13.0, protocols=("ddp", "local-sgd")))
    assert [(s.protocol, s.end_worker_step) for s in cut] == [("ddp", 13), ("local-sgd", 100)]


def test_the_state_at_a_guarded_switch_is_a_checkpoint_wherever_detours_have_put_it() -> None:
    guarded = replace(
        trial(1000, 4, 50, (10.0, 80.0)), checkpoint_directory=Path("here"), band=Band(0.9, 0.01)
    )
    assert [(one.end_worker_step, one.checkpoint_percents) for one in segments(guarded)] == [
        (100, (10.0,)),
        (500, (50,)),
        (800, (80.0,)),
        (1000, ()),
    ]
    # A detour of 100 worker-steps puts it off.
    late = next_segment(guarded, 500, 400)
    assert late is not None
    assert (late.end_worker_step, late.checkpoint_percents) == (600, (50,))
    # With others at the same worker-step it gives the file its name.
    both = replace(guarded, checkpoint_percents=(49.9, 50, 80.0))
    assert segments(both)[0].checkpoint_percents == (49.9, 50)
    others = [
        replace(guarded, band=None),
        replace(guarded, checkpoint_directory=None),
        replace(guarded, checkpoint_percents=()),
        replace(guarded, switch_percent=100.0),
    ]
    for other in others:
        assert not keeps_switch(other)
        written = [one.checkpoint_percents for one in segments(other) if one.checkpoint_percents]
        assert written == [(percent,) for percent in other.checkpoint_percents]


def test_packages_are_asked_once_for_a_protocol_that_only_a_command_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = trial(1000, 4, 50.3, protocols=("only-a-command-knows-it", "asp"))
    assert switch_worker_step(spec) == 503
    monkeypatch.setattr("syncswitch.trainers.job.schedule.choose_protocol", None)
    assert switch_worker_step(spec) == 503
    assert (round_worker_steps("only-a-command-knows-it", 4), len(segments(spec))) == (1, 2)
