from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
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
    segments,
    switch_points,
    switch_worker_step,
)
from tests.identities import GENERATED
from tests.records import changed


def trial(
    W: int,
    workers: int,
    switch_percent: float,
    checkpoints: tuple[float, ...] = (),
    protocols: tuple[str, str] = ("bsp", "asp"),
) -> TrialSpec:
    first, second = protocols
    identity = changed(
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
pairs = st.sampled_from([("bsp", "asp"), ("asp", "bsp")])
checkpoint_lists = st.lists(percents, max_size=3).map(tuple)


@given(jobs, percents, percents)
def test_a_percent_is_within_half_a_round_but_at_least_one_and_never_beyond_the_job(
    job: tuple[int, int], percent: float, other: float
) -> None:
    W, n = job
    steps = percent_to_worker_steps(percent, W, n)
    assert 0 <= steps <= W
    is_first_round = percent > 0 and steps == min(n, W)
    assert is_first_round or abs(steps - percent / 100 * W) <= n / 2 + 1e-6
    assert (steps > 0) == (percent > 0)
    assert steps == W or steps % n == 0
    assert other < percent or steps <= percent_to_worker_steps(other, W, n), "monotonic"


@pytest.mark.parametrize(
    ("spec", "start", "expected"),
    [
        (trial(1000, 4, 25), 0, [("bsp", 252), ("asp", 1000)]),
        (trial(1001, 4, 100), 0, [("bsp", 1001)]),
        (trial(1001, 4, 0), 0, [("asp", 1001)]),
        # A checkpoint at the switch is written before it.
        (trial(1000, 4, 50, (50.0,)), 0, [("bsp", 500, 50.0), ("asp", 1000)]),
        (
            trial(1000, 4, 50, (20.0, 75.0)),
            0,
            [("bsp", 200, 20.0), ("bsp", 500), ("asp", 750, 75.0), ("asp", 1000)],
        ),
        # A fork starts where its checkpoint stopped.
        (trial(1000, 4, 50, (20.0,)), 300, [("bsp", 500), ("asp", 1000)]),
        (trial(1000, 4, 50), 500, [("asp", 1000)]),
        (trial(1000, 4, 50), 1000, []),
        # 94 % is rounded up to 12 rounds of 8, 95 % is rounded to 95 worker-steps.
        (trial(100, 8, 94, (95.0,)), 0, [("bsp", 96, 95.0), ("asp", 100)]),
        # Within a second protocol of rounds a checkpoint ends a round.
        (
            trial(100, 4, 25, (50.0,), ("asp", "bsp")),
            0,
            [("asp", 25), ("bsp", 49, 50.0), ("bsp", 100)],
        ),
        # Somebody asked for both and will look for each under its percent.
        (trial(40, 4, 100, (50.0, 51.0)), 0, [("bsp", 20, 50.0, 51.0), ("bsp", 40)]),
        # Names that only a command knows have no rounds.
        (trial(100, 8, 13.0, protocols=("ddp", "local-sgd")), 0, [("ddp", 13), ("local-sgd", 100)]),
    ],
)
def test_a_job_is_cut_at_its_switch_and_its_checkpoints(
    spec: TrialSpec, start: int, expected: list[tuple[str, int]]
) -> None:
    found = segments(spec, start)
    assert [(s.protocol, s.end_worker_step, *s.checkpoint_percents) for s in found] == expected


@given(jobs, percents, checkpoint_lists, pairs, st.floats(0, 1))
def test_segments_cover_the_job_in_order_with_one_switch(
    job: tuple[int, int],
    switch: float,
    checkpoints: tuple[float, ...],
    protocols: tuple[str, str],
    start_fraction: float,
) -> None:
    W, n = job
    position = int(start_fraction * W)
    cut = segments(trial(W, n, switch, checkpoints, protocols), position)
    for segment in cut:
        assert segment.start_worker_step == position
        assert segment.end_worker_step > position
        position = segment.end_worker_step
    assert position == W
    names = [segment.protocol for segment in cut]
    assert names == sorted(names, key=protocols.index)


def ends_of_rounds(cut: list[Segment], workers: int) -> set[int]:
    """Where updates of aggregating segments end: each segment starts a new round."""
    ends: set[int] = set()
    for segment in cut:
        if segment.protocol == "bsp":
            start, end = segment.start_worker_step, segment.end_worker_step
            ends.update(range(start + workers, end, workers), [end])
    return ends


@given(jobs, percents, checkpoint_lists, pairs)
def test_a_checkpoint_does_not_change_the_training(
    job: tuple[int, int], switch: float, checkpoints: tuple[float, ...], protocols: tuple[str, str]
) -> None:
    """A round cut short by a checkpoint would be an update with another batch size."""
    W, n = job
    plain = segments(trial(W, n, switch, (), protocols))
    cut = segments(trial(W, n, switch, checkpoints, protocols))
    assert ends_of_rounds(cut, n) == ends_of_rounds(plain, n)


@given(jobs, percents, st.sets(percents, max_size=6))
@example((100, 8), 50.0, {50.1})
def test_each_switch_after_a_failure_is_later_until_there_is_none(
    job: tuple[int, int], percent: float, others: set[float]
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


def test_a_decay_starts_with_its_worker_step() -> None:
    boundaries = ((500, 0.1), (750, 0.01))
    factors = {0: 1.0, 499: 1.0, 500: 0.1, 749: 0.1, 750: 0.01, 10**9: 0.01}
    assert {step: decay_factor(boundaries, step) for step in factors} == factors
    assert decay_factor((), 10) == 1.0
    assert (last_boundary(()), last_boundary(boundaries)) == (0, 750)


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
