"""What a user's own jobs say of the next one: how early a switch jobs bear.

The first guesses come from a few recorded jobs. Which share of jobs bears a switch at which point,
and no earlier, is then fitted to the jobs in a user's database: a beta-binomial at each switch
point, whose prior counts as many jobs as were recorded. Each job counts once, however often it was
trained, and as far as its runs tell. So one odd job moves the shares by an eighth of what it says.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncswitch.searcher.strategies.adaptive.guesses import (
    Floats,
    Guesses,
    Prior,
    first_guesses,
)
from syncswitch.storage.policies.unmeasured import RECORDED

_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Experience:
    """What jobs of one rule of the second phase have shown.

    Attributes:
        jobs: Number of a user's own jobs, beside those that were recorded.
    """

    jobs: int
    bearing: tuple[tuple[float, float], ...]

    def share(self, percent: float) -> float:
        """The share of the jobs that bear a switch at a point, and at all later ones."""
        return sum(share for at, share in self.bearing if at <= percent)


def shares_of(prior: Prior, guesses: Guesses, weights: Floats) -> Floats:
    """(m,) weight of the guesses that bear a switch at each point and no earlier."""
    counted = np.bincount(guesses.bears_from(prior), weights, len(prior.grid))
    return counted.astype(np.float64)


@functools.lru_cache(maxsize=32)
def usual_shares(prior: Prior) -> Floats:
    """(m,) those of the first guesses without a user's own jobs."""
    guesses = first_guesses(replace(prior, bearing=()))
    number = len(guesses.cube)
    return shares_of(prior, guesses, np.full(number, 1 / number))


def likelihood_of(prior: Prior, guesses: Guesses, weights: Floats) -> Floats:
    """(m,) how much likelier the runs of a job are where it bears a switch at each point.

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
    bearing = tuple(zip(prior.grid, map(float, shares), strict=True))
    return Experience(len(likelihoods), bearing)


def log_weights(prior: Prior, guesses: Guesses) -> Floats:
    """(P,) logarithm of how much likelier each guess is by a user's own jobs."""
    if not prior.bearing:
        return np.zeros(len(guesses.cube))
    points = np.array([at for at, _ in prior.bearing])
    usual = usual_shares(replace(prior, grid=tuple(map(float, points)), bearing=()))
    own = np.array([share for _, share in prior.bearing])
    factors = np.divide(own, usual, out=np.ones_like(own), where=usual > 0)
    # A grid may have more points than those at which jobs are compared.
    places = np.array(prior.grid)[guesses.bears_from(prior)]
    logarithms: Floats = np.log(factors[np.searchsorted(points, places).clip(0, len(points) - 1)])
    return logarithms
