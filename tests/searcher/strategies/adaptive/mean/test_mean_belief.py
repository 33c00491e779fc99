"""The belief: against the same posterior worked out in other ways, and laws that it keeps to."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import entropy, multivariate_normal

from syncswitch.searcher.strategies.adaptive.evidence import Datum, Floats, KnownTarget, Prior
from syncswitch.searcher.strategies.adaptive.mean.belief import (
    MeanBelief,
    information,
    predicted,
    update,
)
from tests.benchmarks.generated_problems import generated_problem

GRID = (3.125, 6.25, 12.5, 25.0, 50.0, 100.0)
LAST = len(GRID) - 1
BETA = 0.01
PRIOR = Prior(GRID, BETA)

# What a strategy takes for sure.
SURE = 0.86

# The model, said again.
SHARED_CORRELATION = 0.3
DIVERGED_LOG_ODDS = -6.0
TOO_BAD = 5 * BETA
STEP_SHARE = 0.2

BASELINE = Datum(LAST, 0.92)
SIBLINGS = [BASELINE, Datum(3, 0.913), Datum(2, 0.911), Datum(3, 0.916, replicate=1)]
RANGE = Prior((0.2, 0.3, 0.5, 0.9), 0.05)
CASES: dict[str, tuple[Prior, list[Datum], KnownTarget | None]] = {
    "baseline alone": (PRIOR, [BASELINE], None),
    "replicates": (
        PRIOR,
        [BASELINE, Datum(LAST, 0.925, replicate=1), Datum(2, 0.912, replicate=2)],
        None,
    ),
    "siblings": (PRIOR, SIBLINGS, None),
    "known target": (PRIOR, [Datum(2, 0.905), Datum(3, 0.916)], KnownTarget(0.921, 5)),
    "known target alone": (PRIOR, [], KnownTarget(0.921, 5)),
    "diverged": (PRIOR, [*SIBLINGS, Datum(1, 0.1, diverged=True)], None),
    "diverged twice": (
        PRIOR,
        [BASELINE, *(Datum(2, 0.1, diverged=True, replicate=n) for n in (1, 2))],
        None,
    ),
    "diverged alone": (PRIOR, [Datum(1, 0.1, diverged=True)], None),
    "another range": (RANGE, [Datum(3, 0.8), Datum(1, 0.7), Datum(1, 0.6, replicate=1)], None),
}


@pytest.mark.parametrize(("prior", "data", "known"), CASES.values(), ids=CASES.keys())
def test_each_curve_weighs_what_its_likelihood_says(
    prior: Prior, data: list[Datum], known: KnownTarget | None
) -> None:
    belief = update(prior, data, known)
    likely = np.flatnonzero(belief.weights > 1e-10 * belief.weights.max())[::16]
    assert len(likely) > 100
    expected = log_posterior(belief, likely, prior, data, known)
    # They are proportional: what they differ by is the same for every curve.
    difference = np.log(belief.weights[likely]) - expected
    assert difference == pytest.approx(difference[0], abs=1e-3)
    assert math.fsum(belief.weights) == pytest.approx(1)


def log_posterior(
    belief: MeanBelief,
    chosen: NDArray[np.intp],
    prior: Prior,
    data: Sequence[Datum],
    known: KnownTarget | None,
) -> Floats:
    """Of some particles; the target is normal with a deviation of 10, so it may be anything."""
    measured = [datum for datum in data if not datum.diverged]
    share = [prior.grid[datum.index] / prior.grid[-1] for datum in measured]
    values = [datum.accuracy for datum in measured]
    losses = belief.particles.losses[np.ix_(chosen, [datum.index for datum in measured])]
    covariance = np.eye(len(measured) + (known is not None))
    for i, one in enumerate(measured):
        for j, other in enumerate(measured):
            if i != j and one.replicate == other.replicate:
                covariance[i, j] = SHARED_CORRELATION * min(share[i], share[j])
    if known is not None:
        covariance[-1, -1] = 1 / known.runs
        values.append(known.accuracy)
        losses = np.pad(losses, ((0, 0), (0, 1)))
    result: Floats = np.zeros(len(chosen))
    if values:
        for index, sd in enumerate(belief.particles.sd[chosen]):
            runs = multivariate_normal(0.9 - losses[index], sd**2 * covariance + 10.0**2)
            result[index] += runs.logpdf(values)
    for datum in data:
        if datum.diverged:
            lost = belief.particles.losses[chosen, datum.index]
            result += np.where(lost <= prior.threshold, DIVERGED_LOG_ODDS, 0.0)
    return result


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [(LAST, 0.92), (3, 0.915)],
        [(LAST, 0.92), (3, 0.915), (2, 0.905), (LAST, 0.925)],
        [(LAST, 0.92), (2, 0.9), (3, 0.918), (3, 0.91), (LAST, 0.925), (2, 0.893)],
        [(LAST, 0.92), (0, 0.92), (0, 0.913)],
        [(LAST, 0.92), (4, 0.91), (4, 0.912), (LAST, 0.921)],
        [(LAST, 0.92), (2, 0.67), (3, 0.92)],
    ],
)
def test_the_answer_is_as_likely_as_among_a_hundred_times_as_many_curves(
    runs: list[tuple[int, float]],
) -> None:
    losses, sd = drawn_curves(400_000)
    log_weights = np.zeros(len(sd))
    if runs:
        accuracies = np.array([accuracy for _, accuracy in runs])
        residuals = accuracies + losses[:, [index for index, _ in runs]]
        squares = len(runs) * residuals.var(axis=1)  # around the target that fits best
        log_weights = -(len(runs) - 1) * np.log(sd) - squares / (2 * sd**2)
    weights = np.exp(log_weights - log_weights.max())
    expected = np.bincount(np.argmax(losses <= BETA, axis=1), weights, len(GRID)) / weights.sum()
    belief = update(PRIOR, [Datum(i, a, replicate=number) for number, (i, a) in enumerate(runs)])
    assert belief.answers() == pytest.approx(expected, abs=0.03)


def drawn_curves(number: int) -> tuple[Floats, Floats]:
    """Losses (number, m) and standard deviations (number,), drawn from the prior by chance."""
    chance = np.random.default_rng(5)
    octaves = np.log2(GRID[-1] / np.array(GRID))
    knee = chance.uniform(0, octaves[0] + 1, (number, 1))
    slope = BETA * np.exp(chance.uniform(math.log(0.5), math.log(30), (number, 1)))
    losses = slope * np.maximum(0, octaves - knee)
    step = BETA * np.exp(chance.uniform(math.log(0.3), math.log(90), (number, 1)))
    is_step = chance.random((number, 1)) < STEP_SHARE
    losses = np.where(is_step, step * (octaves > knee), losses)
    bends = 0.15 * BETA * chance.exponential(size=(number, LAST))
    bends *= chance.random((number, 1)) < 0.5
    losses[:, :-1] += np.cumsum(bends[:, ::-1], axis=1)[:, ::-1]
    return losses, BETA / 2 * np.exp(0.4 * chance.standard_normal(number))


def test_a_known_target_is_as_sure_as_its_runs() -> None:
    mean, deviation = update(PRIOR, [], KnownTarget(0.921, 5)).target()
    assert mean == pytest.approx(0.921)
    # The noise is log-normal around beta / 2, with a deviation of 0.4.
    assert deviation == pytest.approx(BETA / 2 * math.exp(0.4**2) / math.sqrt(5), rel=0.01)


def runs_of(number: int, cells: Sequence[tuple[int, int]]) -> list[Datum]:
    """Runs of a generated job at some switch points and replicates."""
    job = generated_problem(number)
    runs = [(index, replicate, job.run_at(GRID[index], replicate)) for index, replicate in cells]
    return [
        Datum(i, run.accuracy, run.diverged, replicate=r) for i, r, run in runs if run is not None
    ]


CELLS = st.tuples(st.integers(0, LAST), st.integers(0, 2))
HISTORIES = st.builds(
    lambda number, cells: runs_of(number, [(LAST, 0), *(c for c in cells if c != (LAST, 0))]),
    st.integers(0, 10_000),
    st.lists(CELLS, max_size=8, unique=True),
)
KNOWN = st.none() | st.builds(KnownTarget, st.sampled_from([0.9, 0.92, 0.93]), st.integers(1, 10))
INDEXES = st.integers(0, LAST)


@given(HISTORIES, KNOWN, st.floats(0, 1))
def test_an_earlier_switch_point_is_never_more_acceptable(
    data: list[Datum], known: KnownTarget | None, slack: float
) -> None:
    belief = update(PRIOR, data, known)
    answers, acceptable = belief.answers(), belief.acceptable()
    assert (np.diff(acceptable) >= 0).all()
    assert acceptable[-1] == pytest.approx(1)
    assert math.fsum(answers) == pytest.approx(1)
    assert np.cumsum(answers) == pytest.approx(acceptable)
    assert (belief.acceptable(slack * BETA) >= acceptable - 1e-12).all()
    exact = [belief.right(index, 0.0) for index in range(LAST + 1)]
    assert exact == pytest.approx(list(answers))
    about = [belief.right(index, slack * BETA) for index in range(LAST + 1)]
    assert all(a >= e - 1e-12 for a, e in zip(about, exact, strict=True))


@given(HISTORIES, KNOWN, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter_in_the_last_bit(
    data: list[Datum], known: KnownTarget | None, chance: random.Random
) -> None:
    shuffled = list(data)
    chance.shuffle(shuffled)
    one, other = update(PRIOR, data, known), update(PRIOR, shuffled, known)
    assert (one.weights == other.weights).all()
    assert one.target() == other.target()


@given(HISTORIES, KNOWN, st.floats(-0.3, 0.3))
def test_only_differences_of_accuracy_matter(
    data: list[Datum], known: KnownTarget | None, shift: float
) -> None:
    there = [Datum(d.index, d.accuracy + shift, d.diverged, replicate=d.replicate) for d in data]
    known_there = known and KnownTarget(known.accuracy + shift, known.runs)
    one, other = update(PRIOR, data, known), update(PRIOR, there, known_there)
    np.testing.assert_allclose(other.weights, one.weights, rtol=1e-6, atol=1e-12)
    moved, deviation = one.target()
    assert other.target() == pytest.approx((moved + shift, deviation))


@given(HISTORIES)
def test_siblings_are_less_evidence_than_replicates(data: list[Datum]) -> None:
    runs = [datum for datum in data if not datum.diverged]
    assume(len({datum.replicate for datum in runs}) < len(runs))
    apart = [Datum(d.index, d.accuracy, replicate=number) for number, d in enumerate(runs)]
    one, other = update(PRIOR, runs), update(PRIOR, apart)
    # With the same noise, the variance of the target is one over this.
    assert one.effective_runs < other.effective_runs == pytest.approx(len(runs))


@given(HISTORIES, INDEXES, st.sampled_from([-1, 0, 5]))
def test_a_diverged_run_lowers_its_switch_point_and_all_before(
    data: list[Datum], index: int, replicate: int
) -> None:
    before = update(PRIOR, data)
    after = update(PRIOR, [*data, Datum(index, 0.1, diverged=True, replicate=replicate)])
    was, now = before.acceptable(), after.acceptable()
    assert (now <= was + 1e-12).all()
    open_ = (was[: index + 1] > 1e-9) & (was[index] < 1 - 1e-9)
    assert (now[: index + 1][open_] < was[: index + 1][open_]).all()
    # Before it the odds fall as at the switch point itself, where they fall by e^6.
    if 1e-9 < was[index] < 1 - 1e-9:
        odds = was[index] / (1 - was[index]), now[index] / (1 - now[index])
        assert odds[1] / odds[0] == pytest.approx(math.exp(DIVERGED_LOG_ODDS))


def predictive(belief: MeanBelief, index: int) -> tuple[Floats, Floats]:
    """Expected accuracy (P,) of a run of a new replicate, and its standard deviation (P,)."""
    mean = belief.target_mean - belief.particles.losses[:, index]
    return mean, belief.particles.sd * math.sqrt(1 + 1 / belief.effective_runs)


@given(HISTORIES, INDEXES)
def test_nobody_can_expect_to_change_his_mind(data: list[Datum], index: int) -> None:
    """The expected belief after one more run is the belief before it."""
    belief = update(PRIOR, data)
    mean, sd = predictive(belief, index)
    likely = belief.weights > 1e-7
    low, high = (mean - 5 * sd)[likely].min(), (mean + 5 * sd)[likely].max()
    accuracies = np.linspace(low, high, 300)
    density = np.array(
        [belief.weights @ (np.exp(-0.5 * ((y - mean) / sd) ** 2) / sd) for y in accuracies]
    )
    density /= density.sum()
    told = density > 1e-5
    after = [
        update(PRIOR, [*data, Datum(index, float(y), replicate=77)]).answers()
        for y in accuracies[told]
    ]
    assert density[told] @ np.array(after) == pytest.approx(belief.answers(), abs=2e-3)


@given(HISTORIES, INDEXES)
def test_a_run_that_measures_what_was_expected_unsettles_nothing(
    data: list[Datum], index: int
) -> None:
    """It may take a sure verdict a little back, as it also moves the target, but not open it."""
    belief = update(PRIOR, data)
    was = float(belief.acceptable()[index])
    mean, _ = predictive(belief, index)
    expected = float(belief.weights @ mean)
    assume(was >= SURE or was <= 1 - SURE)
    now = float(update(PRIOR, [*data, Datum(index, expected, replicate=77)]).acceptable()[index])
    if was >= SURE:
        assert now > was - 0.05
    else:
        assert now < was + 0.05


@given(HISTORIES, INDEXES)
def test_what_a_run_may_measure_has_the_quantiles_of_what_is_believed(
    data: list[Datum], index: int
) -> None:
    belief = update(PRIOR, data)
    mean, sd = predictive(belief, index)
    low, middle, high = predicted(belief, index, (0.1, 0.5, 0.9))
    assert 0 <= low <= middle <= high <= 1
    if low > 0 and high < 1:
        for value, share in ((low, 0.1), (middle, 0.5), (high, 0.9)):
            below = np.array(
                [math.erf((value - m) / s / math.sqrt(2)) for m, s in zip(mean, sd, strict=True)]
            )
            assert belief.weights @ ((1 + below) / 2) == pytest.approx(share, abs=0.06)


class TestInformation:
    @given(HISTORIES, KNOWN)
    def test_it_is_never_negative_and_the_same_for_the_same_belief(
        self, data: list[Datum], known: KnownTarget | None
    ) -> None:
        indexes = list(range(LAST + 1))
        told = information(update(PRIOR, data, known), indexes)
        assert told.shape == (LAST + 1,)
        assert (told >= 0).all()
        assert (told == information(update(PRIOR, data[::-1], known), indexes)).all()
        # Nobody is told more than he does not know; the answers are known by 256 draws here.
        assert told.max() <= entropy(update(PRIOR, data, known).answers()) + 0.05
        alone = [float(information(update(PRIOR, data, known), [i])[0]) for i in indexes]
        assert alone == pytest.approx(list(told), abs=1e-9)

    @given(st.integers(1, LAST))
    def test_where_the_answer_is_certain_there_is_none(self, answer: int) -> None:
        means = [0.92 - 0.05 * max(0, answer - index) for index in range(LAST + 1)]
        data = [Datum(i, mean, replicate=n) for i, mean in enumerate(means) for n in range(8)]
        belief = update(PRIOR, data)
        assert belief.answers()[answer] == pytest.approx(1)
        assert information(belief, range(LAST + 1)) == pytest.approx(0, abs=1e-9)

    @given(HISTORIES, INDEXES)
    def test_it_is_the_mutual_information_of_run_and_answer(
        self, data: list[Datum], index: int
    ) -> None:
        """Computed with all curves; a run that is much too bad does not say how bad."""
        belief = update(PRIOR, data)
        _, sd = predictive(belief, index)
        mean = belief.target_mean - np.minimum(belief.particles.losses[:, index], TOO_BAD)
        likely = belief.weights > 1e-7
        low, high = (mean - 6 * sd)[likely].min(), (mean + 6 * sd)[likely].max()
        z = (np.linspace(low, high, 400)[None] - mean[likely, None]) / sd[likely, None]
        density = belief.weights[likely, None] * np.exp(-0.5 * z * z) / sd[likely, None]
        answer = belief.particles.first_within(BETA)[likely]
        joint = np.array([density[answer == i].sum(axis=0) for i in range(LAST + 1)])
        joint /= joint.sum()
        expected = entropy(joint.sum(axis=0)) + entropy(joint.sum(axis=1)) - entropy(joint.ravel())
        assert information(belief, [index])[0] == pytest.approx(expected, abs=0.12)
