"""Which run pays for itself in later trainings, and which switch point they then get."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from syncswitch.searcher.strategies.adaptive.assessment import Assessment
from syncswitch.searcher.strategies.adaptive.evidence import Datum, Floats, KnownTarget, Prior
from syncswitch.searcher.strategies.adaptive.kept.belief import believe
from syncswitch.searcher.strategies.adaptive.kept.outlook import Outlook
from syncswitch.searcher.strategies.base import Decided, Decision

# Switch points of which one more run is thought about: so many before the answer and after it, and
# BSP.
_BEFORE, _AFTER = 1, 1
# The answer, and all later switch points, are good with this probability at least.
_ACCEPTANCE = 0.7
# What a run saves has to be so much more than its price: less would buy answers that change little.
_LEAST_WORTH = 4.5
# So many runs at one switch point are thought of at once.
AHEAD = 3


class KeptAssessment(Assessment):
    """For the share of later runs that keep the accuracy."""

    _is_guarded = False

    @functools.cached_property
    def _outlook(self) -> Outlook:
        strategy = self._strategy
        data = (
            Datum(
                self._grid.index(run.switch_percent),
                run.accuracy,
                run.diverged,
                failed=run.alarmed,
            )
            for run in self._history.runs
        )
        target = strategy.target_accuracy
        belief = believe(
            Prior(self._grid, strategy.threshold, strategy.largest_loss),
            data,
            None if target is None else KnownTarget(target, strategy.target_runs),
        )
        shares = np.array(self._grid) / strategy.highest_percent
        return Outlook(belief, shares, self._costs.ratio, strategy.keep, self._is_guarded)

    def _next_index(self) -> int | None:
        paying = self._paying()
        if paying is not None:
            return paying
        # Neither is an answer given that was never tried, nor BSP alone before its neighbour.
        answer = self._answer
        if answer == self._last and self._outlook.ratio >= 1:
            return None
        if answer == self._last:
            needed, least_runs = self._neighbour, 1
        else:
            needed, least_runs = answer, min(self._strategy.own_runs, self._strategy.runs)
        is_tried = self._history.made(needed) >= least_runs
        return needed if not is_tried and self._may_run(needed) else None

    @property
    def _neighbour(self) -> int:
        """Of the first protocol alone, among the switch points of halving."""
        middle = (self._strategy.lowest_percent + self._strategy.highest_percent) / 2
        return max(i for i, percent in enumerate(self._grid) if percent <= middle)

    def _paying(self) -> int | None:
        """The run that saves later trainings most for its price; None where none does enough."""
        first, end = max(0, self._answer - _BEFORE), self._answer + _AFTER + 1
        near = {index for index in range(first, end) if index < self._last} | {self._last}
        candidates = [index for index in sorted(near) if self._may_run(index)]
        if not candidates:
            return None
        worth = {index: self._worth(index) for index in candidates}
        best = max(candidates, key=lambda index: worth[index])
        return best if worth[best] > _LEAST_WORTH else None

    def _worth(self, index: int) -> float:
        """What the next runs at a switch point save in all later trainings, by their price."""
        savings = self._outlook.savings(index, AHEAD)
        price = self._next_cost(index)
        return max(
            self._strategy.uses * saving / (runs * price) for runs, saving in enumerate(savings, 1)
        )

    @functools.cached_property
    def _answer(self) -> int:
        """The earliest good switch point with only good later ones; BSP where that saves no time.

        A switch point without a run only while it may still get one.
        """
        answer = self._last
        for index in range(self._last, -1, -1):
            if self._outlook.good_probabilities[index] < _ACCEPTANCE:
                break
            if self._history.made(index) or self._may_run(index):
                answer = index
        times = self._outlook.times
        return answer if times[answer] < times[-1] else self._last

    def _decided(self) -> Decided:
        outlook, index = self._outlook, self._answer
        return Decided(
            switch_percent=self._grid[index],
            target_accuracy=self._target(),
            confidence=float(outlook.good_probabilities[index]),
            kept_share=float(outlook.kept_shares[index]),
            baseline_kept_share=float(outlook.kept_shares[-1]),
            reason=self._reason() if index == self._last else None,
        )

    def _reason(self) -> str:
        """Why no earlier switch is the answer."""
        if self._outlook.ratio >= 1:
            return "an earlier switch saves no time"
        likely = self._outlook.good_probabilities[:-1]
        if (likely < _ACCEPTANCE).all():
            return "no earlier switch is likely enough to keep the accuracy as often as wanted"
        if likely[-1] >= _ACCEPTANCE:
            return "what an earlier switch saves is not worth its risk"
        return (
            "a switch a little earlier is not likely enough to keep the accuracy as often as wanted"
        )

    def _target(self) -> float:
        return self._outlook.belief.target_accuracy

    def _acceptable(self) -> Floats:
        acceptable: Floats = np.cumsum(self._outlook.answers())
        return acceptable

    def _good_probabilities(self) -> Floats:
        return self._outlook.good_probabilities

    def _kept_shares(self) -> list[float]:
        return [float(share) for share in self._outlook.kept_shares]

    def _answer_probabilities(self) -> Floats:
        return self._outlook.answers()

    def _predicted(self, index: int, quantiles: Sequence[float]) -> list[float]:
        return self._outlook.predicted(index, quantiles)

    def _verdicts(self, decision: Decision) -> list[bool | None]:
        verdicts = super()._verdicts(decision)
        if not isinstance(decision, Decided):
            return verdicts
        # What saves no time, or is as likely good as not, is no answer and yet not too early.
        likely = [acceptable > 1 - _ACCEPTANCE for acceptable in self._acceptable()]
        return [
            verdict or (None if good else False)
            for verdict, good in zip(verdicts, likely, strict=True)
        ]

    @property
    def _doubt(self) -> float:
        return 0.1
