"""What is believed of a job: its accuracy at each setting, the noise, and the target, together.

The accuracy lost against the target, d(s), does not grow with the switch point s. It is zero above
a knee, and grows below it with the logarithm of s. Particles (knee, slope, noise) are drawn once
from the prior and weighted by the observations; the target itself is integrated out, with a flat
prior. So the belief is a function of the observations, whatever their order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Belief", "Datum", "Known", "Prior", "information", "update"]

Floats = NDArray[np.float64]

_PARTICLES = 4096
_SEED = 20_210_708
# A setting that diverges is acceptable with odds of 1 to 400 for each such run.
_DIVERGED_LOG_ODDS = -6.0
# Correlation between two runs of one replicate whose whole length is shared.
_SHARED_CORRELATION = 0.3
# Of the predictive distribution in `information`.
_SAMPLES = 256
_CELLS = 40
# By how much more than that a run is too bad tells nothing.
_RANGE_LOSS = 5.0
_RANGE_SDS = 3.5


@dataclass(frozen=True, slots=True)
class Prior:
    """What is thought before the first run.

    Attributes:
        grid: Settings in percent, ascending; the last is the first protocol alone.
        threshold: beta, the accuracy that may be lost. The scale of everything.
        related: Switch points of related jobs; half of the prior mass of the knee then lies around
            them, the other half stays where it was, so that observations always win.
    """

    grid: tuple[float, ...]
    threshold: float
    related: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Datum:
    """One run that counts.

    Attributes:
        index: Of its setting in the grid.
        replicate: Runs of one replicate share the start of the training.
        accuracy: Converged accuracy.
        diverged: Then the accuracy says nothing.
    """

    index: int
    replicate: int
    accuracy: float
    diverged: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """A target that is known from earlier runs.

    Attributes:
        accuracy: Their mean.
        runs: How many they were.
    """

    accuracy: float
    runs: int


@dataclass(frozen=True)
class _Particles:
    """Draws from the prior; P particles, m settings.

    Attributes:
        losses: (P, m) accuracy lost at each setting.
        log_sd: (P,) logarithm of the standard deviation of a run's accuracy.
        log_weights: (P,) of the prior.
        first_acceptable: (P,) index of the earliest setting that loses at most beta.
    """

    losses: Floats
    log_sd: Floats
    log_weights: Floats
    first_acceptable: NDArray[np.intp]


@dataclass(frozen=True)
class Belief:
    """The particles, weighted by what was observed.

    Attributes:
        threshold: beta.
        losses: (P, m) accuracy lost at each setting.
        sd: (P,) standard deviation of a run's accuracy.
        weights: (P,) sums to 1.
        first_acceptable: (P,) index of the earliest acceptable setting.
        target_mean: (P,) expected target given the particle; zeros where nothing was measured.
        effective_runs: How many independent runs the target was measured with.
    """

    threshold: float
    losses: Floats
    sd: Floats
    weights: Floats
    first_acceptable: NDArray[np.intp]
    target_mean: Floats
    effective_runs: float

    def acceptable(self, slack: float = 0.0) -> Floats:
        """(m,) probability that a setting loses at most beta + slack."""
        limit = self.threshold + slack
        answer: Floats = self.weights @ (self.losses <= limit)
        return answer

    def answers(self) -> Floats:
        """(m,) probability that a setting is the earliest acceptable one."""
        settings = self.losses.shape[1]
        answer: Floats = np.bincount(self.first_acceptable, self.weights, settings).astype(float)
        return answer

    def right(self, index: int, slack: float) -> float:
        """Probability that a setting is acceptable and the one before it is not.

        Args:
            index: Of the setting.
            slack: A loss so close to beta counts as either.
        """
        is_right = self.losses[:, index] <= self.threshold + slack
        if index:
            is_right &= self.losses[:, index - 1] > self.threshold - slack
        return float(self.weights @ is_right)

    def target(self) -> tuple[float, float]:
        """Mean and standard deviation of the target."""
        mean = float(self.weights @ self.target_mean)
        variance = self.weights @ (
            (self.target_mean - mean) ** 2 + self.sd**2 / max(self.effective_runs, 1e-9)
        )
        return mean, math.sqrt(float(variance))


def update(prior: Prior, data: Sequence[Datum], known: Known | None = None) -> Belief:
    """The belief after some runs.

    Args:
        prior: What was thought before.
        data: The runs, in any order; at most one for each setting and replicate.
        known: The target, where it is known from elsewhere.
    """
    particles = _particles(prior)
    log_weights = particles.log_weights.copy()
    for datum in data:
        if datum.diverged:
            acceptable = particles.losses[:, datum.index] <= prior.threshold
            log_weights += _DIVERGED_LOG_ODDS * acceptable
    sd = np.exp(particles.log_sd)
    # In a fixed order, so that rounding is the same whatever the order of the runs.
    measured = sorted(
        (d for d in data if not d.diverged), key=lambda d: (d.replicate, d.index, d.accuracy)
    )
    target_mean, effective_runs = np.zeros(len(sd)), 0.0
    if measured or known:
        losses, accuracies, precision = _stacked(prior, particles, measured, known)
        residuals = accuracies + losses
        weighted = residuals @ precision
        effective_runs = float(precision.sum())
        sums = weighted.sum(axis=1)
        target_mean = sums / effective_runs
        spread = (weighted * residuals).sum(axis=1) - sums * target_mean
        # One degree of freedom went into the target.
        log_weights -= (len(accuracies) - 1) * particles.log_sd + spread / (2 * sd**2)
    weights = np.exp(log_weights - log_weights.max())
    return Belief(
        threshold=prior.threshold,
        losses=particles.losses,
        sd=sd,
        weights=weights / weights.sum(),
        first_acceptable=particles.first_acceptable,
        target_mean=target_mean,
        effective_runs=effective_runs,
    )


def information(belief: Belief, indexes: Sequence[int]) -> Floats:
    """What one more run at each of some settings would tell of the answer, in nats.

    The mutual information between the run's accuracy and the index of the earliest acceptable
    setting.

    Args:
        belief: The present one.
        indexes: Of the settings.

    Returns:
        One value for each, 0 or more.
    """
    # Systematic resampling without chance, so that the same belief asks for the same run.
    places = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
    chosen = np.searchsorted(np.cumsum(belief.weights), places).clip(0, len(belief.weights) - 1)
    sd = belief.sd[chosen] * math.sqrt(1 + 1 / max(belief.effective_runs, 0.5))
    losses = belief.losses[np.ix_(chosen, np.array(indexes))]
    mean = belief.target_mean[chosen, None] - np.minimum(losses, _RANGE_LOSS * belief.threshold)
    margin = _RANGE_SDS * sd.max()
    low, high = mean.min(axis=0) - margin, mean.max(axis=0) + margin
    cells = low[:, None] + (high - low)[:, None] * (np.arange(_CELLS) + 0.5) / _CELLS
    # (samples, settings, cells) likelihood of each cell
    z = (cells[None] - mean[:, :, None]) / sd[:, None, None]
    likelihood = np.exp(-0.5 * z * z)
    likelihood /= likelihood.sum(axis=2, keepdims=True) + 1e-300
    answer = belief.first_acceptable[chosen]
    groups = (answer[:, None] == np.unique(answer)[None]).astype(float)
    shares = groups.mean(axis=0)
    given = np.einsum("sg,sjc->gjc", groups / groups.sum(axis=0), likelihood)
    total = np.einsum("g,gjc->jc", shares, given)
    gained = _entropy(total) - np.einsum("g,gj->j", shares, _entropy(given))
    told: Floats = np.maximum(gained, 0.0)
    return told


def _entropy(probabilities: Floats) -> Floats:
    entropy: Floats = -(probabilities * np.log(probabilities + 1e-300)).sum(axis=-1)
    return entropy


def _stacked(
    prior: Prior, particles: _Particles, measured: Sequence[Datum], known: Known | None
) -> tuple[Floats, Floats, Floats]:
    """Losses (P, N), accuracies (N,) and precision (N, N) of N observations, in units of sd."""
    indexes = [datum.index for datum in measured]
    losses = particles.losses[:, indexes]
    accuracies = np.array([datum.accuracy for datum in measured])
    precision = _precision(prior, measured)
    if known is not None:
        losses = np.hstack([losses, np.zeros((len(losses), 1))])
        accuracies = np.append(accuracies, known.accuracy)
        n = len(accuracies)
        padded = np.zeros((n, n))
        padded[:-1, :-1] = precision
        padded[-1, -1] = known.runs
        precision = padded
    return losses, accuracies, precision


def _precision(prior: Prior, measured: Sequence[Datum]) -> Floats:
    """Siblings share the noise of the part that they share; replicates share nothing."""
    percents = np.array([prior.grid[datum.index] for datum in measured])
    replicates = np.array([datum.replicate for datum in measured])
    siblings = replicates[:, None] == replicates[None]
    shared = np.minimum(percents[:, None], percents[None]) / prior.grid[-1]
    covariance = np.where(siblings, _SHARED_CORRELATION * shared, 0.0)
    np.fill_diagonal(covariance, 1.0)
    return np.linalg.inv(covariance) if len(measured) else covariance


@functools.lru_cache(maxsize=32)
def _particles(prior: Prior) -> _Particles:
    from scipy.stats import norm, qmc

    beta, settings = prior.threshold, len(prior.grid)
    octaves = np.log2(prior.grid[-1] / np.array(prior.grid))
    deepest = octaves[0] + 1
    # Evenly spread points instead of random ones: a fourth as many do as well.
    uniform = qmc.Sobol(4 + settings, seed=_SEED).random(_PARTICLES)
    # Every k-th point of such a sequence lies in one corner; `information` takes every k-th.
    uniform = np.random.default_rng(_SEED).permutation(uniform)
    knee = uniform[:, 0] * deepest
    slope = beta * np.exp(math.log(0.5) + uniform[:, 1] * math.log(30 / 0.5))
    losses = slope[:, None] * np.maximum(0.0, octaves[None] - knee[:, None])
    # Half of the curves are not quite flat above the knee.
    steps = np.abs(np.diff(np.append(octaves, 0.0)))
    bends = 0.15 * beta * -np.log1p(-uniform[:, 4:]) * steps
    bends[:, -1] = 0.0
    bends = np.cumsum(bends[:, ::-1], axis=1)[:, ::-1]
    losses = losses + np.where(uniform[:, 3:4] < 0.5, bends, 0.0)
    log_sd = math.log(beta / 2) + 0.4 * norm.ppf(uniform[:, 2].clip(1e-6, 1 - 1e-6))
    return _Particles(
        losses=losses,
        log_sd=log_sd,
        log_weights=_log_prior(prior, octaves, knee),
        first_acceptable=np.argmax(losses <= beta, axis=1),
    )


def _log_prior(prior: Prior, octaves: Floats, knee: Floats) -> Floats:
    if not prior.related:
        return np.zeros(len(knee))
    deepest = octaves[0] + 1
    centres = np.log2(prior.grid[-1] / np.maximum(prior.related, prior.grid[-1] / 2**deepest))
    bumps = np.exp(-0.5 * (knee[:, None] - centres[None]) ** 2).mean(axis=1)
    log_weights: Floats = np.log(0.5 + 0.5 * bumps / bumps.mean())
    return log_weights
