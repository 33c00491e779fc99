"""The adaptive rule: a binary search in which every run is chosen for what it tells per cost.

The grid is that of halving from the top: 100 %, 50 %, 25 %, ... A belief over the whole curve of
accuracy against switch point (see `belief`) says how sure each answer is. The next run is at the
setting in the middle of what is believed, or at one beside it, whichever tells most for its price;
the search ends when one answer is sure enough, or when no run is worth its price.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.decision import (
    Decided,
    Decision,
    NextRun,
    Observation,
    Progress,
    Rule,
    Wait,
    summary_of,
)
from syncswitch.searcher.rules.costs import RunCosts
from syncswitch.searcher.rules.paper import check_baseline
from syncswitch.searcher.stopping import corrected

if TYPE_CHECKING:
    from syncswitch.searcher.rules.belief import Belief, Datum

__all__ = ["AdaptiveRule"]


@dataclass(frozen=True, slots=True)
class AdaptiveRule(Rule):
    """As many runs as the answer needs, and no more.

    Attributes:
        target_runs: How many runs stand behind `target_accuracy`: so sure is it.
        least_runs: Runs that the answer itself needs.
        budget: The most that the search may cost, in trainings with the first protocol alone;
            None for no limit. A run that would go beyond is not begun.
        related: Switch points of related jobs, for a warm start.
        too_early: The answer loses too much with at most this probability.
        too_late: An earlier setting would do with at most this probability.
        steady_runs: Runs per setting of the grid after which `too_early` and `least_information`
            hold as they are; before, they are stricter, because who looks often is often deceived.
            The runs behind a known target count.
        slack: A loss that differs from beta by less than this part of it may count as either.
        least_information: Nats about the answer, divided by the root of the price in trainings with
            the first protocol alone, below which no run is worth its price.
        acceptance: Where the search ends unsure, the answer is the earliest setting that is
            acceptable with this probability.
        confirmation: An answer less sure than this needs a target that was measured twice.
    """

    share_prefix: bool = True
    early_stop: bool = True
    target_runs: int = 5
    least_runs: int = 1
    budget: float | None = None
    related: tuple[float, ...] = ()
    too_early: float = 0.14
    too_late: float = 0.4
    steady_runs: float = 2.5
    slack: float = 0.1
    least_information: float = 0.03
    acceptance: float = 0.75
    confirmation: float = 0.85

    @property
    def name(self) -> str:
        """What policies and studies call this rule."""
        return "adaptive"

    @property
    def most_runs(self) -> int:
        """Runs of a search that is never sure."""
        return (self.settings + (self.target_accuracy is None)) * self.runs

    def grid(self) -> tuple[float, ...]:
        """The ends of repeated halving, ascending."""
        width = self.highest_percent - self.lowest_percent
        return tuple(
            self.lowest_percent + width / 2**halvings for halvings in range(self.settings, -1, -1)
        )

    def decide(
        self, finished: Iterable[Observation], in_flight_percents: Iterable[float] = ()
    ) -> Decision:
        """See `Rule.decide`."""
        return _Assessment(self, finished, in_flight_percents).decision()

    def progress(self, finished: Iterable[Observation]) -> Progress:
        """See `Rule.progress`; a setting is accepted or rejected as soon as that is sure."""
        return _Assessment(self, finished, ()).progress()


class _Assessment:
    """What a rule makes of a history."""

    def __init__(
        self,
        rule: AdaptiveRule,
        finished: Iterable[Observation],
        in_flight_percents: Iterable[float],
    ) -> None:
        from syncswitch.searcher.rules.belief import Known, Prior, update

        self._rule = rule
        self._grid = rule.grid()
        self._runs = _counted(corrected(finished), self._grid)
        check_baseline(run for run in self._runs if run.switch_percent == self._grid[-1])
        self._in_flight = Counter(p for p in in_flight_percents if p in self._grid)
        self._costs = RunCosts.of(self._runs, rule.highest_percent, rule.share_prefix)
        prior = Prior(self._grid, rule.threshold, rule.related)
        known = (
            None if rule.target_accuracy is None else Known(rule.target_accuracy, rule.target_runs)
        )
        self._belief = update(prior, self._data(), known)
        # Runs under way are taken to end as expected: they inform, but surprise nobody.
        self._foreseen = (
            update(prior, [*self._data(), *self._expected()], known)
            if self._in_flight
            else self._belief
        )

    def decision(self) -> Decision:
        """The answer, the next run, or to wait for those under way."""
        sure = self._sure_answer(self._belief)
        if sure is not None and self._is_evidenced(sure):
            return self._decided(sure)
        index = self._next_index()
        if index is not None:
            return NextRun(self._grid[index])
        if self._in_flight:
            return Wait(next(iter(self._in_flight)))
        return self._decided(self._best_answer(self._belief) if sure is None else sure)

    def progress(self) -> Progress:
        """The brackets that are sure, and what is measured."""
        grid, decision = self._grid, self.decision()
        verdicts = self._verdicts(decision)
        by_setting: dict[float, list[Observation]] = defaultdict(list)
        for run in self._runs:
            by_setting[run.switch_percent].append(run)
        known = dict(zip(grid, verdicts, strict=True))
        return Progress(
            summaries=tuple(
                summary_of(percent, runs, known[percent]) for percent, runs in by_setting.items()
            ),
            lower_percent=max(
                (percent for percent, verdict in known.items() if verdict is False),
                default=self._rule.lowest_percent,
            ),
            upper_percent=min(percent for percent, verdict in known.items() if verdict),
            target_accuracy=self._target() if self._belief.effective_runs else None,
            open_percent=None if isinstance(decision, Decided) else decision.switch_percent,
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
        return self._belief.target()[0]

    @property
    def _slack(self) -> float:
        return self._rule.slack * self._rule.threshold

    def _sure_answer(self, belief: Belief) -> int | None:
        """The earliest setting that surely loses little enough, if those before surely do not."""
        rule = self._rule
        too_early = rule.too_early * self._steadiness**2
        enough = belief.acceptable(self._slack)
        earlier = belief.acceptable(-self._slack)
        for index in range(len(self._grid)):
            if enough[index] >= 1 - too_early:
                is_earliest = index == 0 or earlier[index - 1] <= rule.too_late
                return index if is_earliest else None
        return None

    @property
    def _steadiness(self) -> float:
        """From 0, where hardly anything was seen, to 1."""
        rule = self._rule
        known = 0 if rule.target_accuracy is None else rule.target_runs
        return min(1.0, (len(self._runs) + known) / (rule.steady_runs * len(self._grid)))

    def _best_answer(self, belief: Belief) -> int:
        """Where nothing is sure."""
        acceptable = belief.acceptable()
        likely = (i for i, p in enumerate(acceptable) if p >= self._rule.acceptance)
        return next(likely, len(self._grid) - 1)

    def _is_evidenced(self, index: int) -> bool:
        """Whether an answer was itself measured, and is sure or its target measured twice."""
        return self._missing_evidence(index, self._belief) is None

    def _missing_evidence(self, index: int, belief: Belief) -> int | None:
        """The setting that has to be run before an answer may be given; None where it may."""
        rule, highest = self._rule, len(self._grid) - 1
        if index != highest and self._taken(index) < min(rule.least_runs, rule.runs):
            return index
        is_sure = belief.right(index, self._slack) >= rule.confirmation
        if (
            rule.target_accuracy is None
            and not is_sure
            and self._taken(highest) < min(2, rule.runs)
        ):
            return highest
        return None

    def _next_index(self) -> int | None:
        """Setting of the run to make; None where none is needed or worth it."""
        belief, highest = self._foreseen, len(self._grid) - 1
        if not belief.effective_runs:
            return highest  # without a target nothing can be compared
        answer = self._sure_answer(belief)
        if answer is None:
            index = self._most_telling(belief)
            if index is not None:
                return index
            answer = self._best_answer(belief)
        missing = self._missing_evidence(answer, belief)
        return missing if missing is not None and self._may_run(missing) else None

    def _most_telling(self, belief: Belief) -> int | None:
        """Setting of the run that tells most for its price; None where none is worth it."""
        from syncswitch.searcher.rules.belief import information

        candidates = [index for index in self._telling(belief) if self._may_run(index)]
        if not candidates:
            return None
        told = information(belief, candidates)
        costs = [self._costs.next(self._grid[index], self._taken(index)) for index in candidates]
        # The root, so that where all runs are dear more of them are still made.
        worth = max(t / math.sqrt(c) for t, c in zip(told, costs, strict=True))
        if worth < self._rule.least_information * self._steadiness:
            return None
        return max(zip(candidates, told, costs, strict=True), key=lambda run: run[1] / run[2])[0]

    def _telling(self, belief: Belief) -> list[int]:
        """The median answer, the one before, and those that tell about the target."""
        grid = self._grid
        below, median = 0.0, len(grid) - 1
        for index, probability in enumerate(belief.answers()):
            below += float(probability)
            if below >= 0.5:
                median = index
                break
        later = [i for i in range(median + 1, len(grid) - 1) if grid[i] >= 2 * grid[median]]
        return sorted({max(median - 1, 0), median, len(grid) - 1, *later})

    def _may_run(self, index: int) -> bool:
        percent, rule = self._grid[index], self._rule
        if self._taken(index) >= rule.runs:
            return False
        if rule.budget is None:
            return True
        under_way = sum(
            self._costs.next(p, self._made(p)) * number for p, number in self._in_flight.items()
        )
        cost = self._costs.next(percent, self._taken(index))
        return self._costs.paid + under_way + cost <= rule.budget

    def _taken(self, index: int) -> int:
        percent = self._grid[index]
        return self._made(percent) + self._in_flight[percent]

    def _made(self, percent: float) -> int:
        return sum(run.switch_percent == percent for run in self._runs)

    def _data(self) -> list[Datum]:
        from syncswitch.searcher.rules.belief import Datum

        return [
            Datum(self._grid.index(run.switch_percent), run.replicate, run.accuracy, run.diverged)
            for run in self._runs
        ]

    def _expected(self) -> list[Datum]:
        from syncswitch.searcher.rules.belief import Datum

        belief = self._belief
        expected = belief.weights @ (belief.target_mean[:, None] - belief.losses)
        return [
            Datum(self._grid.index(percent), self._made(percent) + extra, float(expected[index]))
            for percent, number in self._in_flight.items()
            for index in [self._grid.index(percent)]
            for extra in range(number)
        ]


def _counted(finished: Iterable[Observation], grid: Sequence[float]) -> list[Observation]:
    """The runs that count, as they were made.

    One for each setting and replicate: another one with the same seed and the same start says
    little new.
    """
    runs: dict[tuple[float, int], Observation] = {}
    for run in sorted(finished, key=lambda run: (run.trial_number, run.accuracy, run.diverged)):
        if run.switch_percent in grid:
            runs.setdefault((run.switch_percent, run.replicate), run)
    return list(runs.values())
