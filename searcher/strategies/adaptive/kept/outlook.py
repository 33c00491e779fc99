"""What later trainings would cost with each answer, and what one more run would save of that."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncswitch.searcher.strategies.adaptive.evidence import Floats
from syncswitch.searcher.strategies.adaptive.kept.belief import KeptBelief

# Who loses more runs than he allowed is worse off than by the repeats alone: a failure has to be
# noticed first. So much more counts each of them, in trainings with the first protocol.
_UNNOTICED = 5.0
# Classes of a run by its loss in beta, and of a failed one how often it is in each.
_EDGES = (0.25, 1.0, 3.0)
_FAILED = (0.0, 0.0, 0.15, 0.85)
# Of what a run may measure, given a guess: the middles of so many equally likely parts.
_PARTS = (np.arange(20) + 0.5) / 20


@functools.lru_cache(maxsize=8)
def _combinations(runs: int) -> tuple[np.typing.NDArray[np.intp], Floats]:
    """(outcomes, runs) classes that some runs may be in, whatever their order; ways to each."""
    outcomes = list(itertools.combinations_with_replacement(range(len(_FAILED)), runs))
    ways = [
        math.factorial(runs) / math.prod(math.factorial(outcome.count(c)) for c in set(outcome))
        for outcome in outcomes
    ]
    return np.array(outcomes, dtype=np.intp), np.array(ways)


@dataclass(frozen=True)
class Outlook:
    """A belief, and what follows from it for later trainings.

    Attributes:
        shares: (m,) of W in the first protocol at each switch point.
        ratio: Time of a training with the second protocol alone by that with the first.
        keep: Share of later runs that shall keep the accuracy; 1 - keep is what may be lost
            against the first protocol alone.
        is_guarded: A run that fails goes back to its switch, and on with the first protocol.
    """

    belief: KeptBelief
    shares: Floats
    ratio: float
    keep: float
    is_guarded: bool = False

    @functools.cached_property
    def kept(self) -> Floats:
        """(P, m) share of later runs at each switch point that keep the accuracy, by guess."""
        return self.belief.guesses.kept_shares(self.belief.threshold)

    @functools.cached_property
    def good(self) -> Floats:
        """(P, m) whether that is `keep`, or at most 1 - keep below the first protocol's own."""
        wanted = np.minimum(self.keep, self.kept[:, -1:] - (1 - self.keep))
        good: Floats = (self.kept >= wanted).astype(float)
        return good

    @functools.cached_property
    def good_probabilities(self) -> Floats:
        """(m,) how likely each switch point is good."""
        return np.minimum(1.0, self.belief.mean(self.good))

    @functools.cached_property
    def kept_shares(self) -> Floats:
        """(m,) expected share of later runs that keep the accuracy."""
        return np.minimum(1.0, self.belief.mean(self.kept))

    @functools.cached_property
    def times(self) -> Floats:
        """(m,) expected time of a later training in trainings with the first protocol alone.

        Runs that fail more often than those of the first protocol alone are repeated with it; of
        guarded ones each that fails, from its switch on.
        """
        return self.belief.mean(self._times_by_guess(self.kept, unnoticed=0.0))

    def answers(self) -> Floats:
        """(m,) how likely each switch point is the earliest from which on all are good."""
        from_there = np.cumprod(self.good[:, ::-1], axis=1)[:, ::-1]
        number = self.shares.size
        earliest = number - from_there.sum(axis=1).astype(int)
        counted: Floats = np.bincount(earliest, self.belief.weights, number).astype(float)
        return counted

    def savings(self, index: int, most_runs: int) -> list[float]:
        """What one, two, ... more runs at a switch point are expected to save a later training.

        The expected fall of the least expected time, over what the runs may measure, in four
        classes. One run alone may never change the answer where two or three would.
        """
        sample, times = self._sampled_times
        least = times.mean(axis=0).min()
        by_class = self._class_probabilities(sample, index)
        savings = []
        for runs in range(1, most_runs + 1):
            classes, ways = _combinations(runs)
            # (samples, outcomes) probability of each number of runs in each class
            outcomes = ways * by_class[:, classes].prod(axis=2)
            after = np.einsum("po,pm->om", outcomes, times).min(axis=1).sum() / len(sample)
            savings.append(float(least - after))
        return savings

    @functools.cached_property
    def _sampled_times(self) -> tuple[np.typing.NDArray[np.intp], Floats]:
        """(samples,) guesses and (samples, m) times."""
        sample = self.belief.sample()
        return sample, self._times_by_guess(self.kept[sample])

    def predicted(self, index: int, quantiles: Sequence[float]) -> list[float]:
        """Quantiles of the accuracy that one more run at a switch point would measure."""
        from scipy.special import ndtri

        sample, beta = self.belief.sample(), self.belief.threshold
        guesses = self.belief.guesses
        losses = guesses.losses[sample, index] - self.belief.target_errors()[sample]
        usual = losses[:, None] + guesses.scatter[sample, index][:, None] * ndtri(_PARTS)
        largest = self.belief.largest_loss
        failed = largest * np.exp(np.log(3 * beta / largest) * (1 - _PARTS))
        failed = failed[None].repeat(len(sample), axis=0)
        failures = guesses.failures[sample, index][:, None]
        values = np.concatenate([usual, failed], axis=1).ravel()
        shares = np.concatenate([1 - failures, failures], axis=1)
        weights = shares.repeat(len(_PARTS), axis=1).ravel()
        order = np.argsort(-values, kind="stable")
        ends = np.cumsum(weights[order])
        places = np.searchsorted(ends, np.array(quantiles) * ends[-1]).clip(0, len(order) - 1)
        accuracies = self.belief.target_accuracy - values[order][places]
        return list(map(float, accuracies))

    def _times_by_guess(self, kept: Floats, unnoticed: float = _UNNOTICED) -> Floats:
        fewer = np.maximum(0.0, kept[:, -1:] - kept)
        beyond = np.maximum(0.0, fewer - (1 - self.keep))
        alone: Floats = self.shares + (1 - self.shares) * self.ratio
        if self.is_guarded:
            return alone + (1 - kept) * (1 - self.shares)
        return alone + fewer + unnoticed * beyond

    def _class_probabilities(self, sample: np.typing.NDArray[np.intp], index: int) -> Floats:
        """(samples, classes) of a run's loss against the measured target."""
        from scipy.special import ndtr

        guesses = self.belief.guesses
        loss = guesses.losses[sample, index] - self.belief.target_errors()[sample]
        edges = self.belief.threshold * np.array(_EDGES)
        below = ndtr((edges - loss[:, None]) / guesses.scatter[sample, index][:, None])
        usual = np.diff(below, prepend=0.0, append=1.0, axis=1)
        failures = guesses.failures[sample, index][:, None]
        probabilities: Floats = (1 - failures) * usual + failures * np.array(_FAILED)
        return probabilities
