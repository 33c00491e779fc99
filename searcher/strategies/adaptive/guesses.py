"""The prior belief about a job: guesses of how it behaves, all equally likely.

For every switch point a guess says how much accuracy is lost in the mean, how much runs differ,
and how often one fails. The assumptions are listed at `guesses_at`; they come from a few recorded
jobs. Which share of jobs tolerates a switch at which point, and no earlier, is fitted to the jobs
in a user's database: a beta-binomial at each switch point, whose prior counts as many jobs as were
recorded. Each job counts once, however often it was trained, and as far as its runs tell. So one
odd job moves the shares by an eighth of what it says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syncswitch.storage.policies.unmeasured import RECORDED

Floats = NDArray[np.float64]

DIMENSIONS = 15
"""How many numbers between 0 and 1 make a guess."""

_GUESSES = 4096
_SEED = 20_210_708

RECORDED_JOBS = (
    "digits with four networks, on 4, 8 and 16 workers",
    "breast cancer on 8",
    "a noisy signal on 16",
    "spirals on 16",
)
"""The jobs that the first guesses come from, by what they learn."""

PANEL_JOBS = (
    "three small transformers of text and one of pictures",
    "two language models",
    "convolutions on 4 and 16 workers",
    "a recurrent network",
    "plain networks on 4, 8 and 16, two of them regressions",
    "embeddings on 4",
)
"""Those with optimizers of Keras."""

_TOLERATED_POINTS = 0.05


@dataclass(frozen=True, slots=True)
class Prior:
    """Knowledge of a job before its first run.

    Attributes:
        grid: Switch points in percent, ascending; the last is the first protocol alone.
        threshold: beta, the accuracy that may be lost: the scale of everything.
        largest_loss: The most accuracy that a run can lose.
        owns_momentum: Whether each worker keeps its own momentum after the switch.
        owns_optimizer: Whether that is the momentum, or are other variables, of an optimizer of
            Keras, such as Adam.
        tolerance: Switch points in percent, ascending, and which share of the jobs tolerates a
            switch there and no earlier, as a user's own jobs have it; empty for the usual shares.
    """

    grid: tuple[float, ...]
    threshold: float
    largest_loss: float = 1.0
    owns_momentum: bool = False
    owns_optimizer: bool = False
    tolerance: tuple[tuple[float, float], ...] = ()

    @property
    def octaves(self) -> Floats:
        """(m,) halvings of the range that lead to each switch point; 0 at the last.

        0 %, which no halving leads to, counts as two more than the point before: runs that never
        see the first protocol fail more often than one further halving would have it.
        """
        lowest = min(percent for percent in self.grid if percent > 0) / 4
        octaves: Floats = np.log2(self.grid[-1] / np.maximum(self.grid, lowest))
        return octaves


@dataclass(frozen=True, eq=False)
class Guesses:
    """P guesses of a job with m switch points.

    Attributes:
        cube: (P, `DIMENSIONS`) the numbers that they are made of, each between 0 and 1.
        losses: (P, m) mean loss of accuracy of runs that do not fail; 0 at the last switch point.
        spread: (P, m) standard deviation of their accuracy.
        failures: (P, m) probability that a run fails: it diverges, or ends anywhere below.
        target_z: (P,) standard errors by which the true target lies above the measured one.
    """

    cube: Floats
    losses: Floats
    spread: Floats
    failures: Floats
    target_z: Floats

    def kept_shares(self, threshold: float) -> Floats:
        """(P, m) share of the runs at each switch point that lose at most `threshold`."""
        from scipy.special import ndtr

        shares: Floats = (1 - self.failures) * ndtr((threshold - self.losses) / self.spread)
        return shares

    def earliest_tolerated(self, prior: Prior) -> NDArray[np.intp]:
        """(P,) index of the earliest switch point from which on the job tolerates a switch.

        It does where runs keep the accuracy in at most 5 of 100 cases fewer than without a switch.
        """
        kept = self.kept_shares(prior.threshold)
        tolerates = kept >= kept[:, -1:] - _TOLERATED_POINTS
        from_there = np.cumprod(tolerates[:, ::-1], axis=1)
        earliest: NDArray[np.intp] = len(prior.grid) - from_there.sum(axis=1)
        return earliest


@functools.lru_cache(maxsize=32)
def first_guesses(prior: Prior) -> Guesses:
    """Returns the 4,096 guesses, which are the same at every call."""
    from scipy.stats import qmc

    # Points that are spread evenly: four times as many random ones would do as well.
    cube = qmc.Sobol(DIMENSIONS, seed=_SEED).random(_GUESSES)
    # Every k-th point of such a sequence lies in one corner, and resampling takes every k-th.
    return guesses_at(prior, np.random.default_rng(_SEED).permutation(cube))


def guesses_at(prior: Prior, cube: Floats) -> Guesses:
    """Makes a guess of each of (P, `DIMENSIONS`) points of the unit cube.

    - The knee is anywhere from BSP alone to one octave below the last switch point.
    - Below the knee the loss is a step of 0.3 to 90 beta (four in ten), or grows by 0.3 to 30 beta
      an octave. Curves may be tilted either way, as BSP with a large batch can settle where
      asynchronous training does not stay.
    - The spread is near beta / 2 at BSP, and may double once or more per octave below the knee.
      One job in twenty has more, up to many beta, where nobody has looked how much seeds differ;
      none of those whose workers keep their own momentum.
    - Failures begin somewhere, often near the knee, and grow to any share. There may be a few
      everywhere, or some in one place, whatever lies below it.

    Where each worker keeps its own momentum, most jobs have no knee, and the others a deep one
    with a smaller loss; fewer fail, and the spread is a little larger. So it is with seven jobs
    that were recorded (`benchmarks.learning`); the tail is as broad as before, for all others.

    Where that is an optimizer of Keras, more jobs lose a little and hardly any loses much, from a
    later switch as from an early one, and runs of one job differ more: so it is with the panel's
    jobs (`benchmarks.panel`).
    """
    from scipy.special import ndtri

    u = cube.clip(1e-6, 1 - 1e-6).T
    if prior.owns_optimizer:
        u = _own_optimizer(u)
    elif prior.owns_momentum:
        u = _own_momentum(u)
    beta, octaves = prior.threshold, prior.octaves[None]
    deepest = octaves.max() + 1
    knee = u[0] * deepest
    below = np.maximum(0.0, octaves - knee[:, None])
    z = ndtri(u[5])
    noisy = 0.0 if prior.owns_momentum else 0.8 * np.maximum(0.0, z - _NOISY)
    spread = beta / 2 * np.exp(0.5 * z + noisy)
    widening = 1.5 * _beyond(u[6], 0.4)
    return Guesses(
        cube=cube,
        losses=_losses(beta, octaves, below, u),
        spread=spread[:, None] * 2 ** np.minimum(widening[:, None] * below, 4.0),
        failures=_failures(octaves, knee, deepest, u),
        target_z=ndtri(u[12]),
    )


# Shares of the jobs whose workers keep their own momentum: nothing is lost anywhere; failures
# do not grow; they begin far from the knee; there are some everywhere; none is in one place only.
_HARMLESS = 0.6
_UNFAILING = 0.6
_FAR = 0.15
_EVERYWHERE = 0.1
_WITHOUT_DIPS = 0.92


def _own_momentum(u: Floats) -> Floats:
    """Moves points of the cube to where jobs lie whose workers keep their own momentum."""
    from scipy.special import ndtr, ndtri

    u = u.copy()
    # The deeper a knee, the likelier.
    u[0] = np.where(u[0] < _HARMLESS, 1.0, _beyond(u[0], _HARMLESS) ** (2 / 3))
    u[2] = u[2] ** 2
    u[4] = 1 - np.sqrt(1 - u[4])
    u[5] = ndtr(ndtri(u[5]) + 0.4)
    u[7] = np.interp(u[7], [0, _UNFAILING, 1], [0, 0.3, 1])
    u[9] = np.interp(u[9], [0, _FAR, 1], [0, 0.4, 1])
    u[10] = np.interp(u[10], [0, _EVERYWHERE, 1], [0, 0.2, 1])
    u[11] = np.interp(u[11], [0, _WITHOUT_DIPS, 1], [0, 0.7, 1])
    return u


def _own_optimizer(u: Floats) -> Floats:
    """Moves points of the cube to where jobs lie whose workers have optimizers of their own."""
    from scipy.special import ndtr, ndtri

    u = u.copy()
    u[0] = np.where(u[0] < _HARMLESS_OPTIMIZERS, 1.0, _beyond(u[0], _HARMLESS_OPTIMIZERS) / 2)
    u[1] = u[1] * 0.5
    u[2] = _SMALL_LOSSES * u[2]
    u[4] = 1 - np.sqrt(1 - u[4])
    # Rounded to 1 it would be a spread without end.
    u[5] = np.minimum(ndtr(1.1 + 1.8 * ndtri(u[5])), np.nextafter(1.0, 0.0))
    u[7] = np.interp(u[7], [0, 0.9, 1], [0, 0.3, 1])
    u[10] = np.interp(u[10], [0, _EVERYWHERE, 1], [0, 0.2, 1])
    u[11] = np.interp(u[11], [0, _WITHOUT_DIPS, 1], [0, 0.7, 1])
    return u


_HARMLESS_OPTIMIZERS = 0.6
_SMALL_LOSSES = 0.4

_NOISY = 1.645  # standard deviations of usual jobs beyond which a job scatters much more


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
    """Maps 0 to the edge to 0, and the rest linearly to 0 to 1."""
    beyond: Floats = np.maximum(0.0, u - edge) / (1 - edge)
    return beyond


def _log_uniform(u: Floats, low: float, high: float) -> Floats:
    values: Floats = np.exp(math.log(low) + u * math.log(high / low))
    return values


_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Experience:
    """What jobs of one rule of the second phase have shown; `jobs` of them are a user's own."""

    jobs: int
    tolerance: tuple[tuple[float, float], ...]

    def share(self, percent: float) -> float:
        """The share of the jobs that tolerate a switch at a point, and at all later ones."""
        return sum(share for at, share in self.tolerance if at <= percent)


def shares_of(prior: Prior, guesses: Guesses, weights: Floats) -> Floats:
    """(m,) weight of the guesses that tolerate a switch at each point and no earlier."""
    counted = np.bincount(guesses.earliest_tolerated(prior), weights, len(prior.grid))
    return counted.astype(np.float64)


@functools.lru_cache(maxsize=32)
def usual_shares(prior: Prior) -> Floats:
    """(m,) those of the first guesses without a user's own jobs."""
    guesses = first_guesses(replace(prior, tolerance=()))
    number = len(guesses.cube)
    return shares_of(prior, guesses, np.full(number, 1 / number))


def likelihood_of(prior: Prior, guesses: Guesses, weights: Floats) -> Floats:
    """(m,) how much likelier the runs of a job are where it tolerates a switch at each point.

    The guesses are those that the runs have left, with their weights.
    """
    usual = usual_shares(prior)
    shares = shares_of(prior, guesses, weights)
    likelihood: Floats = np.divide(shares, usual, out=np.zeros_like(usual), where=usual > 0)
    return likelihood


def experience_of(prior: Prior, likelihoods: Sequence[Floats]) -> Experience:
    """Fits the shares to jobs, given the likelihood of each (`likelihood_of`)."""
    usual = usual_shares(prior)
    shares = usual
    for _ in range(_ROUNDS if likelihoods else 0):
        counted = RECORDED * usual
        for likelihood in likelihoods:
            told = shares * likelihood
            counted = counted + told / max(float(told.sum()), 1e-300)
        shares = counted / (RECORDED + len(likelihoods))
    return Experience(len(likelihoods), tuple(zip(prior.grid, map(float, shares), strict=True)))


def prior_log_weights(prior: Prior, guesses: Guesses) -> Floats:
    """(P,) logarithm of how much likelier each guess is by a user's own jobs."""
    if not prior.tolerance:
        return np.zeros(len(guesses.cube))
    points = np.array([at for at, _ in prior.tolerance])
    usual = usual_shares(replace(prior, grid=tuple(map(float, points)), tolerance=()))
    own = np.array([share for _, share in prior.tolerance])
    factors = np.divide(own, usual, out=np.ones_like(own), where=usual > 0)
    # A grid may have more points than those at which jobs are compared.
    places = np.array(prior.grid)[guesses.earliest_tolerated(prior)]
    logarithms: Floats = np.log(factors[np.searchsorted(points, places).clip(0, len(points) - 1)])
    return logarithms
