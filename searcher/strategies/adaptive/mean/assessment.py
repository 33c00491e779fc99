"""For the mean accuracy: whether an answer is sure, and which run tells most for its price."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from syncswitch.searcher.strategies.adaptive.assessment import Assessment
from syncswitch.searcher.strategies.adaptive.evidence import Datum, Floats, KnownTarget, Prior
from syncswitch.searcher.strategies.adaptive.mean.belief import (
    information,
    kept_share,
    predicted,
    update,
)
from syncswitch.searcher.strategies.adaptive.options import AdaptiveOptions
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.strategies.observation import Observation

# The answer loses too much, or an earlier switch point would do, with at most these probabilities.
_TOO_EARLY = 0.12
_TOO_LATE = 0.35
# Runs per switch point of the grid after which these and the next hold as they are; before, they
# are stricter, because who looks often is often deceived. The runs behind a known target count.
_STEADY_RUNS = 2.5
# Nats about the answer, divided by the root of the price, below which no run is worth its price.
_LEAST_INFORMATION = 0.03
# A loss that differs from beta by less than this part of it may count as either.
_SLACK = 0.1
# Where the search ends unsure, the answer is the earliest switch point acceptable with this
# probability.
_ACCEPTANCE = 0.8
# An answer less sure than this needs a target that was measured twice.
_CONFIRMATION = 0.8
# What is *said* of an answer allows for jobs that lose a run now and then. Where only usual noise
# may be, the curve that is nearest to such runs has all of the weight, however far from them it is.
# The search itself does not: it would buy many runs, and answer no better.
_NOISY_SHARE = 0.01


class MeanAssessment(Assessment):
    """For the mean accuracy of a switch point's runs, the criterion of the paper."""

    def __init__(self, strategy: AdaptiveOptions, finished: Iterable[Observation]) -> None:
        """Updates the belief. Raises UserError where the baseline diverged."""
        super().__init__(strategy, finished)
        prior = Prior(self._grid, strategy.threshold, strategy.largest_loss)
        target = strategy.target_accuracy
        known = None if target is None else KnownTarget(target, strategy.target_runs)
        data = [
            Datum(self._grid.index(run.switch_percent), run.accuracy, run.diverged, run.replicate)
            for run in self._history.runs
        ]
        self._belief = update(prior, data, known)
        self._wary_belief = functools.cache(
            lambda: update(replace(prior, noisy_share=_NOISY_SHARE), data, known)
        )
        self._slack = _SLACK * strategy.threshold

    def _decided(self) -> Decided:
        sure = self._sure_answer()
        index = self._best_answer() if sure is None else sure
        confidence = self._wary_belief().right(index, self._slack)
        return Decided(self._grid[index], self._target(), min(1.0, max(0.0, confidence)))

    def _target(self) -> float:
        if self._strategy.target_accuracy is not None:
            return self._strategy.target_accuracy
        # Normal, and so a little beyond what an accuracy can be.
        return self._strategy.possible(self._belief.target()[0])

    def _acceptable(self) -> Floats:
        return self._belief.acceptable()

    def _good_probabilities(self) -> Floats:
        return self._wary_belief().acceptable()

    def _kept_shares(self) -> list[float]:
        least = self._target() - self._strategy.threshold
        return [kept_share(self._wary_belief(), index, least) for index in range(len(self._grid))]

    def _answer_probabilities(self) -> Floats:
        return self._belief.answers()

    def _predicted(self, index: int, quantiles: Sequence[float]) -> list[float]:
        return predicted(self._belief, index, quantiles)

    @property
    def _doubt(self) -> float:
        return _TOO_EARLY

    @property
    def _steadiness(self) -> float:
        """From 0, where hardly anything was seen, to 1."""
        strategy = self._strategy
        known = 0 if strategy.target_accuracy is None else strategy.target_runs
        seen = len(self._history.runs) + known
        return min(1.0, seen / (_STEADY_RUNS * len(self._grid)))

    def _sure_answer(self) -> int | None:
        """The earliest switch point that surely loses little, if those before surely do not."""
        too_early = _TOO_EARLY * self._steadiness**2
        enough = self._belief.acceptable(self._slack)
        earlier = self._belief.acceptable(-self._slack)
        for index in range(len(self._grid)):
            if enough[index] >= 1 - too_early:
                is_earliest = index == 0 or earlier[index - 1] <= _TOO_LATE
                return index if is_earliest else None
        return None

    def _best_answer(self) -> int:
        """Where nothing is sure; a switch point without a run only while it may still get one."""
        acceptable = self._belief.acceptable()
        likely = (
            index
            for index, probability in enumerate(acceptable)
            if probability >= _ACCEPTANCE and (self._history.made(index) or self._may_run(index))
        )
        return next(likely, self._last)

    def _unproven(self, answer: int) -> int | None:
        """The switch point that has to be run before an answer may be given; None where it may.

        The answer needs runs of its own; where it is not sure, the target has to be measured twice.
        """
        strategy, last, made = self._strategy, self._last, self._history.made
        if answer != last and made(answer) < min(strategy.own_runs, strategy.runs):
            return answer
        is_sure = self._wary_belief().right(answer, self._slack) >= _CONFIRMATION
        is_measured = strategy.target_accuracy is not None or made(last) >= min(2, strategy.runs)
        return None if is_sure or is_measured else last

    def _next_index(self) -> int | None:
        sure = self._sure_answer()
        unproven = self._unproven(self._best_answer() if sure is None else sure)
        if sure is not None and unproven is None:
            return None
        if sure is None:
            index = self._most_telling()
            if index is not None:
                return index
        return unproven if unproven is not None and self._may_run(unproven) else None

    def _most_telling(self) -> int | None:
        """Switch point of the run that tells most for its price; None where none is worth it."""
        candidates = [index for index in self._telling() if self._may_run(index)]
        if not candidates:
            return None
        told = information(self._belief, candidates)
        costs = [self._next_cost(index) for index in candidates]
        # The root, so that where all runs are dear more of them are still made.
        worth = max(t / math.sqrt(c) for t, c in zip(told, costs, strict=True))
        if worth < _LEAST_INFORMATION * self._steadiness:
            return None
        return max(zip(candidates, told, costs, strict=True), key=lambda run: run[1] / run[2])[0]

    def _telling(self) -> list[int]:
        """The median answer, the one before, and those that tell about the target."""
        grid, below, median = self._grid, 0.0, self._last
        for index, probability in enumerate(self._belief.answers()):
            below += float(probability)
            if below >= 0.5:
                median = index
                break
        later = [i for i in range(median + 1, self._last) if grid[i] >= 2 * grid[median]]
        return sorted({max(median - 1, 0), median, self._last, *later})
