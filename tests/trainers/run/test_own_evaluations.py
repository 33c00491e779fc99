"""What a run sees in its own tests, without a target to compare them with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.guard import shares, watched
from benchmarks.recorded_jobs import JOBS, OWN_MOMENTUM_JOBS, guarded_jobs
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.run.guard import AbandonedEvaluations, FailureDetector
from syncswitch.trainers.run.own_evaluations import (
    Job,
    fallen,
    is_refuted,
    late,
    standing_still,
    still_to_rise,
)
from tests.wording import Said

W = 1000
SWITCH = 200
LOSS = Metric("loss", "min", lowest=0.0, highest=None)
JOB = Job(W, Metric(), 0.01, is_alike=True, decays=())


def played(accuracies: Sequence[float], interval: int = 50) -> list[Evaluation]:
    return [
        Evaluation((number + 1) * interval, 0.0, accuracy, 1.0)
        for number, accuracy in enumerate(accuracies)
    ]


def first(sign: FailureDetector, tests: Sequence[Evaluation]) -> int | None:
    """The worker-step of the first alarm."""
    for number in range(1, len(tests) + 1):
        if sign.alarm(tests[:number], SWITCH) is not None:
            return tests[number - 1].worker_step
    return None


def guard(
    threshold: float = 0.01, metric: Metric = JOB.metric, is_alike: bool = True
) -> FailureDetector:
    return FailureDetector(Band(None, threshold), W, metric, 0 if is_alike else None)


# Up to the switch at 200 it rises from 0.45 to 0.63.
RISEN = [0.43 + 0.02 * number for number in range(1, 11)]


@pytest.mark.parametrize(
    ("after", "is_alike", "noticed_at"),
    [
        ([0.41] * 40, True, 300),
        ([0.41] * 40, False, 400),
        # With one momentum for all workers, a run may take a while to recover.
        ([0.41] * 7 + [0.65] * 33, True, 300),
        ([0.41] * 7 + [0.65] * 33, False, None),
        ([0.41] * 2 + [0.65] * 38, True, None),
        ([0.64] * 40, True, None),
        ([0.6] * 40, True, None),
        # It may fall later as well; 0.8 is the mean of three tests from 260 on.
        ([0.8] * 20 + [0.41] * 20, True, 700),
    ],
)
def test_a_run_that_stays_below_what_it_had_has_failed(
    after: list[float], is_alike: bool, noticed_at: int | None
) -> None:
    tests = played([*RISEN, *after], 20)
    for number in range(1, len(tests) + 1):
        if fallen(tests[:number], SWITCH, replace(JOB, is_alike=is_alike)) is not None:
            assert tests[number - 1].worker_step == noticed_at
            return
    assert noticed_at is None


def test_a_fall_has_figures(said: Said) -> None:
    tests = played([*RISEN, *[0.41] * 7], 20)
    said(fallen(tests, SWITCH, JOB))
    losses = [replace(one, accuracy=one.accuracy - 1) for one in tests]
    said(fallen(losses, SWITCH, replace(JOB, metric=LOSS)))


def test_what_is_no_fall_for_tests_that_scatter_is_left_alone() -> None:
    random = np.random.default_rng(1)
    rough = [0.6 + random.normal(0, 0.03) for _ in range(10)]
    below = [0.5 + random.normal(0, 0.03) for _ in range(10)]
    assert fallen(played([*rough, *below], 20), SWITCH, JOB) is None
    smooth = [*[0.6] * 10, *[0.5] * 10]
    assert fallen(played(smooth, 20), SWITCH, JOB) is not None


@pytest.mark.parametrize(("low", "is_alarm"), [(0.8, False), (0.55, True)])
def test_without_a_threshold_what_it_has_risen_says_what_a_fall_is(
    low: float, is_alarm: bool
) -> None:
    risen = [0.05 * number for number in range(1, 19)]
    tests = played([*risen, *[0.9] * 4, *[low] * 10], 20)
    assert (fallen(tests, SWITCH, replace(JOB, threshold=0.0)) is not None) is is_alarm


def test_what_rises_up_to_the_switch_and_then_no_more_stands_still(said: Said) -> None:
    before = [0.1 + 0.03 * number for number in range(8)] + [0.37, 0.43]
    tests = played([*before, *[0.42] * 13], 20)
    said(standing_still(tests, SWITCH, JOB))
    assert standing_still(tests[:22], SWITCH, JOB) is None, "for less than a quarter of the job"
    assert standing_still(played([*before, *[0.45] * 13], 20), SWITCH, JOB) is None
    settled = [*before[:8], 0.41, 0.42, *[0.41] * 13]
    assert standing_still(played(settled, 20), SWITCH, JOB) is None
    assert standing_still(tests, 20, JOB) is None, "one test does not rise"


@pytest.mark.parametrize(
    ("before", "is_alarm", "is_alarm_alike"),
    [
        ([0.31, 0.37, 0.43], True, True),
        ([0.10, 0.31, 0.43], True, True),  # which will rise by 0.16, as its rises shrink
        ([0.05, 0.37, 0.43], True, False),  # which will rise by 0.014
        ([0.37, 0.43], True, False),  # nobody knows
    ],
)
def test_what_has_nearly_settled_at_the_switch_does_not_stand_still(
    before: list[float], is_alarm: bool, is_alarm_alike: bool
) -> None:
    tests = played([*before, *[0.42] * 13], 20)
    for is_alike, expected in ((False, is_alarm), (True, is_alarm_alike)):
        found = standing_still(tests, 20 * len(before), replace(JOB, is_alike=is_alike))
        assert (found is not None) is expected


def test_rises_that_shrink_have_a_limit() -> None:
    assert still_to_rise([0.0, 0.4, 0.6]) == pytest.approx(0.2)
    assert still_to_rise([0.0, 0.2, 0.4]) == math.inf
    assert still_to_rise([0.0, 0.4, 0.4]) == 0.0
    assert still_to_rise([0.0, 0.4]) == 0.0


# It halves what it lacks every 100 worker-steps, or gets on at a pace that never will.
SOON = [1 - 0.8 * 0.5 ** (step / 100) for step in range(25, W + 1, 25)]
LATE = [0.2 + 0.6 * step / W for step in range(25, W + 1, 25)]
NEAR = [0.84 + 0.16 * step / W for step in range(25, W + 1, 25)]
UNLIKE = replace(JOB, is_alike=False)


def test_what_still_rises_at_half_and_will_lack_much_is_late(said: Said) -> None:
    tests = played(LATE[:19], 25)
    assert late(tests[:18], UNLIKE) is None
    # Its last four tests have 0.4625 on average. A quarter of its pace adds 0.0788 to the end.
    said(late(tests, UNLIKE))
    assert late(played(SOON[:19], 25), UNLIKE) is None, "it will get near the best possible"
    flat = [min(one, 0.4) for one in LATE]
    assert late(played(flat[:24], 25), UNLIKE) is None, "it has learnt what it can"
    for other in ({"threshold": 0.0}, {"decays": None}, {"metric": Metric("score", highest=None)}):
        assert late(tests, replace(UNLIKE, **other)) is None


def test_what_is_far_from_the_best_possible_may_be_a_job_that_stays_there() -> None:
    """As it would with the first protocol, which runs with a momentum for each worker follow."""
    assert late(played(LATE[:19], 25), JOB) is None
    # Its last four tests have 0.91 on average, so 0.021 more leaves 6.9 thresholds.
    assert late(played(NEAR[:19], 25), JOB) is not None
    assert late(played([one - 0.02 for one in NEAR[:19]], 25), JOB) is None
    # An error whose best value nobody comes near to.
    error = Metric("mae", "min", lowest=0.0, highest=None)
    assert late(played([one - 2.8 for one in LATE[:19]], 25), replace(JOB, metric=error)) is None


@pytest.mark.parametrize(
    ("decays", "noticed_at"),
    [((), 475), ((100,), 475), ((100, 400), 600), ((600,), 800), ((100, 440, 900), 625)],
)
def test_nobody_knows_what_a_decay_brings(decays: tuple[int, ...], noticed_at: int) -> None:
    tests, job = played(LATE, 25), replace(UNLIKE, decays=decays)
    found = (n for n in range(1, len(tests)) if late(tests[:n], job) is not None)
    assert tests[next(found) - 1].worker_step == noticed_at


@pytest.mark.parametrize("deviation", [0.01, 0.03])
def test_what_scatters_by_more_than_it_rises_is_left_alone(deviation: float) -> None:
    random = np.random.default_rng(3)
    noisy = [
        [0.5 + 0.01 * step / W + random.normal(0, deviation) for step in range(25, W + 1, 25)]
        for _ in range(100)
    ]
    alarms = [first(guard(), played(one, 25)) is not None for one in noisy]
    assert np.mean(alarms) <= 0.1


finals = st.floats(0.3, 0.99)


@given(finals, st.floats(20, 100), st.sampled_from([20, 25, 50]), st.booleans())
def test_a_curve_that_levels_off_in_time_is_left_alone(
    final: float, pace: float, interval: int, is_alike: bool
) -> None:
    steps = range(interval, W + 1, interval)
    tests = played([final * (1 - math.exp(-step / pace)) for step in steps], interval)
    assert first(guard(is_alike=is_alike), tests) is None


@given(st.lists(st.floats(0, 1), min_size=4, max_size=40), st.booleans())
def test_less_or_more_is_better_alike(accuracies: list[float], is_alike: bool) -> None:
    """Of a metric with the same range whose values are what the other lacks."""
    error = Metric("error", "min", lowest=0.0, highest=1.0)
    tests = played(accuracies, 25)
    mirrored = [replace(one, accuracy=one.accuracy - 1) for one in tests]
    more, less = guard(is_alike=is_alike), guard(metric=error, is_alike=is_alike)
    found = [
        [watching.alarm(kind[:n], SWITCH) is not None for n in range(1, len(tests) + 1)]
        for watching, kind in ((more, tests), (less, mirrored))
    ]
    # Sums may differ by rounding, so that few tests of a made-up curve are judged differently.
    assert sum(a != b for a, b in zip(*found, strict=True)) <= 1
    assert not any(found[0][: SWITCH // 25]), "before the switch nothing has failed"


def test_what_the_first_protocol_does_no_better_was_no_failure() -> None:
    failed = played(NEAR, 25)[8:18]
    again = played(NEAR, 25)[:16]
    assert is_refuted(failed, again, SWITCH, 400, JOB)
    better = [replace(one, accuracy=one.accuracy + 0.05) for one in again]
    assert not is_refuted(failed, better, SWITCH, 400, JOB)
    assert not is_refuted(failed, again[:10], SWITCH, 400, JOB), "two tests say little"
    assert not is_refuted((), again, SWITCH, 400, JOB)
    # So the same sign is no alarm a second time, and the loss still is one.
    whole = played(NEAR, 25)
    abandoned, watching = AbandonedEvaluations(SWITCH, tuple(failed)), guard()
    assert watching.alarm(whole[:20], 400, 1) is not None
    assert watching.alarm(whole[:20], 400, 1, abandoned) is None
    blown = [replace(one, training_loss=5.0) if one.worker_step > 400 else one for one in whole]
    assert "blown up" in str(watching.alarm(blown[:20], 400, 1, abandoned))


@pytest.mark.parametrize(
    ("folder", "rule", "most_false", "least_in_time", "least_noticed"),
    [(JOBS, "same", 0.05, 0.75, 0.85), (OWN_MOMENTUM_JOBS, "own", 0.025, 0.45, 0.75)],
    ids=["jobs", "own-momentum"],
)
def test_most_recorded_runs_that_lose_much_are_noticed(
    folder: Path, rule: str, most_false: float, least_in_time: float, least_noticed: float
) -> None:
    if not folder.is_dir():
        pytest.skip("the recorded trainings are not here")
    runs = [
        watched(job, percent, seed)
        for job in guarded_jobs(folder, rule)
        for percent in (6.25, 0.0)
        for seed in range(0, len(job.curves), 3 - 2 * (job.job.name == "spirals16"))
    ]
    kept, false_alarms, lost, in_time, noticed = shares(runs)
    assert kept > 100
    assert lost > 10
    assert false_alarms <= most_false
    assert in_time >= least_in_time
    assert noticed >= least_noticed


@pytest.mark.parametrize(("is_alike", "interval"), [(True, 50), (True, 100), (False, 100)])
def test_a_fall_is_seen_where_tests_are_rare_as_well(is_alike: bool, interval: int) -> None:
    """A tenth of the job, or a fifth, has fewer than three of them."""
    before = SWITCH // interval
    tests = played([0.5] * before + [0.3] * (W // interval - before), interval)
    first = next(
        number
        for number in range(len(tests))
        if guard(is_alike=is_alike).alarm(tests[:number], SWITCH)
    )
    assert first - before <= 7
    good = played([0.5] * before + [0.45, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6], interval)
    assert guard(is_alike=is_alike).alarm(good, SWITCH) is None
