"""The belief about a job: guesses of its behaviour, weighted by the runs so far.

A pure function of the observations, whatever their order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncswitch.searcher.strategies.adaptive.guesses import (
    Floats,
    Guesses,
    Prior,
    first_guesses,
    guesses_at,
    prior_log_weights,
)
from syncswitch.storage.records.goal import Goal
from syncswitch.storage.records.guard import SURE_OF_INFERRED

# If fewer guesses than this stay effective, new ones are drawn.
_LEAST_EFFECTIVE = 100.0
DIVERGING_SHARE = 0.5
"""Share of the runs that fail which diverge; the others end anywhere below, evenly by octave."""

# Likelihoods of what should not happen: a bad guess stays possible, so that any history has one.
_STRANGE_RUN = 1e-8
_DIVERGED_WITHOUT_FAILURE = 1e-6
_DIVERGED_BELOW_KNEE = 1e-3
_SAMPLES = 512


@dataclass(frozen=True, slots=True, order=True)
class Datum:
    """One run that counts, at this index of the grid.

    A guard ended one that `failed`: it lost more than beta, and nobody knows how much. One
    that is `unjudged`, as there is no threshold, did not diverge; nobody knows whether it lost any.
    """

    index: int
    accuracy: float
    diverged: bool = False
    failed: bool = False
    unjudged: bool = False


@dataclass(frozen=True, eq=False)
class Belief:
    """Guesses of a prior, weighted by what was observed.

    Attributes:
        guesses: The first guesses, or those drawn around the likely ones.
        weights: (P,) weights of the guesses, which sum to 1.
        reference: Mean accuracy of the runs of the first protocol alone, known ones included;
            without any, that of the best run with a switch; None without a whole run.
        measured: What the first protocol alone reaches; None where no run has measured it.
        target_errors: (P,) by how much the true target lies above the reference.
    """

    prior: Prior
    guesses: Guesses
    weights: Floats
    reference: float | None
    measured: Goal | None
    target_errors: Floats

    @property
    def target_accuracy(self) -> float | None:
        """The measured target; None where no run of the first protocol alone has measured one."""
        return None if self.measured is None else self.measured.accuracy

    def target(self) -> tuple[float, float]:
        """The target of guards, and how much more than the threshold they let through.

        Where workers keep their own momentum, runs with an early switch tell much of it, too.
        It needs a measured target.
        """
        assert self.measured is not None
        if not self.prior.owns_momentum:
            return self.measured.accuracy, self.measured.margin
        mean = float(self.mean(self.target_errors))
        deviation = math.sqrt(float(self.mean((self.target_errors - mean) ** 2)))
        return self.measured.accuracy + mean, SURE_OF_INFERRED * deviation

    def mean(self, values: Floats) -> Floats:
        """Expected values; the first axis is that of the guesses."""
        # Not BLAS, whose threads wait for each other longer than such small sums take.
        expected: Floats = np.einsum("p,p...->...", self.weights, values)
        return expected

    def sample(self) -> npt.NDArray[np.intp]:
        """(512,) guesses as likely as their weights.

        The sample is systematic, not random, so that the same belief asks for the same run.
        """
        return _systematic_sample(self.weights, _SAMPLES)


def _systematic_sample(weights: Floats, size: int) -> npt.NDArray[np.intp]:
    places = (np.arange(size) + 0.5) / size
    return np.searchsorted(np.cumsum(weights), places).clip(0, len(weights) - 1)


def believe(
    prior: Prior, data: Iterable[Datum], known_target: float | None = None, known_runs: int = 0
) -> Belief:
    """Returns the belief after some runs, which may come in any order.

    `known_target` is the mean accuracy of `known_runs` earlier runs of the first protocol alone.
    """
    # In a fixed order, so that rounding is the same whatever the order of the runs.
    ordered = tuple(sorted(data))
    return _believed(prior, ordered, () if known_target is None else (known_target,) * known_runs)


@dataclass(frozen=True)
class _Anchor:
    """What tells where the target lies: runs of the first protocol alone, or else the best run.

    Its runs switched at this `index` of the grid. A known mean counts for each run behind it among
    the `accuracies`, and once among those that were `measured`.
    """

    index: int
    accuracies: tuple[float, ...]
    measured: int

    @property
    def mean(self) -> float:
        return math.fsum(self.accuracies) / len(self.accuracies)

    def target_errors(self, prior: Prior, guesses: Guesses) -> Floats:
        """(P,) by how much the true target lies above the mean."""
        sd = guesses.spread[:, self.index]
        if self.index == len(prior.grid) - 1:
            errors: Floats = guesses.target_z * sd / math.sqrt(len(self.accuracies))
            return errors
        return _target_above(prior, guesses, self.index)

    def log_weights(self, guesses: Guesses) -> Floats:
        """(P,) logarithm of the likelihood of its runs, wherever the target lies."""
        sd = guesses.spread[:, self.index]
        squares = math.fsum((accuracy - self.mean) ** 2 for accuracy in self.accuracies)
        log_weights: Floats = (1 - self.measured) * np.log(sd) - squares / (2 * sd**2)
        # It did not diverge.
        return log_weights + np.log1p(-DIVERGING_SHARE * guesses.failures[:, self.index])


def _target_above(prior: Prior, guesses: Guesses, index: int) -> Floats:
    """(P,) by how much the target lies above what a run with a switch reached.

    Nothing else is known of the target, so that is what such a run loses: as usual, or as one of
    those that fail and do not diverge.
    """
    from scipy.special import ndtr, ndtri

    u = ndtr(guesses.target_z)
    ending = (1 - DIVERGING_SHARE) * guesses.failures[:, index]
    usual = (1 - guesses.failures[:, index]) / (1 - guesses.failures[:, index] + ending)
    z = ndtri(np.minimum(u / np.maximum(usual, 1e-6), 1 - 1e-6))
    octaves = math.log(prior.largest_loss) - math.log(prior.threshold)
    beyond = (u - usual) / np.maximum(1 - usual, 1e-6)
    errors: Floats = np.where(
        u < usual,
        guesses.losses[:, index] + guesses.spread[:, index] * z,
        prior.threshold * np.exp(octaves * beyond.clip(0, 1)),
    )
    return errors


def _anchor_of(last: int, whole: Sequence[Datum], earlier: tuple[float, ...]) -> _Anchor | None:
    baseline = [datum.accuracy for datum in whole if datum.index == last]
    if baseline or earlier:
        # A known mean is one measurement, whatever the number of runs behind it.
        return _Anchor(last, (*baseline, *earlier), len(baseline) + bool(earlier))
    if not whole:
        return None
    best = max(whole, key=lambda datum: (datum.accuracy, datum.index))
    return _Anchor(best.index, (best.accuracy,), 1)


@functools.lru_cache(maxsize=4096)
def _believed(prior: Prior, ordered: tuple[Datum, ...], earlier: tuple[float, ...]) -> Belief:
    last = len(prior.grid) - 1
    candidates = [datum for datum in ordered if datum.index < last]
    diverged = [datum.index for datum in candidates if datum.diverged]
    failed = [datum.index for datum in candidates if datum.failed and not datum.diverged]
    unjudged = [datum.index for datum in candidates if datum.unjudged]
    whole = [datum for datum in ordered if not (datum.diverged or datum.failed or datum.unjudged)]
    anchor = _anchor_of(last, whole, earlier)
    is_measured = anchor is not None and anchor.index == last
    compared = [datum for datum in whole if datum.index < last]
    if anchor is not None and anchor.index < last:
        compared.remove(Datum(anchor.index, anchor.accuracies[0]))

    def errors_of(guesses: Guesses) -> Floats:
        if anchor is None:
            return np.zeros(len(guesses.cube))
        return anchor.target_errors(prior, guesses)

    def log_weights_of(guesses: Guesses) -> Floats:
        """(P,) logarithm of the likelihood, up to a constant."""
        log_weights = prior_log_weights(prior, guesses)
        error = errors_of(guesses)
        if anchor is not None:
            log_weights += anchor.log_weights(guesses)
            for datum in compared:
                losses = anchor.mean - datum.accuracy + error
                log_weights += np.log(_likelihood(prior, guesses, datum.index, losses))
        for index in diverged:
            likelihood = DIVERGING_SHARE * guesses.failures[:, index] + _DIVERGED_WITHOUT_FAILURE
            likelihood += _DIVERGED_BELOW_KNEE * (guesses.losses[:, index] > prior.threshold)
            log_weights += np.log(likelihood)
        for index in failed:
            most = error if is_measured else np.zeros(len(guesses.cube))
            log_weights += np.log(_failing_share(prior, guesses, index, most))
        for index in unjudged:
            log_weights += np.log1p(-DIVERGING_SHARE * guesses.failures[:, index])
        return log_weights

    guesses = first_guesses(prior)
    log_weights = log_weights_of(guesses)
    weights = _weights(log_weights)
    if effective_size(weights) < _LEAST_EFFECTIVE:
        cube = renewed(
            guesses.cube, lambda cube: log_weights_of(guesses_at(prior, cube)), log_weights
        )
        guesses = guesses_at(prior, cube)
        weights = np.full(len(cube), 1 / len(cube))
    measured: Goal | None = None
    if anchor is not None and is_measured:
        measured = Goal.mean_of(anchor.accuracies, prior.threshold, anchor.measured)
    reference = None if anchor is None else anchor.mean
    return Belief(prior, guesses, weights, reference, measured, errors_of(guesses))


def _likelihood(prior: Prior, guesses: Guesses, index: int, losses: Floats) -> Floats:
    failures, sd = guesses.failures[:, index], guesses.spread[:, index]
    z = (losses - guesses.losses[:, index]) / sd
    usual = (1 - failures) * np.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * sd)
    # Evenly over the logarithm of the loss, from beta to the largest.
    octaves = math.log(prior.largest_loss) - math.log(prior.threshold)
    spread = np.maximum(losses, prior.threshold) * octaves
    failed = (1 - DIVERGING_SHARE) * failures / spread
    likelihood: Floats = usual + np.where(losses > prior.threshold, failed, 0.0) + _STRANGE_RUN
    return likelihood


def _failing_share(prior: Prior, guesses: Guesses, index: int, error: Floats) -> Floats:
    """(P,) share of runs that lose more than beta against the measured target, as guards do."""
    from scipy.special import ndtr

    most = prior.threshold + error - guesses.losses[:, index]
    kept = (1 - guesses.failures[:, index]) * ndtr(most / guesses.spread[:, index])
    share: Floats = 1 - kept + _STRANGE_RUN
    return share


def effective_size(weights: Floats) -> float:
    """The effective number of guesses, given weights that sum to 1."""
    return 1.0 / float(np.einsum("p,p->", weights, weights))


def _weights(log_weights: Floats, step: float = 1.0) -> Floats:
    weights: Floats = np.exp(step * (log_weights - log_weights.max()))
    weights /= weights.sum()
    return weights


_SEED = 20_260_722
# Every step lets in so much of the evidence that this share of the guesses stays effective.
_EFFECTIVE_SHARE = 0.5
_MOVES = 4
# With equal weights these say more than most sets of first guesses do.
_GUESSES = 1024
_MOST_STEPS = 40
# Share of a guess's numbers that change in a move, and share of the moves that go anywhere.
_CHANGED = 0.3
_ANYWHERE = 0.15


def renewed(
    cube: Floats, log_weights_at: Callable[[Floats], Floats], log_weights: Floats
) -> Floats:
    """Draws guesses of equal weight that are as likely as the evidence says.

    If so much was measured that only a few of the first guesses are left, these few would be sure
    of themselves, whatever they say. Others are therefore drawn around them by sequential Monte
    Carlo with Metropolis moves: the evidence is let in step by step. The result is the same at
    every call.

    `log_weights_at` returns the (P,) logarithm of the likelihood of (P, d) points, `log_weights` is
    that of the first guesses, which are spread evenly over the unit cube. (1024, d) are drawn.
    """
    chance = np.random.default_rng(_SEED)
    share = 0.0
    for _ in range(_MOST_STEPS):
        step = _next_step(log_weights, 1.0 - share)
        share += step
        chosen = _systematic_sample(_weights(log_weights, step), _GUESSES)
        cube, log_weights = cube[chosen], log_weights[chosen]
        for _ in range(_MOVES):
            cube, log_weights = _moved(cube, log_weights, log_weights_at, share, chance)
        if share >= 1.0:
            break
    return cube


def _next_step(log_weights: Floats, most: float) -> float:
    # The largest part of the evidence that leaves enough of the guesses effective.
    least = _EFFECTIVE_SHARE * len(log_weights)

    def leaves_enough(step: float) -> bool:
        return effective_size(_weights(log_weights, step)) >= least

    if leaves_enough(most):
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        if leaves_enough(middle):
            low = middle
        else:
            high = middle
    return high


def _moved(
    cube: Floats,
    log_weights: Floats,
    log_weights_at: Callable[[Floats], Floats],
    share: float,
    chance: np.random.Generator,
) -> tuple[Floats, Floats]:
    number, dimensions = cube.shape
    # Differences of two other guesses have the scale and the shape of what is likely.
    one, other = cube[chance.permutation(number)], cube[chance.permutation(number)]
    length = chance.choice([0.1, 0.4, 1.0], (number, 1))
    changes = chance.random((number, dimensions)) < _CHANGED
    steps = length * (one - other) + 1e-3 * chance.standard_normal((number, dimensions))
    # Back into the unit cube, as if its walls were mirrors.
    proposed: Floats = 1.0 - np.abs(1.0 - np.mod(cube + changes * steps, 2.0))
    anywhere = chance.random((number, dimensions)) < 1.5 / dimensions
    is_anywhere = chance.random((number, 1)) < _ANYWHERE
    drawn = chance.random((number, dimensions))
    proposed = np.where(is_anywhere, np.where(anywhere, drawn, cube), proposed)
    new_weights = log_weights_at(proposed)
    is_taken = np.log(chance.random(number)) < share * (new_weights - log_weights)
    return np.where(is_taken[:, None], proposed, cube), np.where(is_taken, new_weights, log_weights)
