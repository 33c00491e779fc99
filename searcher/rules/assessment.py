"""What the adaptive rule makes of a history: whether an answer is sure, and which run is next."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from syncswitch.searcher.decision import (
    Decided,
    Decision,
    NextRun,
    Observation,
    Progress,
    SettingSummary,
    summary_of,
)
from syncswitch.searcher.rules.belief import Datum, Known, Prior, information, predicted, update
from syncswitch.searcher.rules.costs import RunCosts
from syncswitch.searcher.rules.halving import check_baseline
from syncswitch.searcher.rules.history import History

if TYPE_CHECKING:
    from syncswitch.searcher.rules.adaptive import AdaptiveRule

__all__ = ["Assessment"]

# Of what a run may measure: the middles of three equally likely parts.
_QUANTILES = (1 / 6, 1 / 2, 5 / 6)
# Where nothing is measured: the target is integrated out, so any does.
_ANY_ACCURACY = 0.5


class Assessment:
    """A rule, a history, and what is believed after it."""

    def __init__(self, rule: AdaptiveRule, finished: Iterable[Observation]) -> None:
        """Updates the belief.

        Raises:
            UserError: The baseline diverged.
        """
        self._rule = rule
        self._grid = rule.grid()
        self._highest = len(self._grid) - 1
        self._history = History.of(finished, self._grid)
        check_baseline(self._history.at(self._highest))
        self._costs = RunCosts.of(self._history.runs, rule.highest_percent, rule.share_prefix)
        prior = Prior(self._grid, rule.threshold, rule.related)
        target = rule.target_accuracy
        known = None if target is None else Known(target, rule.target_runs)
        self._belief = update(prior, self._data(), known)

    def decision(self) -> Decision:
        """The answer, or the next run."""
        sure = self._sure_answer()
        if sure is not None and self._unproven(sure) is None:
            return self._decided(sure)
        index = self._next_index(sure)
        if index is not None:
            return NextRun(self._grid[index])
        return self._decided(self._best_answer() if sure is None else sure)

    def outcomes(self, percent: float) -> list[tuple[float, float]]:
        """What a run at a setting may measure, as `Rule.outcomes`."""
        if not self._belief.effective_runs:
            return [(1.0, _ANY_ACCURACY)]
        accuracies = predicted(self._belief, self._grid.index(percent), _QUANTILES)
        return [(1 / len(_QUANTILES), accuracy) for accuracy in accuracies]

    def answers(self) -> dict[float, float]:
        """How likely each setting is to be the answer, as `Rule.answers`."""
        return dict(zip(self._grid, map(float, self._belief.answers()), strict=True))

    def progress(self) -> Progress:
        """The brackets that are sure, and what is measured."""
        decision = self.decision()
        verdicts = dict(zip(self._grid, self._verdicts(decision), strict=True))
        rejected = [percent for percent, verdict in verdicts.items() if verdict is False]
        return Progress(
            summaries=self._summaries(verdicts),
            lower_percent=max(rejected, default=self._rule.lowest_percent),
            upper_percent=min(percent for percent, verdict in verdicts.items() if verdict),
            target_accuracy=self._target() if self._belief.effective_runs else None,
            open_percent=None if isinstance(decision, Decided) else decision.switch_percent,
        )

    def _summaries(self, verdicts: dict[float, bool | None]) -> tuple[SettingSummary, ...]:
        """In the order in which the settings were first tried."""
        return tuple(
            summary_of(percent, self._history.at(self._grid.index(percent)), verdicts[percent])
            for percent in dict.fromkeys(run.switch_percent for run in self._history.runs)
        )

    def _verdicts(self, decision: Decision) -> list[bool | None]:
        """Of each setting: acceptable, not, or open."""
        if isinstance(decision, Decided):
            answer = self._grid.index(decision.switch_percent)
            return [index >= answer for index in range(len(self._grid))]
        verdicts: list[bool | None] = [None] * len(self._grid)
        if self._belief.effective_runs:
            for index, acceptable in enumerate(self._belief.acceptable()):
                if acceptable >= 1 - self._rule.too_early:
                    verdicts[index] = True
                elif acceptable <= self._rule.too_early:
                    verdicts[index] = False
        verdicts[-1] = True
        return verdicts

    def _decided(self, index: int) -> Decided:
        confidence = self._belief.right(index, self._slack)
        return Decided(self._grid[index], self._target(), min(1.0, max(0.0, confidence)))

    def _target(self) -> float:
        if self._rule.target_accuracy is not None:
            return self._rule.target_accuracy
        # Normal, and so a little beyond what an accuracy can be.
        return min(1.0, max(0.0, self._belief.target()[0]))

    @property
    def _slack(self) -> float:
        return self._rule.slack * self._rule.threshold

    @property
    def _steadiness(self) -> float:
        """From 0, where hardly anything was seen, to 1."""
        rule = self._rule
        known = 0 if rule.target_accuracy is None else rule.target_runs
        seen = len(self._history.runs) + known
        return min(1.0, seen / (rule.steady_runs * len(self._grid)))

    def _sure_answer(self) -> int | None:
        """The earliest setting that surely loses little enough, if those before surely do not."""
        too_early = self._rule.too_early * self._steadiness**2
        enough = self._belief.acceptable(self._slack)
        earlier = self._belief.acceptable(-self._slack)
        for index in range(len(self._grid)):
            if enough[index] >= 1 - too_early:
                is_earliest = index == 0 or earlier[index - 1] <= self._rule.too_late
                return index if is_earliest else None
        return None

    def _best_answer(self) -> int:
        """Where nothing is sure; a setting without a run only while it may still get one."""
        acceptable = self._belief.acceptable()
        likely = (
            index
            for index, probability in enumerate(acceptable)
            if probability >= self._rule.acceptance
            and (self._history.made(index) or self._may_run(index))
        )
        return next(likely, self._highest)

    def _unproven(self, answer: int) -> int | None:
        """The setting that has to be run before an answer may be given; None where it may.

        The answer needs runs of its own; where it is not sure, the target has to be measured twice.
        """
        rule, highest, made = self._rule, self._highest, self._history.made
        if answer != highest and made(answer) < min(rule.least_runs, rule.runs):
            return answer
        is_sure = self._belief.right(answer, self._slack) >= rule.confirmation
        is_measured = rule.target_accuracy is not None or made(highest) >= min(2, rule.runs)
        return None if is_sure or is_measured else highest

    def _next_index(self, sure: int | None) -> int | None:
        """Setting of the run to make; None where none is needed or worth it."""
        if not self._belief.effective_runs:
            return self._highest  # without a target nothing can be compared
        if sure is None:
            index = self._most_telling()
            if index is not None:
                return index
        unproven = self._unproven(self._best_answer() if sure is None else sure)
        return unproven if unproven is not None and self._may_run(unproven) else None

    def _most_telling(self) -> int | None:
        """Setting of the run that tells most for its price; None where none is worth it."""
        candidates = [index for index in self._telling() if self._may_run(index)]
        if not candidates:
            return None
        told = information(self._belief, candidates)
        costs = [self._next_cost(index) for index in candidates]
        # The root, so that where all runs are dear more of them are still made.
        worth = max(t / math.sqrt(c) for t, c in zip(told, costs, strict=True))
        if worth < self._rule.least_information * self._steadiness:
            return None
        return max(zip(candidates, told, costs, strict=True), key=lambda run: run[1] / run[2])[0]

    def _telling(self) -> list[int]:
        """The median answer, the one before, and those that tell about the target."""
        grid, below, median = self._grid, 0.0, self._highest
        for index, probability in enumerate(self._belief.answers()):
            below += float(probability)
            if below >= 0.5:
                median = index
                break
        later = [i for i in range(median + 1, self._highest) if grid[i] >= 2 * grid[median]]
        return sorted({max(median - 1, 0), median, self._highest, *later})

    def _may_run(self, index: int) -> bool:
        """Whether one more run is within R and the budget."""
        if self._history.made(index) >= self._rule.runs:
            return False
        if self._rule.budget is None:
            return True
        return self._costs.paid + self._next_cost(index) <= self._rule.budget

    def _next_cost(self, index: int) -> float:
        return self._costs.next(self._grid[index], self._history.next_replicate(index))

    def _data(self) -> list[Datum]:
        return [
            Datum(self._grid.index(run.switch_percent), run.replicate, run.accuracy, run.diverged)
            for run in self._history.runs
        ]
