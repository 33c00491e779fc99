"""Beliefs after some runs, new guesses, and what is expected: against known answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import qmc

from syncswitch.searcher.strategies.adaptive.belief import (
    Belief,
    Datum,
    believe,
    effective_size,
    renewed,
)
from syncswitch.searcher.strategies.adaptive.guesses import (
    DIMENSIONS,
    Floats,
    Guesses,
    Prior,
    first_guesses,
    guesses_at,
)
from syncswitch.searcher.strategies.adaptive.outlook import Outlook
from syncswitch.storage.records.goal import Goal

GRID = (12.5, 25.0, 50.0, 100.0)
PRIOR = Prior(GRID, 0.01)
LAST = len(GRID) - 1
BASELINE = tuple(Datum(LAST, 0.9 + 0.002 * (-1) ** number) for number in range(6))


def outlook(belief: Belief, **changes: Any) -> Outlook:
    """The outlook without a guard."""
    grid = belief.prior.grid
    usual = {"ratio": 0.4, "min_kept_share": 0.95, "is_guarded": False, "tries": np.ones(len(grid))}
    return Outlook(belief, np.array(grid) / 100, **{**usual, **changes})


def test_guesses_are_what_is_written_of_them() -> None:
    guesses = first_guesses(PRIOR)
    assert (guesses.losses[:, LAST] == 0).all()
    assert (guesses.failures[:, LAST] == 0).all()
    assert ((guesses.failures >= 0) & (guesses.failures <= 1)).all()
    # Scatter never shrinks towards an earlier switch, and failing not but for a dip.
    assert (np.diff(guesses.spread, axis=1) <= 1e-12).all()
    assert np.median(guesses.spread[:, LAST]) == pytest.approx(0.005, rel=0.02)
    kept = guesses.kept_shares(0.01)
    assert ((kept >= 0) & (kept <= 1)).all()


@pytest.mark.parametrize("corner", [0.0, 1.0])
@pytest.mark.parametrize("owns", ["nothing", "momentum", "optimizer"])
def test_guesses_are_finite_at_the_corners_to_which_new_ones_may_move(
    corner: float, owns: str
) -> None:
    prior = Prior(GRID, 0.01, owns_momentum=owns != "nothing", owns_optimizer=owns == "optimizer")
    guesses = guesses_at(prior, np.full((1, DIMENSIONS), corner))
    for values in (guesses.losses, guesses.spread, guesses.failures, guesses.target_z):
        assert np.isfinite(values).all()


def test_a_momentum_for_each_worker_bears_an_early_switch_and_0_lies_below_the_last_halving() -> (
    None
):
    grid = (0.0, 1.5625, 6.25, 25.0, 100.0)
    assert Prior(grid, 0.01).octaves.tolist() == [8, 6, 4, 2, 0]
    shared, own = (
        first_guesses(Prior(grid, 0.01, owns_momentum=owns)).kept_shares(0.01).mean(axis=0)
        for owns in (False, True)
    )
    assert (own[:-1] > shared[:-1] + 0.1).all()
    assert (np.diff(own) > 0).all()
    # Nothing is sure of a job that nobody has run: one in seven bears no switch at 6.25 %.
    assert 0.7 < own[2] < 0.9


def test_runs_with_a_switch_tell_of_the_target_of_jobs_with_a_momentum_for_each_worker() -> None:
    first, runs = Datum(LAST, 0.91), tuple(Datum(0, 0.9 + 0.001 * i) for i in range(-4, 5))
    (shared, usual), (own, error) = (
        believe(Prior(GRID, 0.01, owns_momentum=owns), (first, *runs)).target()
        for owns in (False, True)
    )
    assert (shared, usual) == (0.91, pytest.approx(0.01))
    assert 0.9 < own < 0.907
    assert 0 < error < usual / 2


@pytest.mark.parametrize("failing", [0, 8, 16])
def test_the_share_that_fails_is_learnt(failing: int) -> None:
    runs = tuple(
        Datum(1, 0.4 if number < failing else 0.9 + 0.002 * (-1) ** number) for number in range(32)
    )
    shares = outlook(believe(PRIOR, (*BASELINE, *runs))).kept_shares
    assert shares[1] == pytest.approx(1 - failing / 32, abs=0.06)
    assert shares[LAST] > 0.98


def test_diverging_is_failing() -> None:
    runs = tuple(Datum(1, 0.1, diverged=True) for _ in range(6))
    after = outlook(believe(PRIOR, (*BASELINE, *runs)))
    assert after.good_probabilities[1] < 0.01
    assert after.kept_shares[1] < 0.3
    assert after.answers()[:2].sum() < 0.01


@pytest.mark.parametrize("failing", [0, 8, 16])
def test_the_share_that_a_guard_ends_is_learnt_though_nobody_knows_what_it_lost(
    failing: int,
) -> None:
    runs = (Datum(1, 0.9 + 0.002 * (-1) ** number) for number in range(32 - failing))
    ended = (Datum(1, 0.95, failed=True) for _ in range(failing))
    after = outlook(believe(PRIOR, (*BASELINE, *runs, *ended)))
    assert after.kept_shares[1] == pytest.approx(1 - failing / 32, abs=0.06)
    # What the model got in the end is no accuracy of that switch point.
    assert after.belief.target_accuracy == pytest.approx(0.9)


@pytest.mark.parametrize("losses", [(0.0, 0.6205, 0.1198), (0.0, 0.4686, 0.8683), (0.4, 0.8, 0.85)])
def test_no_few_guesses_are_sure_of_themselves(losses: tuple[float, ...]) -> None:
    data = [*BASELINE, *(Datum(LAST - 1 - place, 0.9 - loss) for place, loss in enumerate(losses))]
    belief = believe(PRIOR, tuple(data))
    assert effective_size(belief.weights) >= 100
    assert belief.target_accuracy == pytest.approx(0.9)


def runs_of(belief: Belief) -> int:
    assert belief.measured is not None
    return belief.measured.runs


def test_a_known_target_is_one_more_measurement() -> None:
    alone = believe(PRIOR, (), 0.9, 5)
    assert (alone.target_accuracy, runs_of(alone)) == (pytest.approx(0.9), 5)
    both = believe(PRIOR, (Datum(LAST, 0.912),), 0.9, 5)
    assert both.target_accuracy == pytest.approx(0.902)
    assert runs_of(both) == 6


MEANS = np.array([0.3, 0.7])
DEVIATIONS = np.array([0.004, 0.02])


def log_density(cube: Floats) -> Floats:
    """Two sharp normal distributions; the other numbers stay uniform."""
    z = (cube[:, :2] - MEANS) / DEVIATIONS
    density: Floats = -0.5 * (z * z).sum(axis=1)
    return density


def test_they_are_as_likely_as_the_evidence_says() -> None:
    first = qmc.Sobol(5, seed=1).random(4096)
    log_weights = log_density(first)
    weights = np.exp(log_weights - log_weights.max())
    assert effective_size(weights / weights.sum()) < 5
    found = renewed(first, log_density, log_weights)
    assert ((found >= 0) & (found <= 1)).all()
    assert len(np.unique(found, axis=0)) > 0.95 * len(found)
    assert found[:, :2].mean(axis=0) == pytest.approx(MEANS, abs=0.003)
    assert found[:, :2].std(axis=0) == pytest.approx(DEVIATIONS, rel=0.2)
    assert found[:, 2:].mean(axis=0) == pytest.approx(0.5, abs=0.07)
    assert found[:, 2:].std(axis=0) == pytest.approx(12**-0.5, abs=0.05)
    np.testing.assert_array_equal(renewed(first, log_density, log_weights), found)


BETA = 0.01
PERCENTS = (12.5, 25.0, 50.0, 75.0, 100.0)
SHARES = np.array(PERCENTS) / 100
# A run that failed switches again at halvings alone.
TRIES = np.array([True, True, True, False, True])
NEVER = (0.0, 0.0, 0.0, 0.0, 0.0)


def belief_of(
    *failures: Sequence[float],
    weights: Sequence[float] = (1.0,),
    losses: Sequence[float] = NEVER,
    spread: float = 1e-6,
    target_z: float = 0.0,
    target_runs: int = 4,
) -> Belief:
    """Returns a belief with a guess for each row of failures."""
    shape = (len(failures), len(PERCENTS))
    guesses = Guesses(
        cube=np.zeros(shape),
        losses=np.broadcast_to(losses, shape),
        spread=np.full(shape, spread),
        failures=np.array(failures),
        target_z=np.full(len(failures), target_z),
    )
    errors = guesses.target_z * guesses.spread[:, -1] / math.sqrt(target_runs)
    goal = Goal(0.9, BETA, target_runs, BETA / 2)
    return Belief(Prior(PERCENTS, BETA), guesses, np.array(weights), 0.9, goal, errors)


def outlook_of(belief: Belief, is_guarded: bool = True, **changes: Any) -> Outlook:
    usual = {"min_kept_share": 0.9, "is_guarded": is_guarded, "tries": TRIES}
    return outlook(belief, **{**usual, **changes})


FAILING = (0.5, 0.2, 0.1, 0.1, 0.0)


def test_guarded_a_failed_run_is_one_of_the_next_switch_point() -> None:
    # T(i) = k a + (1 - k) (T(next) + 0.6 (1 - s) 0.4), from the latest to the earliest.
    at_75 = 0.9 * 0.85 + 0.1 * (1 + 0.06)
    at_50 = 0.9 * 0.7 + 0.1 * (1 + 0.12)
    at_25 = 0.8 * 0.55 + 0.2 * (at_50 + 0.18)
    at_12 = 0.5 * 0.475 + 0.5 * (at_25 + 0.21)
    times = outlook_of(belief_of(FAILING)).times
    assert times == pytest.approx([at_12, at_25, at_50, at_75, 1.0], abs=1e-9)
    assert times[:3] == pytest.approx([0.6547, 0.6244, 0.742])


def test_a_run_that_cannot_go_back_begins_again_with_the_first_protocol() -> None:
    nowhere = np.zeros(len(PERCENTS), dtype=bool)
    found = outlook_of(belief_of(FAILING), tries=nowhere, goes_back=False)
    # T(i) = k a + (1 - k) (1 + s + 0.6 (1 - s) 0.4).
    at_12 = 0.5 * 0.475 + 0.5 * (1 + 0.125 + 0.21)
    at_25 = 0.8 * 0.55 + 0.2 * (1 + 0.25 + 0.18)
    at_50 = 0.9 * 0.7 + 0.1 * (1 + 0.5 + 0.12)
    at_75 = 0.9 * 0.85 + 0.1 * (1 + 0.75 + 0.06)
    assert found.times == pytest.approx([at_12, at_25, at_50, at_75, 1.0], abs=1e-9)


def test_each_failure_of_a_bare_switch_is_a_training_more() -> None:
    found = outlook_of(belief_of(FAILING), is_guarded=False)
    assert found.times == pytest.approx([0.475 + 0.5, 0.55 + 0.2, 0.7 + 0.1, 0.85 + 0.1, 1.0])
    # Of ten runs one may fail; those beyond count five more where a run is thought of.
    assert found.least_time([0]) == pytest.approx(0.475 + 0.5 + 5 * 0.4)
    assert found.least_time([1, 4]) == pytest.approx(1.0)
    assert found.least_time([2]) == pytest.approx(0.8)


@pytest.mark.parametrize("is_guarded", [True, False])
def test_what_fails_as_often_with_the_first_protocol_alone_costs_nothing(is_guarded: bool) -> None:
    # One run in six loses more than beta, whatever its switch.
    found = outlook_of(belief_of(NEVER, spread=BETA), is_guarded)
    assert found.kept_shares == pytest.approx(0.8413, abs=1e-4)
    assert found.times == pytest.approx(SHARES + 0.4 * (1 - SHARES))


def test_shares_are_those_of_the_bare_switch_and_of_what_a_guard_delivers() -> None:
    found = outlook_of(belief_of(FAILING))
    assert found.kept_shares == pytest.approx([0.5, 0.8, 0.9, 0.9, 1.0])
    assert found.delivered_shares == pytest.approx(1.0)
    # At 25 % all lose 1.2 beta, and the guard lets be what loses 1.25: four runs made the target.
    let_be = outlook_of(belief_of(FAILING, losses=(0.0, 0.012, 0.0, 0.0, 0.0)))
    assert let_be.kept_shares == pytest.approx([0.5, 0.0, 0.9, 0.9, 1.0])
    # Half of what is begun at 12.5 % goes on there, a tenth at 50 % and later.
    assert let_be.delivered_shares == pytest.approx([0.5 + 0.5 * 0.2, 0.2, 1.0, 1.0, 1.0])
    bare = outlook_of(belief_of(FAILING), is_guarded=False)
    assert bare.delivered_shares == pytest.approx(bare.kept_shares)


def test_delivered_are_as_many_good_models_as_runs_drawn_by_chance_deliver() -> None:
    losses, spread, target_z, runs = (0.03, 0.015, 0.008, 0.004, 0.0), 0.006, 0.7, 3
    belief = belief_of(FAILING, losses=losses, spread=spread, target_z=target_z, target_runs=runs)
    chance, number = np.random.default_rng(7), 100_000
    # By so much the measured target lies below the true one.
    most = BETA + target_z * spread / runs**0.5 + BETA / runs**0.5
    shares = []
    for first in range(len(PERCENTS)):
        lost = np.full(number, np.nan)
        for index in [first, *(i for i in range(first + 1, len(PERCENTS)) if TRIES[i])]:
            now = losses[index] + spread * chance.standard_normal(number)
            fails = chance.random(number) < FAILING[index]
            is_last = index == len(PERCENTS) - 1
            lost = np.where(np.isnan(lost) & (is_last | ~fails & (now <= most)), now, lost)
        shares.append((lost <= BETA).mean())
    assert outlook_of(belief).delivered_shares == pytest.approx(shares, abs=0.005)


def test_guesses_count_by_their_weights() -> None:
    found = outlook_of(belief_of(NEVER, (1.0, 1.0, 0.0, 0.0, 0.0), weights=(0.25, 0.75)))
    assert found.kept_shares == pytest.approx([0.25, 0.25, 1.0, 1.0, 1.0])
    assert found.times[1] == pytest.approx(0.25 * 0.55 + 0.75 * (0.7 + 0.18))
    # At 12.5 % a failure costs more than is saved.
    assert found.faster_probabilities == pytest.approx([0.25, 1.0, 1.0, 1.0, 0.0])
    assert found.answers() == pytest.approx([0.25, 0.0, 0.75, 0.0, 0.0])
    # A slower second protocol saves nothing.
    slower = outlook_of(found.belief, ratio=1.3)
    assert slower.faster_probabilities == pytest.approx(0.0)
    assert slower.answers()[-1] == 1.0


@pytest.mark.parametrize("is_guarded", [True, False])
def test_more_runs_never_save_less(is_guarded: bool) -> None:
    data = [Datum(4, 0.9), Datum(1, 0.893), Datum(0, 0.5)]
    found = outlook_of(believe(Prior(PERCENTS, BETA), data), is_guarded)
    assert found.answers().sum() == pytest.approx(1)
    for answers in ([4], [1, 4]):
        without = found.least_time(answers)
        for index in range(len(PERCENTS)):
            after = found.least_times(index, answers, 3)
            assert (np.diff([without, *after]) <= 1e-12).all()


def test_what_never_holds_is_not_worth_a_run() -> None:
    found = outlook_of(belief_of((1.0, 1.0, 0.0, 0.0, 0.0)))
    assert found.least_times(1, [4], 2) == pytest.approx([1.0, 1.0])
    assert found.least_times(2, [4], 2) == pytest.approx([0.7, 0.7])


def test_a_further_run_of_the_first_protocol_moves_the_target_either_way() -> None:
    # Nobody knows where it lies but for one run, so the next one is as often below as above.
    found, rises = outlook_of(belief_of(NEVER, spread=0.004, target_runs=1)), []

    def answers(rise: float) -> list[int]:
        rises.append(rise)
        return [2, 4] if rise < 0 else [4]

    least = found.least_times_of_target(answers, 2)
    assert least == pytest.approx([0.5 * 0.7 + 0.5 * 1.0] * 2)
    # Half of the first run's deviation; two thirds of that of the mean of two.
    for moved, deviation in ((rises[:20], 0.5 * 0.004), (rises[20:], 2 / 3 * 0.004 / 2**0.5)):
        assert np.mean(moved) == pytest.approx(0, abs=1e-9)
        assert np.std(moved) == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize("is_guarded", [True, False])
def test_knowing_the_target_better_never_costs_time(is_guarded: bool) -> None:
    data = [Datum(4, 0.9), Datum(1, 0.893), Datum(0, 0.5)]
    found = outlook_of(believe(Prior(PERCENTS, BETA), data), is_guarded)
    for answers in ([4], [1, 4]):
        after = found.least_times_of_target(lambda _, answers=answers: answers, 3)  # type: ignore[misc]
        assert max(after) <= found.least_time(answers) + 1e-12
