"""Beliefs after some runs: known answers if the runs leave no doubt."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from syncswitch.searcher.strategies.adaptive.belief import (
    Belief,
    Datum,
    believe,
    effective_size,
)
from syncswitch.searcher.strategies.adaptive.guesses import Prior, first_guesses
from syncswitch.searcher.strategies.adaptive.outlook import Outlook

GRID = (12.5, 25.0, 50.0, 100.0)
PRIOR = Prior(GRID, 0.01)
LAST = len(GRID) - 1
BASELINE = tuple(Datum(LAST, 0.9 + 0.002 * (-1) ** number) for number in range(6))


def outlook(belief: Belief) -> Outlook:
    """Returns the outlook for bare switches."""
    shares, tries = np.array(GRID) / 100, np.ones(len(GRID), dtype=bool)
    return Outlook(belief, shares, ratio=0.4, keep=0.95, is_guarded=False, tries=tries)


def test_guesses_are_what_is_written_of_them() -> None:
    guesses = first_guesses(PRIOR)
    assert (guesses.losses[:, LAST] == 0).all()
    assert (guesses.failures[:, LAST] == 0).all()
    assert ((guesses.failures >= 0) & (guesses.failures <= 1)).all()
    # Scatter never shrinks towards an earlier switch, and failing not but for a dip.
    assert (np.diff(guesses.scatter, axis=1) <= 1e-12).all()
    assert np.median(guesses.scatter[:, LAST]) == pytest.approx(0.005, rel=0.02)
    kept = guesses.kept_shares(0.01)
    assert ((kept >= 0) & (kept <= 1)).all()


def test_the_order_of_the_runs_does_not_matter() -> None:
    data = (*BASELINE[:2], Datum(1, 0.89), Datum(1, 0.5, diverged=True))
    beliefs = [believe(PRIOR, order) for order in itertools.permutations(data)]
    for belief in beliefs[1:]:
        np.testing.assert_array_equal(belief.weights, beliefs[0].weights)


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


def test_a_known_target_is_one_more_measurement() -> None:
    alone = believe(PRIOR, (), 0.9, 5)
    assert (alone.target_accuracy, alone.target_runs) == (pytest.approx(0.9), 5)
    both = believe(PRIOR, (Datum(LAST, 0.912),), 0.9, 5)
    assert both.target_accuracy == pytest.approx(0.902)
    assert both.target_runs == 6


def test_what_is_never_seen_has_no_probability_of_its_own() -> None:
    found = outlook(believe(PRIOR, BASELINE))
    assert found.answers().sum() == pytest.approx(1)
    assert found.good_probabilities[LAST] == pytest.approx(1)
    assert found.times[LAST] == pytest.approx(1)
