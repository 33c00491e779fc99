"""When a run is said to fail after its switch."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.run.guard import FailureDetector, SwitchGuard
from syncswitch.trainers.run.record import Position
from tests.records import changed
from tests.trainers.job.test_schedule import trial

RECORDED = Path(__file__).resolve().parents[3].parent / "shared" / "trust" / "jobs"
OWN_MOMENTUM = RECORDED.with_name("own-momentum")
W = 1000
SWITCH = 200
BETA = 0.01
TARGET = 0.9
# It rises to 0.8, leaps to 0.9 where the rate decays, and stays.
CURVE = [(step, 0.5 + step / 2000 if step < 600 else TARGET) for step in range(50, W + 1, 50)]


def guard(
    runs: int = 3,
    deviation: float = BETA / 2,
    curve: list[tuple[int, float]] = CURVE,
    settled_at: int | None = None,
) -> FailureDetector:
    points = tuple(BandPoint(step, accuracy, deviation) for step, accuracy in curve)
    return FailureDetector(Band(TARGET, BETA, runs, points), W, settled_at=settled_at)


def played(
    losses: dict[int, float] | None = None, loss: dict[int, float] | None = None, until: int = W
) -> list[Evaluation]:
    """Those of BSP alone, less what is lost at some of the worker-steps."""
    losses, loss = losses or {}, loss or {}
    return [
        Evaluation(step, step / 10, accuracy - losses.get(step, 0.0), loss.get(step, 1.0))
        for step, accuracy in CURVE
        if step <= until
    ]


def test_an_alarm_has_figures() -> None:
    low = dict.fromkeys(range(300, W + 1, 50), 0.3)
    alarm = guard(deviation=0.0).alarm(played(low, until=400), SWITCH)
    # The least within 50 worker-steps is 0.675, less 5 beta, less 4 beta with the prior of four
    # runs to the two of freedom, around a mean of three.
    allowed = 0.675 - 0.05 - 4 * math.sqrt(4 / 6 * BETA**2 * (1 + 1 / 3))
    assert guard(deviation=0.0).lowest_accuracy(400) == pytest.approx(allowed)
    assert alarm == (
        "3 evaluations in a row are below those of runs without a switch: 0.4000, where these have "
        f"0.7000 and {allowed:.4f} is accepted"
    )


@pytest.mark.parametrize(
    ("low", "switch", "is_alarm"),
    [
        ((), SWITCH, False),
        ((300, 350), SWITCH, False),
        ((300, 400), SWITCH, False),
        ((350, 400), SWITCH, False),
        ((300, 350, 400), SWITCH, True),
        # Tests before the switch, or at it, do not count.
        ((100, 150, 200, 350, 400), SWITCH, False),
        ((300, 350, 400), 300, False),
    ],
)
def test_three_low_tests_after_the_switch_are_an_alarm(
    low: tuple[int, ...], switch: int, is_alarm: bool
) -> None:
    tests = played(dict.fromkeys(low, 0.3), until=400)
    alarms = [guard().alarm(tests[:count], switch) for count in range(len(tests) + 1)]
    assert [one is not None for one in alarms] == [False] * len(tests) + [is_alarm]


def test_a_run_may_be_late_where_the_curve_is_steep() -> None:
    """Its curve leaps at 600, and a run may leap a test later."""
    at_leap, later = guard().lowest_accuracy(600), guard().lowest_accuracy(700)
    assert later - at_leap == pytest.approx(TARGET - 0.775)
    assert guard().lowest_accuracy(W) == pytest.approx(later)


def test_of_few_runs_it_allows_more_and_of_many_their_own_scatter_counts() -> None:
    def margin(runs: int, deviation: float) -> float:
        return TARGET - guard(runs, deviation).lowest_accuracy(900)

    assert margin(1, 0.0) > margin(2, 0.0) > margin(20, 0.0)
    assert margin(2, 0.05) > margin(2, 0.0)
    assert margin(1000, 0.05) == pytest.approx(0.05 + 4 * 0.05, rel=1e-2)
    assert margin(1000, 0.0) == pytest.approx(0.05, rel=0.1)


def test_a_rough_curve_of_one_run_shows_how_tests_scatter() -> None:
    random = np.random.default_rng(1)
    rough = [(step, 0.9 + random.normal(0, 0.03)) for step in range(10, W + 1, 10)]
    smooth = [(step, 0.9) for step, _ in rough]
    one, other = (guard(1, curve=curve).lowest_accuracy(500) for curve in (rough, smooth))
    assert other - one > 4 * 0.03


def test_before_the_first_known_test_nothing_is_low() -> None:
    known = guard(curve=CURVE[10:])
    assert known.lowest_accuracy(CURVE[10][0] - 1) == -math.inf
    assert known.alarm(played(dict.fromkeys(range(250, 551, 50), 0.5), until=500), SWITCH) is None


@pytest.mark.parametrize(("runs", "allowed"), [(0, 0.01), (1, 0.02), (4, 0.015), (25, 0.012)])
def test_in_the_end_it_may_lose_the_threshold_and_the_error_of_the_target(
    runs: int, allowed: float
) -> None:
    """A target that was given has none."""
    for beyond, is_kept in ((-1e-4, True), (0.0, True), (1e-4, False)):
        final = dict.fromkeys(range(800, W + 1, 50), allowed + beyond)
        assert guard(runs).alarm(played(final, until=950), SWITCH) is None
        assert (guard(runs).alarm(played(final), SWITCH) is None) is is_kept
    assert guard(4).alarm(played(dict.fromkeys(range(800, 1001, 50), 0.02)), SWITCH) == (
        "it ends with 0.8800, 0.0200 below the target 0.9000, more than the accepted 0.01 and the"
        " margin of 0.005"
    )


def test_without_a_curve_the_end_still_counts() -> None:
    lost = dict.fromkeys(range(300, W + 1, 50), 0.3)
    assert guard(curve=[]).alarm(played(lost, until=950), SWITCH) is None
    assert "it ends with 0.6000" in str(guard(curve=[]).alarm(played(lost), SWITCH))


def test_a_training_loss_that_blows_up_is_an_alarm() -> None:
    before = {50: 2.0, 100: 1.0, 150: 0.5, 200: 0.4}
    blown = {**before, 250: 5.0, 300: 6.0, 350: 70.0}
    unknown = guard(curve=[])
    assert unknown.alarm(played(loss=blown, until=300), SWITCH) is None
    assert unknown.alarm(played(loss=blown, until=350), SWITCH) == (
        "the training loss has blown up to 70, from at most 2 before the switch"
    )
    for fine in ({300: 4.0}, {300: math.nan}):
        assert unknown.alarm(played(loss={**blown, **fine}, until=350), SWITCH) is None
    assert unknown.alarm(played(loss=blown, until=350), 0) is None, "none is known before"


def test_without_a_target_a_run_may_end_anywhere() -> None:
    unmeasured = FailureDetector(Band(None, 0.0), W, settled_at=0)
    lost = played(dict.fromkeys(range(300, W + 1, 50), 0.03))
    assert unmeasured.alarm(lost, SWITCH) is None
    blown = {200: 0.4, 250: 5.0, 300: 6.0, 350: 70.0}
    assert "blown up to 70" in str(unmeasured.alarm(played(loss=blown, until=350), SWITCH))


def test_a_run_that_is_found_to_be_no_worse_after_its_switch_is_left_alone() -> None:
    """Its first protocol is as slow, so the second switch is not blamed; also after a kill."""
    slow = [Evaluation(step, 0.0, 0.2 + 0.6 * step / W, 1.0) for step in range(25, W + 1, 25)]
    spec = trial(W, 4, 20.0)
    spec = replace(
        spec,
        identity=changed(spec.identity, learning_rate_boundaries=()),
        band=Band(None, BETA),
        retry_percents=(40.0,),
    )
    for better, is_alarm in ((0.0, False), (0.1, True)):
        first = SwitchGuard(spec)
        first.switch = Position(SWITCH)
        first.look(slow[:18])
        assert first.alarm is None
        first.look(slow[:19])
        assert "still rising, but too slowly" in str(first.alarm)
        first.go_back(475, 9.0, slow[:19])
        resumed = SwitchGuard(spec)
        resumed.remember(json.loads(json.dumps(first.history())))
        for one in (first, resumed):
            assert one.spec.switch_percent == 40.0
            one.switch = Position(400)
            one.look([replace(test, accuracy=test.accuracy + better) for test in slow[:24]])
            assert (one.alarm is not None) is is_alarm


def first_alarm(
    watching: FailureDetector, tests: list[Evaluation], switch: float = SWITCH
) -> int | None:
    """The worker-step of the first alarm."""
    found = (n for n in range(1, len(tests)) if watching.alarm(tests[:n], round(switch)))
    number = next(found, None)
    return None if number is None else tests[number - 1].worker_step


@pytest.mark.parametrize(
    ("lost", "curve", "settled_at", "noticed_at"),
    [
        # With the tenth test after the switch; that the curve has yet to leap is allowed for.
        (0.03, CURVE, 0, 700),
        (0.03, CURVE, None, None),
        (0.015, CURVE, 0, None),
        (0.0, CURVE, 0, None),
        # Without a curve, from the tenth test on after the last decay.
        (0.03, [], 500, 950),
        (0.03, [], W, None),
    ],
)
def test_a_run_that_is_too_low_and_hardly_rises_has_failed(
    lost: float, curve: list[tuple[int, float]], settled_at: int | None, noticed_at: int | None
) -> None:
    """With a momentum for each worker alone; there a run follows the first protocol's curve."""
    watching = guard(curve=curve, settled_at=settled_at)
    assert first_alarm(watching, played(dict.fromkeys(range(250, W + 1, 50), lost))) == noticed_at


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_comes_near_the_target_at_a_falling_pace_is_left_alone(seed: int) -> None:
    random = np.random.default_rng(seed)
    final, pace = TARGET - BETA * random.uniform(-1, 1), random.uniform(0.1, 2.5)
    tests = [
        Evaluation(step, 0.0, final * (1 - 0.5 * math.exp(-step / 100 / pace)), 1.0)
        for step in range(25, 3 * W + 1, 25)
    ]
    usual = [(one.worker_step, one.accuracy * TARGET / final) for one in tests]
    tests[-5:] = [replace(one, accuracy=final) for one in tests[-5:]]
    points = tuple(BandPoint(step, accuracy, 0.0) for step, accuracy in usual)
    watching = FailureDetector(Band(TARGET, BETA, 3, points), 3 * W, settled_at=0)
    assert first_alarm(watching, tests) is None
    below = [replace(one, accuracy=one.accuracy - 0.04) for one in tests]
    assert first_alarm(watching, below) is not None


@pytest.mark.parametrize(
    ("settled_at", "failures", "lost", "is_alarm"),
    [(0, 0, 0.025, True), (0, 1, 0.025, False), (0, 1, 0.035, True), (None, 1, 0.025, True)],
)
def test_a_run_that_fails_again_fails_for_its_seed_unless_it_loses_much(
    settled_at: int | None, failures: int, lost: float, is_alarm: bool
) -> None:
    tests = played(dict.fromkeys(range(250, W + 1, 50), lost))
    watching = guard(settled_at=settled_at)
    found = [watching.alarm(tests[:n], SWITCH, failures) for n in range(len(tests) + 1)]
    assert any(one is not None for one in found) is is_alarm


@pytest.mark.skipif(not OWN_MOMENTUM.is_dir(), reason="the recorded trainings are not here")
def test_most_recorded_runs_that_lose_much_are_noticed_by_their_half() -> None:
    """With a momentum for each worker, against the mean of BSP."""
    false_alarms, noticed = [], []
    for path in sorted(OWN_MOMENTUM.glob("*.npz")):
        with np.load(path) as job:
            curves, steps, total = job["curve"], job["eval_at"].tolist(), int(job["W"])
            percents = job["settings"]
        ends, mean = curves[:, :, -5:].mean(axis=2), curves[:, 0].mean(axis=0).tolist()
        target = float(ends[:, 0].mean())
        points = tuple(BandPoint(*one, 0.0) for one in zip(steps, mean, strict=True))
        watching = FailureDetector(Band(target, BETA, 0, points), total, settled_at=0)
        lost = (target - ends) / BETA
        for run in np.argwhere((lost[:, 1:] > 3) | (np.arange(len(lost)) % 6 == 0)[:, None]):
            seed, place = run[0], run[1] + 1
            if 1 < lost[seed, place] <= 3:
                continue
            tests = [
                Evaluation(step, 0.0, float(accuracy), 1.0)
                for step, accuracy in zip(steps, curves[seed, place], strict=True)
            ]
            switch = percents[place] / 100 * total
            at = first_alarm(watching, tests, switch)
            if lost[seed, place] <= 1:
                false_alarms.append(at is not None)
            else:
                noticed.append(at is not None and at <= (switch + total) / 2)
    assert len(false_alarms) > 300
    assert len(noticed) > 15
    assert np.mean(false_alarms) <= 0.03
    assert np.mean(noticed) >= 0.8


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded trainings are not here")
def test_recorded_runs_that_keep_the_accuracy_are_left_alone() -> None:
    """Held against three other runs of BSP, at switch points as good as BSP."""
    random = np.random.default_rng(0)
    false_alarms = []
    for path in sorted(RECORDED.glob("*.npz")):
        with np.load(path) as job:
            curves, steps, W = job["curve"], job["eval_at"].astype(int), int(job["W"])
            percents, has_diverged = job["settings"], job["diverged"]
        ends = curves[:, :, -5:].mean(axis=2)
        kept = (ends >= ends[:, 0].mean() - BETA) & ~has_diverged
        is_good = kept.mean(axis=0) >= min(0.95, kept[:, 0].mean() - 0.05)
        for seed in range(0, len(curves), 4):
            others = random.choice(np.delete(np.arange(len(curves)), seed), 3, replace=False)
            of_bsp = curves[others, 0]
            points = zip(steps, of_bsp.mean(axis=0), of_bsp.std(axis=0, ddof=1), strict=True)
            band = Band(
                float(ends[others, 0].mean()),
                BETA,
                3,
                tuple(BandPoint(int(step), float(m), float(sd)) for step, m, sd in points),
            )
            watching = FailureDetector(band, W)
            for place in np.flatnonzero(is_good[1:]) + 1:
                if ends[seed, place] < band.target_accuracy - BETA or has_diverged[seed, place]:
                    continue
                tests = [
                    Evaluation(int(step), 0.0, float(accuracy), 1.0)
                    for step, accuracy in zip(steps, curves[seed, place], strict=True)
                ]
                switch = round(percents[place] / 100 * W)
                found = (watching.alarm(tests[:n], switch) for n in range(1, len(tests) + 1))
                false_alarms.append(any(one is not None for one in found))
    assert len(false_alarms) > 200
    assert np.mean(false_alarms) <= 0.02
