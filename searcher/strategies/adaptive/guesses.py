"""The prior belief about a job: guesses of how it behaves, all equally likely.

A guess says of every switch point how much accuracy is lost there in the mean, how much runs
scatter, and how often one fails. What is assumed of these is written at `guesses_at`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DIMENSIONS = 15
"""Numbers between 0 and 1 that make a guess."""

_GUESSES = 4096
_SEED = 20_210_708


@dataclass(frozen=True, slots=True)
class Prior:
    """The job as it is known before its first run.

    Attributes:
        grid: Switch points in percent, ascending; the last is the first protocol alone.
        threshold: beta, the accuracy that may be lost. The scale of everything.
        largest_loss: The most accuracy that a run can lose.
    """

    grid: tuple[float, ...]
    threshold: float
    largest_loss: float = 1.0

    @property
    def octaves(self) -> Floats:
        """(m,) how often the range is halved down to each switch point; 0 at the last."""
        octaves: Floats = np.log2(self.grid[-1] / np.array(self.grid))
        return octaves


@dataclass(frozen=True, eq=False)
class Guesses:
    """P guesses of a job with m switch points.

    Attributes:
        cube: (P, `DIMENSIONS`) what they are made of, each between 0 and 1.
        losses: (P, m) mean accuracy lost by runs that do not fail; 0 at the last switch point.
        scatter: (P, m) standard deviation of their accuracy.
        failures: (P, m) probability that a run fails: diverges, or ends anywhere below.
        target_z: (P,) by how many standard errors the target lies above what was measured of it.
    """

    cube: Floats
    losses: Floats
    scatter: Floats
    failures: Floats
    target_z: Floats

    def kept_shares(self, threshold: float) -> Floats:
        """(P, m) share of the runs at each switch point that lose at most so much."""
        from scipy.special import ndtr

        shares: Floats = (1 - self.failures) * ndtr((threshold - self.losses) / self.scatter)
        return shares


@functools.lru_cache(maxsize=32)
def first_guesses(prior: Prior) -> Guesses:
    """Returns the 4,096 guesses, which are the same at every call."""
    from scipy.stats import qmc

    # Evenly spread points instead of random ones: a fourth as many do as well.
    cube = qmc.Sobol(DIMENSIONS, seed=_SEED).random(_GUESSES)
    # Every k-th point of such a sequence lies in one corner, and every k-th is resampled.
    return guesses_at(prior, np.random.default_rng(_SEED).permutation(cube))


def guesses_at(prior: Prior, cube: Floats) -> Guesses:
    """Makes guesses of points of the unit cube.

    With o the octaves of a switch point and x = max(0, o - knee):

    - the knee is anywhere from BSP alone to one octave below the last switch point;
    - the loss is a step below the knee, of 0.3 to 90 beta (four in ten), or grows by 0.3 to 30 beta
      an octave; curves may be tilted either way, as BSP with a large batch can settle where
      asynchronous training does not stay;
    - the scatter is near beta / 2 at BSP, and may double once or more an octave below the knee;
    - failures begin somewhere, often near the knee, and grow to any share; there may be few
      everywhere, or some in one place, whatever lies below it.

    Args:
        prior: Grid and threshold.
        cube: (P, `DIMENSIONS`) points.
    """
    from scipy.special import ndtri

    u = cube.clip(1e-6, 1 - 1e-6).T
    beta, octaves = prior.threshold, prior.octaves[None]
    deepest = octaves.max() + 1
    knee = u[0] * deepest
    below = np.maximum(0.0, octaves - knee[:, None])
    scatter = beta / 2 * np.exp(0.5 * ndtri(u[5]))
    widening = 1.5 * _beyond(u[6], 0.4)
    return Guesses(
        cube=cube,
        losses=_losses(beta, octaves, below, u),
        scatter=scatter[:, None] * 2 ** np.minimum(widening[:, None] * below, 4.0),
        failures=_failures(octaves, knee, deepest, u),
        target_z=ndtri(u[12]),
    )


def _losses(beta: float, octaves: Floats, below: Floats, u: Floats) -> Floats:
    is_step = u[1] < 0.4
    step = beta * _log_uniform(u[2], 0.3, 90)
    slope = beta * _log_uniform(u[2], 0.3, 30)
    fall = np.where(is_step[:, None], step[:, None] * (below > 0), slope[:, None] * below)
    # Flat above the knee (four in ten), or falling or rising a little with every octave.
    direction = np.select([u[3] < 0.4, u[3] < 0.7], [0.0, 0.2], -0.2)
    tilt = direction * beta * -np.log1p(-u[4]) / 2
    losses: Floats = fall + tilt[:, None] * octaves
    return losses


def _failures(octaves: Floats, knee: Floats, deepest: float, u: Floats) -> Floats:
    from scipy.special import ndtri

    worst = _beyond(u[7], 0.3)
    width = 0.2 + 2.5 * u[8]
    near_knee = knee + 0.7 * ndtri(_beyond(u[9], 0.4).clip(1e-6, 1 - 1e-6))
    start = np.where(u[9] < 0.4, u[9] / 0.4 * deepest, near_knee)
    growing = worst[:, None] * ((octaves - start[:, None]) / width[:, None]).clip(0, 1)
    everywhere = np.where(u[10] < 0.2, _log_uniform(u[10] / 0.2, 0.01, 0.1), 0.0)
    dip = _beyond(u[11], 0.7)
    dip_width = 0.5 + 1.5 * u[14]
    place = (octaves - (u[13] * deepest)[:, None]) / dip_width[:, None]
    local = dip[:, None] * np.exp(-0.5 * place**2)
    none = (1 - growing) * (1 - everywhere[:, None]) * (1 - local)
    failures: Floats = (1 - none) * (octaves > 0)
    return failures


def _beyond(u: Floats, edge: float) -> Floats:
    """0 up to the edge, and from there evenly up to 1."""
    beyond: Floats = np.maximum(0.0, u - edge) / (1 - edge)
    return beyond


def _log_uniform(u: Floats, low: float, high: float) -> Floats:
    values: Floats = np.exp(math.log(low) + u * math.log(high / low))
    return values
