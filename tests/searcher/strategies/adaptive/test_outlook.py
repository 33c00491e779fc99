"""Expected times and shares against hand calculations and simulated runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from syncswitch.searcher.strategies.adaptive.belief import Belief, Datum, believe
from syncswitch.searcher.strategies.adaptive.guesses import Guesses, Prior
from syncswitch.searcher.strategies.adaptive.outlook import Outlook
from syncswitch.storage.records.guard import target_error

BETA = 0.01
GRID = (12.5, 25.0, 50.0, 75.0, 100.0)
SHARES = np.array(GRID) / 100
# A run that failed switches again at halvings alone.
TRIES = np.array([True, True, True, False, True])
NEVER = (0.0, 0.0, 0.0, 0.0, 0.0)


def belief_of(
    *failures: Sequence[float],
    weights: Sequence[float] = (1.0,),
    losses: Sequence[float] = NEVER,
    scatter: float = 1e-6,
    target_z: float = 0.0,
    target_runs: int = 4,
) -> Belief:
    """Returns a belief with a guess for each row of failures."""
    shape = (len(failures), len(GRID))
    guesses = Guesses(
        cube=np.zeros(shape),
        losses=np.broadcast_to(losses, shape),
        scatter=np.full(shape, scatter),
        failures=np.array(failures),
        target_z=np.full(len(failures), target_z),
    )
    return Belief(BETA, 1.0, guesses, np.array(weights), 0.9, target_runs)


def outlook_of(belief: Belief, is_guarded: bool = True) -> Outlook:
    return Outlook(belief, SHARES, ratio=0.4, keep=0.9, is_guarded=is_guarded, tries=TRIES)


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
    nowhere = np.zeros(len(GRID), dtype=bool)
    belief = belief_of(FAILING)
    found = Outlook(
        belief, SHARES, ratio=0.4, keep=0.9, is_guarded=True, tries=nowhere, goes_back=False
    )
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
    found = outlook_of(belief_of(NEVER, scatter=BETA), is_guarded)
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
    losses, scatter, target_z, runs = (0.03, 0.015, 0.008, 0.004, 0.0), 0.006, 0.7, 3
    belief = belief_of(FAILING, losses=losses, scatter=scatter, target_z=target_z, target_runs=runs)
    chance, number = np.random.default_rng(7), 100_000
    # By so much the measured target lies below the true one.
    most = BETA + target_z * scatter / runs**0.5 + target_error(BETA, runs)
    shares = []
    for first in range(len(GRID)):
        lost = np.full(number, np.nan)
        for index in [first, *(i for i in range(first + 1, len(GRID)) if TRIES[i])]:
            now = losses[index] + scatter * chance.standard_normal(number)
            fails = chance.random(number) < FAILING[index]
            is_last = index == len(GRID) - 1
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
    slower = Outlook(found.belief, SHARES, ratio=1.3, keep=0.9, is_guarded=True, tries=TRIES)
    assert slower.faster_probabilities == pytest.approx(0.0)
    assert slower.answers()[-1] == 1.0


@pytest.mark.parametrize("is_guarded", [True, False])
def test_more_runs_never_save_less(is_guarded: bool) -> None:
    data = [Datum(4, 0.9), Datum(1, 0.893), Datum(0, 0.5)]
    found = outlook_of(believe(Prior(GRID, BETA), data), is_guarded)
    assert found.answers().sum() == pytest.approx(1)
    for answers in ([4], [1, 4]):
        without = found.least_time(answers)
        for index in range(len(GRID)):
            after = found.least_times(index, answers, 3)
            assert (np.diff([without, *after]) <= 1e-12).all()


def test_what_never_holds_is_not_worth_a_run() -> None:
    found = outlook_of(belief_of((1.0, 1.0, 0.0, 0.0, 0.0)))
    assert found.least_times(1, [4], 2) == pytest.approx([1.0, 1.0])
    assert found.least_times(2, [4], 2) == pytest.approx([0.7, 0.7])
