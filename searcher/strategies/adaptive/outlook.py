"""The expected time of later runs by switch point, and what further runs save of it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syncswitch.searcher.strategies.adaptive.belief import DIVERGING_SHARE, Belief
from syncswitch.searcher.strategies.adaptive.guesses import Floats
from syncswitch.storage.records.goal import Goal
from syncswitch.storage.records.guard import ALARMED_AFTER, FALSE_ALARMS, LOST, NOTICED_BY_ITSELF

# Bare failures have to be noticed first. Each one beyond what is allowed counts so many trainings
# with the first protocol more.
_UNNOTICED = 5.0
# A guard misses small losses, most of all while its target rests on few runs: a model that keeps
# the accuracy more rarely than the first protocol's own costs a training more.
_MISSED = 1.0
# Classes of a run by its loss in beta, of which the first two keep the accuracy, and the shares of
# the classes among failed runs.
_EDGES = (0.25, 1.0, 3.0)
_HELD = 2
_FAILED = (0.0, 0.0, 0.15, 0.85)
# Outcomes of a run, given a guess: the middles of 20 equally likely parts.
_PARTS = (np.arange(20) + 0.5) / 20


@functools.lru_cache(maxsize=8)
def _combinations(runs: int) -> tuple[NDArray[np.intp], Floats]:
    """(outcomes, runs) the classes of some runs, in any order, and the number of orders of each."""
    outcomes = list(itertools.combinations_with_replacement(range(len(_FAILED)), runs))
    ways = [
        math.factorial(runs) / math.prod(math.factorial(outcome.count(c)) for c in set(outcome))
        for outcome in outcomes
    ]
    return np.array(outcomes, dtype=np.intp), np.array(ways)


@dataclass(frozen=True)
class Outlook:
    """The consequences of a belief for later runs; what is not described is as in the strategy.

    Attributes:
        shares: (m,) share of W in the first protocol at each switch point.
        ratio: Time of a training with the second protocol alone over that with the first.
        tries: (m,) whether a run that failed before switches again there.
        lacks_threshold: Whether no threshold is measured.
    """

    belief: Belief
    shares: Floats
    ratio: float
    min_kept_share: float
    is_guarded: bool
    tries: NDArray[np.bool_]
    goes_back: bool = True
    lacks_threshold: bool = False

    @functools.cached_property
    def kept(self) -> Floats:
        """(P, m) share of later runs without a guard that keep the accuracy."""
        return self.belief.guesses.kept_shares(self.belief.prior.threshold)

    @functools.cached_property
    def good(self) -> Floats:
        """(P, m) 1 if that is `min_kept_share`, or no further below the last one's than from 1."""
        wanted = np.minimum(self.min_kept_share, self.kept[:, -1:] - (1 - self.min_kept_share))
        good: Floats = (self.kept >= wanted).astype(float)
        return good

    @functools.cached_property
    def good_probabilities(self) -> Floats:
        """(m,) probability that each switch point is good."""
        return np.minimum(1.0, self.belief.mean(self.good))

    @functools.cached_property
    def kept_shares(self) -> Floats:
        """(m,) expected share of later runs without a guard that keep the accuracy."""
        return np.minimum(1.0, self.belief.mean(self.kept))

    @functools.cached_property
    def times(self) -> Floats:
        """(m,) expected time of a later run over that of the first protocol alone.

        Guarded, from the latest switch point to the earliest: T(last) = 1, and
        T(i) = k(i) a(i) + (1 - k(i)) (T(next) + w (1 - s(i)) r), where 1 - k(i) is by how much
        more rarely it keeps the accuracy than the first protocol alone. A run whose switch failed
        has lost w of what comes after it, and is then a run of the next switch point. A run that
        cannot go back has also lost what came before its switch, s(i), and begins again with the
        first protocol alone.

        Without a guard each such run is repeated with the first protocol alone.
        """
        return self.belief.mean(self._spent_by_guess)

    @functools.cached_property
    def costs(self) -> Floats:
        """(m,) `times` with the cost of failures that are noticed late, or not at all."""
        return self.belief.mean(self._times_by_guess)

    @functools.cached_property
    def untargeted_times(self) -> Floats:
        """(m,) `costs` while no target is measured, with the models that nobody sees to be worse.

        Of these so many more than with the first protocol alone are put up with as a switch without
        a guard may lose.
        """
        worse = self.kept_shares[-1] - self.delivered_shares
        unseen: Floats = np.maximum(0.0, worse - (1 - self.min_kept_share))
        return self.costs + _UNNOTICED * unseen

    @functools.cached_property
    def delivered_shares(self) -> Floats:
        """(m,) expected share of delivered models that keep the accuracy.

        A guarded run delivers the model of the first switch that its guard accepts. The guard
        compares with the measured target, and allows for the error of that.
        """
        if not self.is_guarded:
            return self.kept_shares
        return np.minimum(1.0, self.belief.mean(self._delivered_by_guess))

    @functools.cached_property
    def _delivered_by_guess(self) -> Floats:
        from scipy.special import ndtr

        guesses, beta = self.belief.guesses, self.belief.prior.threshold
        if self.belief.target_accuracy is None:
            noticed = self._noticed_by_guess
            kept = (1 - FALSE_ALARMS) * self.kept
            kept[:, -1] = self.kept[:, -1]
            shares: Floats = self._tried_again(kept, noticed)
            return np.minimum(shares, self.kept[:, -1:], out=shares)
        target, forgiven = self.belief.target()
        target_errors = self.belief.target_errors - (target - self.belief.target_accuracy)
        most = beta + target_errors[:, None] + forgiven
        usual = 1 - guesses.failures
        quiet = usual * ndtr((most - guesses.losses) / guesses.spread)
        delivered = usual * ndtr((np.minimum(most, beta) - guesses.losses) / guesses.spread)
        delivered[:, -1] = self.kept[:, -1]
        shares = self._tried_again(delivered, 1 - quiet)
        if self.belief.prior.owns_momentum:
            # What fails seldom fails for its switch, but for its seed, and so does the next try.
            shares = np.minimum(shares, self.kept[:, -1:])
        return shares

    @functools.cached_property
    def _noticed_by_guess(self) -> Floats:
        """(P, m) share of the runs that a guard without a target sends back."""
        from scipy.special import ndtr

        guesses, beta = self.belief.guesses, self.belief.prior.threshold
        noticed_share = 0.0 if self.lacks_threshold else NOTICED_BY_ITSELF
        octaves = math.log(self.belief.prior.largest_loss / beta)
        plain = 1 - math.log(LOST) / octaves if octaves > math.log(LOST) else 0.0
        usual = 1 - ndtr((LOST * beta - guesses.losses) / guesses.spread)
        failing = DIVERGING_SHARE + (1 - DIVERGING_SHARE) * plain * noticed_share
        noticed: Floats = (1 - guesses.failures) * usual * noticed_share
        noticed += guesses.failures * failing
        noticed += FALSE_ALARMS * self.kept
        noticed[:, -1] = 0.0
        return noticed

    def with_target(self) -> Outlook:
        """The same guesses, as they are once a run of the first protocol alone has been made."""
        belief = self.belief
        errors = belief.guesses.target_z * belief.guesses.spread[:, -1]
        measured = Goal.mean_of([0.0], belief.prior.threshold)
        measured_belief = replace(belief, reference=0.0, measured=measured, target_errors=errors)
        return replace(self, belief=measured_belief, lacks_threshold=False)

    @functools.cached_property
    def faster_probabilities(self) -> Floats:
        """(m,) probability that trainings take less time than with the first protocol alone."""
        faster = self._spent_by_guess < 1.0
        return np.minimum(1.0, self.belief.mean(faster.astype(float)))

    def answers(self) -> Floats:
        """(m,) probability that each switch point is the best one, with the least time.

        Without a guard it is the earliest from which on all are good.
        """
        number = self.shares.size
        if self.is_guarded:
            best = self._times_by_guess.argmin(axis=1)
        else:
            from_there = np.cumprod(self.good[:, ::-1], axis=1)[:, ::-1]
            best = number - from_there.sum(axis=1).astype(int)
        counted: Floats = np.bincount(best, self.belief.weights, number).astype(float)
        return counted

    def least_times(self, index: int, answers: Sequence[int], most_runs: int) -> list[float]:
        """The expected least time of a later run after one, two, ... further runs.

        It is the mean over what the runs may measure, in four classes. Their switch point may be
        the answer if one of them keeps the accuracy; `answers` may be it anyway.
        """
        sample, times = self._sampled_times
        by_class = self._class_probabilities(sample, index)
        least = []
        for runs in range(1, most_runs + 1):
            classes, ways = _combinations(runs)
            # (samples, outcomes) probability of each number of runs in each class
            outcomes = ways * by_class[:, classes].prod(axis=2)
            after = np.einsum("po,pm->om", outcomes, times[:, answers]).min(axis=1)
            there = np.einsum("po,p->o", outcomes, times[:, index])
            held = (classes < _HELD).any(axis=1)
            after = np.where(held, np.minimum(after, there), after)
            least.append(float(after.sum() / len(sample)))
        return least

    def least_times_of_target(
        self, answers: Callable[[float], Sequence[int]], most_runs: int
    ) -> list[float]:
        """The same after further runs of the first protocol alone, which move the target.

        It is the mean over what they may measure, in equally likely parts. `answers` returns the
        switch points that may be the answer, given by how much the measured target has risen.
        """
        from scipy.special import ndtr, ndtri

        belief, (sample, times) = self.belief, self._sampled_times
        assert belief.measured is not None
        errors = belief.target_errors[sample]
        least = []
        for runs in range(1, most_runs + 1):
            deviations = belief.guesses.spread[sample, -1] / math.sqrt(runs)
            # By how much their mean may lie above the target so far.
            means = np.sort((errors[:, None] + deviations[:, None] * ndtri(_PARTS)).ravel())
            classes = means.reshape(len(_PARTS), -1)
            edges = (classes[:-1, -1] + classes[1:, 0]) / 2
            below = ndtr((edges - errors[:, None]) / deviations[:, None])
            by_class = np.diff(below, prepend=0.0, append=1.0, axis=1)
            after = np.einsum("po,pm->om", by_class, times)
            risen = classes.mean(axis=1) * runs / (belief.measured.runs + runs)
            rows = zip(after, risen, strict=True)
            total = math.fsum(float(row[answers(float(rise))].min()) for row, rise in rows)
            least.append(total / len(sample))
        return least

    def least_time(self, answers: Sequence[int]) -> float:
        """The expected least time of a later run without a further run."""
        return float(self._sampled_times[1][:, answers].mean(axis=0).min())

    @functools.cached_property
    def _sampled_times(self) -> tuple[NDArray[np.intp], Floats]:
        """(samples,) sampled guesses and their (samples, m) times."""
        sample = self.belief.sample()
        return sample, self._times_by_guess[sample]

    def predicted(self, index: int, quantiles: Sequence[float]) -> list[float]:
        """Quantiles of the accuracy that one more run at a switch point would measure."""
        from scipy.special import ndtri

        sample, beta = self.belief.sample(), self.belief.prior.threshold
        guesses = self.belief.guesses
        losses = guesses.losses[sample, index] - self.belief.target_errors[sample]
        usual = losses[:, None] + guesses.spread[sample, index][:, None] * ndtri(_PARTS)
        largest = self.belief.prior.largest_loss
        failed = largest * np.exp(np.log(3 * beta / largest) * (1 - _PARTS))
        failed = failed[None].repeat(len(sample), axis=0)
        failures = guesses.failures[sample, index][:, None]
        values = np.concatenate([usual, failed], axis=1).ravel()
        shares = np.concatenate([1 - failures, failures], axis=1)
        weights = shares.repeat(len(_PARTS), axis=1).ravel()
        order = np.argsort(-values, kind="stable")
        ends = np.cumsum(weights[order])
        places = np.searchsorted(ends, np.array(quantiles) * ends[-1]).clip(0, len(order) - 1)
        assert self.belief.reference is not None
        accuracies = self.belief.reference - values[order][places]
        return list(map(float, accuracies))

    @functools.cached_property
    def _spent_by_guess(self) -> Floats:
        """(P, m) time of a later run."""
        spent: Floats = self._times_by_guess - self._unnoticed_by_guess
        return spent

    @property
    def _alone(self) -> Floats:
        """(m,) time of a training whose switch does not fail."""
        alone: Floats = self.shares + (1 - self.shares) * self.ratio
        return alone

    @functools.cached_property
    def _rarer(self) -> Floats:
        """(P, m) how much more rarely the accuracy is kept than with the first protocol alone."""
        rarer: Floats = np.maximum(0.0, self.kept[:, -1:] - self.kept)
        return rarer

    @functools.cached_property
    def _unnoticed_by_guess(self) -> Floats:
        """(P, m) cost of bare failures that are noticed late, or of those that a guard misses."""
        if self.is_guarded:
            missed: Floats = np.maximum(0.0, self.kept[:, -1:] - self._delivered_by_guess)
            return _MISSED * missed
        unnoticed: Floats = _UNNOTICED * np.maximum(0.0, self._rarer - (1 - self.min_kept_share))
        return unnoticed

    @functools.cached_property
    def _times_by_guess(self) -> Floats:
        """(P, m) time of a later run, including failures that are noticed late."""
        if not self.is_guarded:
            bare: Floats = self._alone + self._rarer + self._unnoticed_by_guess
            return bare
        lost = ALARMED_AFTER * (1 - self.shares) * self.ratio
        if not self.goes_back:
            lost = lost + self.shares
        is_measured = self.belief.target_accuracy is not None
        failing = self._rarer if is_measured else self._noticed_by_guess
        times: Floats = self._tried_again((1 - failing) * self._alone + failing * lost, failing)
        return times + self._unnoticed_by_guess

    def _tried_again(self, own: Floats, failing: Floats) -> Floats:
        """(P, m) V(i) = own(i) + failing(i) V(next), from the latest switch point to the earliest.

        The next of a switch point is the earliest later one of `tries`; if there is none it is the
        last of all, whose V is its own.
        """
        values = own.copy()
        later = values[:, -1]
        for index in range(len(self.shares) - 2, -1, -1):
            values[:, index] += failing[:, index] * later
            if self.tries[index]:
                later = values[:, index]
        return values

    def _class_probabilities(self, sample: NDArray[np.intp], index: int) -> Floats:
        """(samples, classes) probability of each class of a run at a switch point."""
        from scipy.special import ndtr

        guesses = self.belief.guesses
        loss = guesses.losses[sample, index] - self.belief.target_errors[sample]
        edges = self.belief.prior.threshold * np.array(_EDGES)
        below = ndtr((edges - loss[:, None]) / guesses.spread[sample, index][:, None])
        usual = np.diff(below, prepend=0.0, append=1.0, axis=1)
        failures = guesses.failures[sample, index][:, None]
        probabilities: Floats = (1 - failures) * usual + failures * np.array(_FAILED)
        return probabilities
