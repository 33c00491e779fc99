"""What the adaptive rule makes of a history: whether an answer is sure, and which run is next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from syncswitch.searcher.decision import (
    Decided,
    Decision,
    NextRun,
    Observation,
    Progress,
    SettingSummary,
    Wait,
    summary_of,
)
from syncswitch.searcher.rules.belief import Belief, Datum, Known, Prior, information, update
from syncswitch.searcher.rules.costs import RunCosts
from syncswitch.searcher.rules.halving import check_baseline
from syncswitch.searcher.rules.history import History

if TYPE_CHECKING:
    from syncswitch.searcher.rules.adaptive import AdaptiveRule

__all__ = ["Assessment"]


class Assessment:
    """A rule, a history, and what is believed after it."""

    def __init__(
        self,
        rule: AdaptiveRule,
        finished: Iterable[Observation],
        in_flight_percents: Iterable[float],
    ) -> None:
        """Updates the belief.

        Raises:
            UserError: The baseline diverged.
        """
        self._rule = rule
        self._grid = rule.grid()
        self._highest = len(self._grid) - 1
        self._history = History.of(finished, in_flight_percents, self._grid)
        check_baseline(self._history.at(self._highest))
        self._costs = RunCosts.of(self._history.runs, rule.highest_percent, rule.share_prefix)
        prior = Prior(self._grid, rule.threshold, rule.related)
        target = rule.target_accuracy
        known = None if target is None else Known(target, rule.target_runs)
        self._belief = update(prior, self._data(), known)
        # Runs under way are taken to end as expected: they inform, but surprise nobody.
        self._foreseen = (
            update(prior, [*self._data(), *self._expected()], known)
            if self._history.in_flight
            else self._belief
        )

    def decision(self) -> Decision:
        """The answer, the next run, or to wait for those under way."""
        sure = self._sure_answer(self._belief)
        if sure is not None and self._unproven(sure, self._belief, self._history.made) is None:
            return self._decided(sure)
        index = self._next_index()
        if index is not None:
            return NextRun(self._grid[index])
        if self._history.in_flight:
            return Wait(self._grid[self._history.in_flight[0]])
        return self._decided(self._best_answer(self._belief) if sure is None else sure)

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

    def _sure_answer(self, belief: Belief) -> int | None:
        """The earliest setting that surely loses little enough, if those before surely do not."""
        too_early = self._rule.too_early * self._steadiness**2
        enough = belief.acceptable(self._slack)
        earlier = belief.acceptable(-self._slack)
        for index in range(len(self._grid)):
            if enough[index] >= 1 - too_early:
                is_earliest = index == 0 or earlier[index - 1] <= self._rule.too_late
                return index if is_earliest else None
        return None

    def _best_answer(self, belief: Belief) -> int:
        """Where nothing is sure; a setting without a run only while it may still get one."""
        acceptable = belief.acceptable()
        likely = (
            index
            for index, probability in enumerate(acceptable)
            if probability >= self._rule.acceptance
            and (self._history.taken(index) or self._may_run(index))
        )
        return next(likely, self._highest)

    def _unproven(self, answer: int, belief: Belief, runs: Callable[[int], int]) -> int | None:
        """The setting that has to be run before an answer may be given; None where it may.

        Args:
            answer: Index of the setting; it needs runs of its own.
            belief: Where it is not sure of the answer, the target has to be measured twice.
            runs: How many there are of a setting.
        """
        rule, highest = self._rule, self._highest
        if answer != highest and runs(answer) < min(rule.least_runs, rule.runs):
            return answer
        is_sure = belief.right(answer, self._slack) >= rule.confirmation
        is_measured = rule.target_accuracy is not None or runs(highest) >= min(2, rule.runs)
        return None if is_sure or is_measured else highest

    def _next_index(self) -> int | None:
        """Setting of the run to make; None where none is needed or worth it."""
        belief = self._foreseen
        if not belief.effective_runs:
            return self._highest  # without a target nothing can be compared
        answer = self._sure_answer(belief)
        if answer is None:
            index = self._most_telling(belief)
            if index is not None:
                return index
            answer = self._best_answer(belief)
        unproven = self._unproven(answer, belief, self._history.taken)
        return unproven if unproven is not None and self._may_run(unproven) else None

    def _most_telling(self, belief: Belief) -> int | None:
        """Setting of the run that tells most for its price; None where none is worth it."""
        candidates = [index for index in self._telling(belief) if self._may_run(index)]
        if not candidates:
            return None
        told = information(belief, candidates)
        costs = [self._next_cost(index) for index in candidates]
        # The root, so that where all runs are dear more of them are still made.
        worth = max(t / math.sqrt(c) for t, c in zip(told, costs, strict=True))
        if worth < self._rule.least_information * self._steadiness:
            return None
        return max(zip(candidates, told, costs, strict=True), key=lambda run: run[1] / run[2])[0]

    def _telling(self, belief: Belief) -> list[int]:
        """The median answer, the one before, and those that tell about the target."""
        grid, below, median = self._grid, 0.0, self._highest
        for index, probability in enumerate(belief.answers()):
            below += float(probability)
            if below >= 0.5:
                median = index
                break
        later = [i for i in range(median + 1, self._highest) if grid[i] >= 2 * grid[median]]
        return sorted({max(median - 1, 0), median, self._highest, *later})

    def _may_run(self, index: int) -> bool:
        """Whether one more run is within R and the budget."""
        if self._history.taken(index) >= self._rule.runs:
            return False
        if self._rule.budget is None:
            return True
        return self._costs.paid + self._cost_under_way() + self._next_cost(index) <= (
            self._rule.budget
        )

    def _next_cost(self, index: int) -> float:
        return self._costs.next(self._grid[index], self._history.replicates(index)[-1])

    def _cost_under_way(self) -> float:
        return math.fsum(
            self._costs.next(self._grid[index], replicate)
            for index in set(self._history.in_flight)
            for replicate in self._history.replicates(index)[:-1]
        )

    def _data(self) -> list[Datum]:
        return [
            Datum(self._grid.index(run.switch_percent), run.replicate, run.accuracy, run.diverged)
            for run in self._history.runs
        ]

    def _expected(self) -> list[Datum]:
        expected = self._belief.expected()
        return [
            Datum(index, replicate, float(expected[index]))
            for index in set(self._history.in_flight)
            for replicate in self._history.replicates(index)[:-1]
        ]
