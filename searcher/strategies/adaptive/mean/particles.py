"""What is thought of a job before its first run, as draws from it.

A draw is a curve of lost accuracy and a level of noise; see `belief` for what is assumed of them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncswitch.searcher.strategies.adaptive.evidence import Floats, Prior

# Of curves that fall by one step at the knee, instead of ever more below it.
_STEP_SHARE = 0.2
# The standard deviation of the noisiest jobs, in units of beta.
_NOISIEST = 30.0
_PARTICLES = 4096
_SEED = 20_210_708


@dataclass(frozen=True, eq=False)
class Particles:
    """Draws from the prior; P particles, m switch points.

    Attributes:
        losses: (P, m) accuracy lost at each switch point; it does not grow from one to the next.
        products: (m + m * (m + 1) / 2, P) each switch point's losses, then those of each two switch
            points
            multiplied: a quadratic function of the losses is a sum of these.
        log_sd: (P,) logarithm of the standard deviation of a run's accuracy.
    """

    losses: Floats
    products: Floats
    log_sd: Floats
    sd: Floats

    def first_within(self, limit: float) -> NDArray[np.intp]:
        """(P,) index of the earliest switch point that loses at most so much."""
        return _first_within(self, limit)


@functools.lru_cache(maxsize=32)
def pairs(settings: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indexes of each pair of switch points, in the order of `Particles.products`."""
    return np.triu_indices(settings)


@functools.lru_cache(maxsize=256)
def _first_within(particles: Particles, limit: float) -> NDArray[np.intp]:
    earliest: NDArray[np.intp] = np.argmax(particles.losses <= limit, axis=1)
    return earliest


@functools.lru_cache(maxsize=32)
def draw_particles(prior: Prior) -> Particles:
    """The same draws at every call."""
    from scipy.stats import qmc

    beta, settings = prior.threshold, len(prior.grid)
    octaves = prior.octaves
    deepest = octaves[0] + 1
    # Evenly spread points instead of random ones: a fourth as many do as well.
    uniform = qmc.Sobol(6 + settings, seed=_SEED).random(_PARTICLES)
    # Every k-th point of such a sequence lies in one corner; `information` takes every k-th.
    uniform = np.random.default_rng(_SEED).permutation(uniform)
    knee = uniform[:, 0] * deepest
    slope = beta * np.exp(math.log(0.5) + uniform[:, 1] * math.log(30 / 0.5))
    losses = slope[:, None] * np.maximum(0.0, octaves[None] - knee[:, None])
    # Of the others the loss is the same wherever the switch comes too early.
    step = beta * np.exp(math.log(0.3) + uniform[:, 5] * math.log(90 / 0.3))
    steps_down = np.where(octaves[None] > knee[:, None], step[:, None], 0.0)
    losses = np.where(uniform[:, 4:5] < _STEP_SHARE, steps_down, losses)
    # Half of the curves are not quite flat above the knee.
    steps = np.abs(np.diff(np.append(octaves, 0.0)))
    bends = 0.15 * beta * -np.log1p(-uniform[:, 6:]) * steps
    bends[:, -1] = 0.0
    bends = np.cumsum(bends[:, ::-1], axis=1)[:, ::-1]
    losses = losses + np.where(uniform[:, 3:4] < 0.5, bends, 0.0)
    log_sd = _log_sd(uniform[:, 2], prior)
    first, second = pairs(settings)
    return Particles(
        losses=losses,
        products=np.vstack([losses.T, losses.T[first] * losses.T[second]]),
        log_sd=log_sd,
        sd=np.exp(log_sd),
    )


def _log_sd(uniform: Floats, prior: Prior) -> Floats:
    """(P,) lognormal around half of beta, but for the noisiest: evenly up to the largest."""
    from scipy.stats import norm

    share = prior.noisy_share
    usual = 0.4 * norm.ppf(uniform.clip(1e-6, 1 - max(share, 1e-6)))
    beyond = (uniform - (1 - share)).clip(0) / share if share else 0.0
    log_sd: Floats = (
        math.log(prior.threshold / 2) + usual + beyond * (math.log(2 * _NOISIEST) - usual)
    )
    return log_sd
