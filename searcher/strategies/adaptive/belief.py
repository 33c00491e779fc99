"""The belief about a job: guesses of its behaviour, weighted by the runs so far.

A pure function of the observations, whatever their order. Where so much was measured that few of
the first guesses are left, others are drawn around them (see `renewal`): a few guesses would be
sure of themselves, whatever they say.
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
)

_SEED = 20_260_722
# A step lets in so much that this share of the guesses stays effective.
_EFFECTIVE_SHARE = 0.5
_MOVES = 4
# Of equal weight these say more than most of the first ones ever do.
_GUESSES = 1024
_MOST_STEPS = 40
# Of a guess's numbers, those that change in a move; of the moves, those that go anywhere.
_CHANGED = 0.3
_ANYWHERE = 0.15


def effective_size(weights: Floats) -> float:
    """The effective number of guesses, given weights that sum to 1."""
    return 1.0 / float(np.einsum("p,p->", weights, weights))


def renewed(
    cube: Floats, log_weights_at: Callable[[Floats], Floats], log_weights: Floats
) -> Floats:
    """Guesses of equal weight, as likely as the evidence says; the same at every call.

    Args:
        cube: (P, d) the first ones, even over the unit cube.
        log_weights_at: (P,) logarithm of the likelihood of (P, d) points.
        log_weights: Of the first ones.

    Returns:
        (P, d) points, none of much weight of its own.
    """
    chance = np.random.default_rng(_SEED)
    share = 0.0
    for _ in range(_MOST_STEPS):
        step = _next_step(log_weights, 1.0 - share)
        share += step
        chosen = _resampled(log_weights, step)
        cube, log_weights = cube[chosen], log_weights[chosen]
        for _ in range(_MOVES):
            cube, log_weights = _moved(cube, log_weights, log_weights_at, share, chance)
        if share >= 1.0:
            break
    return cube


def _next_step(log_weights: Floats, most: float) -> float:
    """The largest part of the evidence that leaves enough of the guesses effective."""
    if _effective_after(log_weights, most) >= _EFFECTIVE_SHARE:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        if _effective_after(log_weights, middle) >= _EFFECTIVE_SHARE:
            low = middle
        else:
            high = middle
    return high


def _effective_after(log_weights: Floats, step: float) -> float:
    weights = _weights(log_weights, step)
    return effective_size(weights) / len(weights)


def _weights(log_weights: Floats, step: float = 1.0) -> Floats:
    weights: Floats = np.exp(step * (log_weights - log_weights.max()))
    weights /= weights.sum()
    return weights


def _resampled(log_weights: Floats, step: float) -> np.typing.NDArray[np.intp]:
    places = (np.arange(_GUESSES) + 0.5) / _GUESSES
    ends = np.cumsum(_weights(log_weights, step))
    return np.searchsorted(ends, places).clip(0, len(log_weights) - 1)


def _moved(
    cube: Floats,
    log_weights: Floats,
    log_weights_at: Callable[[Floats], Floats],
    share: float,
    chance: np.random.Generator,
) -> tuple[Floats, Floats]:
    """One Metropolis move of every guess, under the evidence let in so far."""
    number, dimensions = cube.shape
    # Differences of two other guesses have the scale and the shape of what is likely.
    one, other = cube[chance.permutation(number)], cube[chance.permutation(number)]
    length = chance.choice([0.1, 0.4, 1.0], (number, 1))
    changes = chance.random((number, dimensions)) < _CHANGED
    steps = length * (one - other) + 1e-3 * chance.standard_normal((number, dimensions))
    proposed = _folded(cube + changes * steps)
    anywhere = chance.random((number, dimensions)) < 1.5 / dimensions
    is_anywhere = chance.random((number, 1)) < _ANYWHERE
    drawn = chance.random((number, dimensions))
    proposed = np.where(is_anywhere, np.where(anywhere, drawn, cube), proposed)
    found = log_weights_at(proposed)
    is_taken = np.log(chance.random(number)) < share * (found - log_weights)
    return np.where(is_taken[:, None], proposed, cube), np.where(is_taken, found, log_weights)


def _folded(points: Floats) -> Floats:
    """Back into the unit cube, as if its walls were mirrors."""
    folded: Floats = 1.0 - np.abs(1.0 - np.mod(points, 2.0))
    return folded


# With fewer effective guesses than this, new ones are drawn.
_LEAST_EFFECTIVE = 100.0
# Of runs that fail, half diverge; the others end anywhere below, as likely in every octave.
_DIVERGING_SHARE = 0.5
# Likelihoods of what should not be: a bad guess stays possible, so that any history has one.
_STRANGE_RUN = 1e-8
_DIVERGED_WITHOUT_FAILURE = 1e-6
_DIVERGED_BELOW_KNEE = 1e-3
_SAMPLES = 512


@dataclass(frozen=True, slots=True)
class Datum:
    """One run that counts.

    Attributes:
        index: Position of its switch point in the grid.
        failed: A guard ended it: it lost more than beta, and nobody knows how much.
    """

    index: int
    accuracy: float
    diverged: bool = False
    failed: bool = False


@dataclass(frozen=True, eq=False)
class Belief:
    """The guesses, weighted by what was observed.

    Attributes:
        guesses: As drawn at first, or renewed.
        weights: (P,) sum to 1.
        largest_loss: The most accuracy that a run can lose.
        target_accuracy: Mean of the runs of the first protocol alone, or what was known.
    """

    threshold: float
    largest_loss: float
    guesses: Guesses
    weights: Floats
    target_accuracy: float
    target_runs: int

    def target_errors(self) -> Floats:
        """(P,) by how much the true target lies above the measured one."""
        errors: Floats = (
            self.guesses.target_z * self.guesses.scatter[:, -1] / math.sqrt(self.target_runs)
        )
        return errors

    def mean(self, values: Floats) -> Floats:
        """Expected values; the first axis is that of the guesses."""
        # Not BLAS: its threads wait longer for each other than such small sums take.
        expected: Floats = np.einsum("p,p...->...", self.weights, values)
        return expected

    def sample(self) -> npt.NDArray[np.intp]:
        """(512,) guesses as likely as their weights.

        Systematic, without chance, so that the same belief asks for the same run.
        """
        places = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        last = len(self.weights) - 1
        return np.searchsorted(np.cumsum(self.weights), places).clip(0, last)


def believe(
    prior: Prior, data: Iterable[Datum], known_target: float | None = None, known_runs: int = 0
) -> Belief:
    """The belief after some runs, which may come in any order.

    Args:
        prior: The job.
        data: The runs; one at least is of the first protocol alone and did not diverge, unless the
            target is known.
        known_target: Mean accuracy of earlier runs of the first protocol alone.
        known_runs: How many these were.
    """
    # In a fixed order, so that rounding is the same whatever the order of the runs.
    ordered = sorted(data, key=_order)
    return _believed(
        prior, tuple(ordered), () if known_target is None else (known_target,) * known_runs
    )


def _order(datum: Datum) -> tuple[int, float, bool, bool]:
    return (datum.index, datum.accuracy, datum.diverged, datum.failed)


@functools.lru_cache(maxsize=4096)
def _believed(prior: Prior, ordered: tuple[Datum, ...], earlier: tuple[float, ...]) -> Belief:
    evidence = _Evidence.of(prior, ordered, earlier)
    guesses = first_guesses(prior)
    log_weights = evidence.log_weights(guesses)
    weights = _weights(log_weights)
    if effective_size(weights) < _LEAST_EFFECTIVE:
        cube = renewed(
            guesses.cube, lambda cube: evidence.log_weights(guesses_at(prior, cube)), log_weights
        )
        guesses = guesses_at(prior, cube)
        weights = np.full(len(cube), 1 / len(cube))
    return Belief(
        threshold=prior.threshold,
        largest_loss=prior.largest_loss,
        guesses=guesses,
        weights=weights,
        target_accuracy=evidence.target,
        target_runs=evidence.target_runs,
    )


@dataclass(frozen=True, eq=False)
class _Evidence:
    """One measurement, as the weights need it.

    Attributes:
        freedom: Degrees of freedom of the scatter around the target.
        squares: Sum of squares around it.
        losses: Of each run of a candidate that did not diverge, against the target.
        indexes: Their switch points.
        diverged: Switch points of those that did.
        failed: Switch points of those that a guard ended.
    """

    threshold: float
    largest_loss: float
    target: float
    target_runs: int
    freedom: int
    squares: float
    losses: Floats
    indexes: npt.NDArray[np.intp]
    diverged: npt.NDArray[np.intp]
    failed: npt.NDArray[np.intp]

    @classmethod
    def of(cls, prior: Prior, ordered: Sequence[Datum], earlier: Sequence[float]) -> _Evidence:
        last = len(prior.grid) - 1
        whole = [datum for datum in ordered if not (datum.diverged or datum.failed)]
        baseline = [datum.accuracy for datum in whole if datum.index == last]
        target = math.fsum([*baseline, *earlier]) / (len(baseline) + len(earlier))
        candidates = [datum for datum in whole if datum.index < last]
        lost = [datum for datum in ordered if datum.index < last]
        diverged = [datum.index for datum in lost if datum.diverged]
        failed = [datum.index for datum in lost if datum.failed and not datum.diverged]
        return cls(
            threshold=prior.threshold,
            largest_loss=prior.largest_loss,
            target=target,
            target_runs=len(baseline) + len(earlier),
            # A known mean is one measurement, whatever the number of runs behind it.
            freedom=len(baseline) + bool(earlier) - 1,
            squares=math.fsum((accuracy - target) ** 2 for accuracy in [*baseline, *earlier]),
            losses=np.array([target - datum.accuracy for datum in candidates]),
            indexes=np.array([datum.index for datum in candidates], dtype=np.intp),
            diverged=np.array(diverged, dtype=np.intp),
            failed=np.array(failed, dtype=np.intp),
        )

    def log_weights(self, guesses: Guesses) -> Floats:
        """(P,) logarithm of the likelihood, up to a constant."""
        sd = guesses.scatter[:, -1]
        log_weights: Floats = -self.freedom * np.log(sd)
        log_weights -= self.squares / (2 * sd**2)
        error = guesses.target_z * sd / math.sqrt(self.target_runs)
        for index, loss in zip(self.indexes, self.losses, strict=True):
            log_weights += np.log(self._likelihood(guesses, index, loss + error))
        for index in self.diverged:
            likelihood = _DIVERGING_SHARE * guesses.failures[:, index] + _DIVERGED_WITHOUT_FAILURE
            likelihood += _DIVERGED_BELOW_KNEE * (guesses.losses[:, index] > self.threshold)
            log_weights += np.log(likelihood)
        for index in self.failed:
            log_weights += np.log(self._failing_share(guesses, index, error))
        return log_weights

    def _failing_share(self, guesses: Guesses, index: int, error: Floats) -> Floats:
        """(P,) of losing more than beta against the measured target, which a guard goes by."""
        from scipy.special import ndtr

        most = self.threshold + error - guesses.losses[:, index]
        kept = (1 - guesses.failures[:, index]) * ndtr(most / guesses.scatter[:, index])
        share: Floats = 1 - kept + _STRANGE_RUN
        return share

    def _likelihood(self, guesses: Guesses, index: int, losses: Floats) -> Floats:
        """(P,) of a run that lost so much, given each guess's target."""
        failures, sd = guesses.failures[:, index], guesses.scatter[:, index]
        z = (losses - guesses.losses[:, index]) / sd
        usual = (1 - failures) * np.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * sd)
        # Evenly over the logarithm of the loss, from beta to the largest.
        octaves = math.log(self.largest_loss) - math.log(self.threshold)
        spread = np.maximum(losses, self.threshold) * octaves
        failed = (1 - _DIVERGING_SHARE) * failures / spread
        likelihood: Floats = usual + np.where(losses > self.threshold, failed, 0.0) + _STRANGE_RUN
        return likelihood
