"""What is believed of a job: accuracy at each switch point, noise and target, together.

The accuracy lost against the target, d(s), does not grow with the switch point s. It is zero above
a knee, and grows below it with the logarithm of s. Particles (knee, slope, noise) are drawn once
from the prior and weighted by the observations; the target itself is integrated out, with a flat
prior. So the belief is a function of the observations, whatever their order.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncswitch.searcher.strategies.adaptive.evidence import Datum, Floats, KnownTarget, Prior
from syncswitch.searcher.strategies.adaptive.mean.particles import Particles, draw_particles, pairs

# A switch point that diverges is acceptable with odds of 1 to 400 for each such run.
_DIVERGED_LOG_ODDS = -6.0
# Correlation between two runs of one replicate whose whole length is shared.
_SHARED_CORRELATION = 0.3
# Of the predictive distribution in `information`.
_SAMPLES = 256
_CELLS = 40
# By how much more than that a run is too bad tells nothing.
_RANGE_LOSS = 5.0
_RANGE_SDS = 3.5
# Quantiles of the normal distribution, in the middles of twenty equally likely parts.
_NORMAL = np.array([statistics.NormalDist().inv_cdf((part + 0.5) / 20) for part in range(20)])


@dataclass(frozen=True)
class MeanBelief:
    """The particles, weighted by what was observed.

    Attributes:
        weights: (P,) sums to 1.
        target_mean: (P,) expected target given the particle; zeros where nothing was measured.
        effective_runs: How many independent runs the target was measured with.
    """

    threshold: float
    particles: Particles
    weights: Floats
    target_mean: Floats
    effective_runs: float

    def acceptable(self, slack: float = 0.0) -> Floats:
        """(m,) probability that a switch point loses at most beta + slack."""
        answer: Floats = np.cumsum(self.answers(slack))
        return answer

    def answers(self, slack: float = 0.0) -> Floats:
        """(m,) probability that a switch point is the earliest that loses at most beta + slack."""
        earliest = self.particles.first_within(self.threshold + slack)
        settings = self.particles.losses.shape[1]
        answer: Floats = np.bincount(earliest, self.weights, settings).astype(float)
        return answer

    def right(self, index: int, slack: float) -> float:
        """Probability that a switch point is acceptable and the one before it is not.

        A loss that is `slack` from beta at most counts as either.
        """
        is_right = self.particles.first_within(self.threshold + slack) <= index
        if index:
            is_right &= self.particles.first_within(self.threshold - slack) >= index
        return float(self.weights[is_right].sum())

    def target(self) -> tuple[float, float]:
        """Mean and standard deviation of the target."""
        mean = float(self.weights @ self.target_mean)
        variance = self.weights @ (
            (self.target_mean - mean) ** 2 + self.particles.sd**2 / max(self.effective_runs, 1e-9)
        )
        return mean, math.sqrt(float(variance))


def update(prior: Prior, data: Sequence[Datum], known: KnownTarget | None = None) -> MeanBelief:
    """The belief after some runs, at most one for each switch point and replicate."""
    particles = draw_particles(prior)
    log_weights = np.zeros(len(particles.sd))
    for datum in data:
        if datum.diverged:
            acceptable = particles.first_within(prior.threshold) <= datum.index
            log_weights += _DIVERGED_LOG_ODDS * acceptable
    # In a fixed order, so that rounding is the same whatever the order of the runs.
    measured = sorted(
        (d for d in data if not d.diverged), key=lambda d: (d.replicate, d.index, d.accuracy)
    )
    target_mean, effective_runs = np.zeros(len(log_weights)), 0.0
    if measured or known:
        evidence = _target_evidence(prior, measured, known)
        effective_runs = evidence.effective_runs
        # Not BLAS: its threads wait longer for each other than such small sums take.
        shift = np.einsum("k,kp->p", evidence.shift, particles.products[: len(prior.grid)])
        target_mean = evidence.centre + shift
        spread = evidence.least_spread + np.einsum("k,kp->p", evidence.spread, particles.products)
        # One degree of freedom went into the target.
        log_weights -= (evidence.number - 1) * particles.log_sd + spread / (2 * particles.sd**2)
    weights = np.exp(log_weights - log_weights.max())
    return MeanBelief(
        threshold=prior.threshold,
        particles=particles,
        weights=weights / weights.sum(),
        target_mean=target_mean,
        effective_runs=effective_runs,
    )


def information(belief: MeanBelief, indexes: Sequence[int]) -> Floats:
    """What one more run at each of some switch points would tell of the answer, in nats.

    The mutual information between the run's accuracy and the index of the earliest acceptable
    switch point, 0 or more.
    """
    particles, chosen = belief.particles, _resampled(belief)
    answer = particles.first_within(belief.threshold)[chosen]
    by_answer = np.argsort(answer, kind="stable")
    chosen, answer = chosen[by_answer], answer[by_answer]
    sd = _predictive_sd(belief, chosen)
    losses = particles.losses[np.ix_(chosen, np.array(indexes))]
    mean = belief.target_mean[chosen, None] - np.minimum(losses, _RANGE_LOSS * belief.threshold)
    margin = _RANGE_SDS * sd.max()
    low, high = mean.min(axis=0) - margin, mean.max(axis=0) + margin
    cells = low[:, None] + (high - low)[:, None] * (np.arange(_CELLS) + 0.5) / _CELLS
    # (samples, switch points, cells) likelihood of each cell
    z = cells[None] - mean[:, :, None]
    z /= sd[:, None, None]
    z *= z
    z *= -0.5
    likelihood = np.exp(z, out=z)
    likelihood /= likelihood.sum(axis=2, keepdims=True) + 1e-300
    sizes = np.bincount(answer)
    sizes = sizes[sizes > 0]
    given = np.add.reduceat(likelihood, np.cumsum(sizes) - sizes) / sizes[:, None, None]
    shares = sizes / _SAMPLES
    total = np.einsum("g,gjc->jc", shares, given)
    gained = _entropy(total) - np.einsum("g,gj->j", shares, _entropy(given))
    told: Floats = np.maximum(gained, 0.0)
    return told


def predicted(belief: MeanBelief, index: int, quantiles: Sequence[float]) -> list[float]:
    """Quantiles of the accuracy that one more run at a switch point would measure."""
    likely = _likely_accuracies(belief, index)
    return list(map(float, np.quantile(likely, quantiles)))


def kept_share(belief: MeanBelief, index: int, least_accuracy: float) -> float:
    """Probability that one more run at a switch point measures at least so much."""
    return float(np.mean(_likely_accuracies(belief, index) >= least_accuracy))


def _likely_accuracies(belief: MeanBelief, index: int) -> Floats:
    """(samples, normal) of one more run at a switch point, all as likely."""
    chosen = _resampled(belief)
    mean = belief.target_mean[chosen] - belief.particles.losses[chosen, index]
    likely: Floats = mean[:, None] + _predictive_sd(belief, chosen)[:, None] * _NORMAL[None]
    return likely


def _resampled(belief: MeanBelief) -> npt.NDArray[np.intp]:
    """(samples,) particles as likely as their weights.

    Systematic, without chance, so that the same belief asks for the same run.
    """
    places = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
    last = len(belief.weights) - 1
    return np.searchsorted(np.cumsum(belief.weights), places).clip(0, last)


def _predictive_sd(belief: MeanBelief, chosen: npt.NDArray[np.intp]) -> Floats:
    """Noise of a run, and of the target that it is compared with."""
    sd: Floats = belief.particles.sd[chosen] * math.sqrt(1 + 1 / max(belief.effective_runs, 0.5))
    return sd


def _entropy(probabilities: Floats) -> Floats:
    entropy: Floats = -(probabilities * np.log(probabilities + 1e-300)).sum(axis=-1)
    return entropy


@dataclass(frozen=True)
class _TargetEvidence:
    """What runs say of the target and of its spread, as functions of the losses.

    Attributes:
        number: Of runs, a known target being one.
        effective_runs: How many independent ones.
        centre: The target where nothing is lost anywhere.
        shift: (m,) what a loss at each switch point adds to the target.
        least_spread: Weighted sum of squares around the target where nothing is lost, in units of
            the variance.
        spread: What `Particles.products` add to it.
    """

    number: int
    effective_runs: float
    centre: float
    shift: Floats
    least_spread: float
    spread: Floats


def _target_evidence(
    prior: Prior, measured: Sequence[Datum], known: KnownTarget | None
) -> _TargetEvidence:
    settings = len(prior.grid)
    # (N, m) which switch point a run is at; a known target is at none, as nothing is lost there.
    at, precision = _pattern(
        prior.grid,
        tuple((datum.index, datum.replicate) for datum in measured),
        None if known is None else known.runs,
    )
    accuracies = np.array([datum.accuracy for datum in measured])
    if known is not None:
        accuracies = np.append(accuracies, known.accuracy)
    by_run = precision.sum(axis=0)
    effective_runs = float(by_run.sum())
    centre = float(by_run @ accuracies) / effective_runs
    residuals = accuracies - centre
    weighted = precision @ residuals
    by_switch_point = at.T @ by_run
    linear = 2 * at.T @ weighted
    square = at.T @ precision @ at - np.outer(by_switch_point, by_switch_point) / effective_runs
    first, second = pairs(settings)
    return _TargetEvidence(
        number=len(accuracies),
        effective_runs=effective_runs,
        centre=centre,
        shift=by_switch_point / effective_runs,
        least_spread=float(weighted @ residuals),
        spread=np.concatenate([linear, np.where(first == second, 1, 2) * square[first, second]]),
    )


@functools.lru_cache(maxsize=4096)
def _pattern(
    grid: tuple[float, ...], runs: tuple[tuple[int, int], ...], known_runs: int | None
) -> tuple[Floats, Floats]:
    """Which switch point each run is at (N, m), and precision (N, N) in units of the variance.

    Siblings share the noise of the part that they share; replicates share nothing.

    Args:
        grid: Switch points.
        runs: Index of the switch point, and replicate.
        known_runs: Of a known target, which comes last.
    """
    indexes, replicates = np.array(runs, dtype=int).reshape(-1, 2).T
    percents = np.array(grid)[indexes]
    siblings = replicates[:, None] == replicates[None]
    shared = np.minimum(percents[:, None], percents[None]) / grid[-1]
    covariance = np.where(siblings, _SHARED_CORRELATION * shared, 0.0)
    np.fill_diagonal(covariance, 1.0)
    at = (indexes[:, None] == np.arange(len(grid))[None]).astype(float)
    if known_runs is not None:
        at = np.vstack([at, np.zeros(len(grid))])
        covariance = np.pad(covariance, (0, 1))
        covariance[-1, -1] = 1 / known_runs
    return at, np.linalg.inv(covariance)
