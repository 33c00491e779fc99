"""The adaptive strategy: a binary search in which every run is chosen for what it is worth.

The grid is that of halving from the top: 100 %, 50 %, 25 %, ... A belief over the whole curve says
how likely runs with each switch keep the accuracy, and so how long all later runs are expected
to take. A run is made if it saves more of that time than it costs, and the answer is the switch
point with the least expected time.

The rule is the same for a search and for trainings that learn from each other: the expected time of
everything to come is to be least. A run of a search is paid on top of the uses; a use that tries a
switch point costs what it takes, and is one of them.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.strategies.base import (
    Decided,
    Decision,
    NextTrial,
    Outcomes,
    SearchProgress,
    Strategy,
    SwitchPointBelief,
    summary_of,
)
from syncswitch.searcher.strategies.baseline import ROUNDING, check_baseline
from syncswitch.searcher.strategies.early_stopping import corrected
from syncswitch.searcher.strategies.observation import SHARES, Observation, TrialCosts
from syncswitch.storage.records.goal import ONE_IN_TWENTY
from syncswitch.storage.records.guard import later_switch_points
from syncswitch.storage.records.job import EARLY_RULES, OWN_MOMENTUM, OWN_OPTIMIZER
from syncswitch.storage.records.metric import AccuracyRange, possible_accuracy
from syncswitch.storage.records.policy import Promise

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.adaptive.guesses import Floats, Prior
    from syncswitch.searcher.strategies.adaptive.outlook import Outlook


def halved_percents(halvings: int) -> tuple[float, ...]:
    """100 % and its repeated halves, descending."""
    return tuple(100.0 / 2**halved for halved in range(halvings + 1))


def counted_runs(
    finished: Iterable[Observation], grid: Iterable[float], limits: AccuracyRange = SHARES
) -> tuple[Observation, ...]:
    """The runs that count, in the order in which they were made, as if none had been stopped.

    There is one for each switch point and replicate: another one with the same seed and the same
    start says little new.
    """
    runs: dict[tuple[float, int], Observation] = {}
    for run in sorted(finished, key=_order):
        if run.switch_percent in grid:
            runs.setdefault((run.switch_percent, run.replicate), run)
    return tuple(corrected(runs.values(), limits))


def _order(run: Observation) -> tuple[int, float, int, float, bool]:
    return (run.trial_number, run.switch_percent, run.replicate, run.accuracy, run.diverged)


# The answer without a guard is good, with all later switch points, with this probability.
_ACCEPTANCE = 0.7
# Without a guard nothing makes up for a switch that fails, so a run must save this many times its
# price, and is made at the answer or beside it.
_LEAST_WORTH = 4.5
# A search under way accepts or rejects a switch point with less doubt than this.
_DOUBT = 0.1
# Runs at one switch point that are considered together, as a single one may never change the answer
# where several would. More than six hardly change a decision.
_AHEAD = 6
# Outcomes of a run that are considered: the middles of three equally likely parts.
_QUANTILES = (1 / 6, 1 / 2, 5 / 6)
# Where each worker keeps its own momentum and runs of the first protocol alone differ by more than
# may be lost, their mean is measured until its error is at most this part of that, in at most this
# part of all trainings.
_CERTAIN = 0.5
_MOST_MEASURING = 0.25
# Before the target is measured nothing is compared, so any accuracy does.
_ANY_ACCURACY = 0.5
# Nine of ten runs end between these quantiles.
_NINE_OF_TEN = (0.05, 0.95)


UNTRIED_REASON = "no run has tried a switch yet"
"""The reason of an answer that rests on the first protocol alone."""


@dataclass(frozen=True, slots=True)
class AdaptiveStrategy(Strategy):
    """Makes as many runs as the answer needs, and no more.

    Attributes:
        guarded: Whether later runs are guarded, as those of `syncswitch-run` are: they go back
            to a switch that failed, and switch again later. Otherwise the answer has to hold with
            unguarded ones.
        goes_back: Whether a failed switch costs only what came after it. Otherwise a training that
            failed is made again from its beginning, with the first protocol alone.
        min_kept_share: Share of later runs that shall keep the accuracy without a guard, or at most
            1 - min_kept_share fewer than those of the first protocol alone.
        expected_runs: Number of later runs with the policy. A run is made if it saves more
            time in these than it costs.
        target_runs: Number of runs behind `target_accuracy`, which says how certain it is.
        least_runs: Runs that the answer itself needs; None for one, or two without a guard.
        budget: The most that the search may cost, in trainings with the first protocol alone; None
            for no limit. After the first run none is begun that would exceed it.
        recorded: Switch point and replicate of each recorded run that costs nothing. All of them
            are taken before another run is made, even if they are more than R.
        switch_points: The switch points to choose from, in percent of the range; empty for those of
            halving and 75 %, and 0 % where workers keep their own momentum.
        owns_momentum: Whether each worker keeps its own momentum after the switch.
        owns_optimizer: Whether that is an optimizer of Keras, such as Adam.
        bearing: What a user's own jobs say of such a job, the `tolerance` of a `Prior`; empty
            without any.
    """

    name = "adaptive"
    judges_single_runs = True

    share_prefix: bool = True
    early_stop: bool = True
    guarded: bool = True
    goes_back: bool = True
    min_kept_share: float = 0.95
    expected_runs: int = 30
    target_runs: int = 5
    least_runs: int | None = None
    budget: float | None = None
    recorded: tuple[tuple[float, int], ...] = ()
    switch_points: tuple[float, ...] = ()
    owns_momentum: bool = False
    owns_optimizer: bool = False
    bearing: tuple[tuple[float, float], ...] = ()

    @property
    @override
    def most_runs(self) -> int:
        """Runs of a search that is never certain, which may measure a known target again."""
        return len(self.grid()) * self.runs + max(0, self.allowed.runs - self.runs)

    @property
    def own_runs(self) -> int:
        """Number of runs that the answer itself needs."""
        if self.least_runs is not None:
            return self.least_runs
        return 1 if self.guarded else 2

    @override
    def grid(self) -> tuple[float, ...]:
        return tuple(map(self._percent_at, self._places))

    @property
    def _places(self) -> tuple[float, ...]:
        """The grid in percent of the range, ascending."""
        usual = (*halved_percents(self.halvings), 75.0, *((0.0,) if self.owns_momentum else ()))
        return tuple(sorted({*(self.switch_points or usual), 100.0}))

    def _percent_at(self, place: float) -> float:
        width = self.highest_percent - self.lowest_percent
        return self.lowest_percent + width * place / 100

    @override
    def distinct(self, step_of: Callable[[float], int]) -> AdaptiveStrategy:
        def error(place: float) -> float:
            percent = self._percent_at(place)
            return abs(percent - 100 * step_of(percent) / step_of(100.0))

        # Of those with the same step the one that comes nearest to it.
        nearest_last = sorted(self._places, key=error, reverse=True)
        places = {step_of(self._percent_at(place)): place for place in nearest_last}
        if len(places) == len(self._places):
            return self
        return replace(self, switch_points=tuple(sorted(places.values()))[:-1])

    @override
    def among(self, percents: Iterable[float]) -> AdaptiveStrategy:
        percents = set(percents)
        if self.switch_points or set(self.grid()) <= percents:
            return self
        zero = (0.0,) if self.owns_momentum and 0.0 in percents else ()
        return replace(self, switch_points=(*zero, *halved_percents(self.halvings)[:0:-1]))

    @property
    @override
    def is_guarded(self) -> bool:
        return self.guarded

    @property
    @override
    def has_budget(self) -> bool:
        return self.budget is not None

    @property
    @override
    def runs_to_come(self) -> int:
        return self.expected_runs

    @property
    @override
    def share_to_keep(self) -> float:
        return self.min_kept_share

    @property
    @override
    def momentum_rule(self) -> str:
        if self.owns_optimizer:
            return OWN_OPTIMIZER
        return OWN_MOMENTUM if self.owns_momentum else "same"

    @override
    def without_budget(self) -> AdaptiveStrategy:
        return replace(self, budget=None)

    @override
    def with_recorded(self, recorded: tuple[tuple[float, int], ...]) -> AdaptiveStrategy:
        return replace(self, recorded=recorded)

    @override
    def without_going_back(self) -> AdaptiveStrategy:
        return replace(self, goes_back=False)

    @override
    def with_momentum(self, rule: str | None) -> AdaptiveStrategy:
        return replace(
            self, owns_momentum=rule in EARLY_RULES, owns_optimizer=rule == OWN_OPTIMIZER
        )

    @override
    def replicates(self, percent: float) -> Iterable[int]:
        recorded = [number for at, number in self.recorded if at == percent]
        return itertools.chain(recorded, (n for n in itertools.count() if n not in recorded))

    @override
    def decide(self, finished: Iterable[Observation]) -> Decision:
        return Assessment(self, finished).decision()

    @override
    def outcomes(self, finished: Iterable[Observation], percent: float) -> Outcomes:
        return Assessment(self, finished).outcomes(percent)

    @override
    def answers(self, finished: Iterable[Observation]) -> Mapping[float, float]:
        return Assessment(self, finished).answers()

    @override
    def beliefs(self, finished: Iterable[Observation]) -> tuple[SwitchPointBelief, ...]:
        return Assessment(self, finished).beliefs()

    @override
    def standing_answer(self, finished: Iterable[Observation]) -> Decided | None:
        return Assessment(self, finished).standing_answer()

    @override
    def progress(self, finished: Iterable[Observation]) -> SearchProgress:
        return Assessment(self, finished).progress()


class Assessment:
    """The adaptive strategy's view of completed runs; raises UserError as `Strategy.decide`.

    `runs_left` are the runs to come, including the next one, each of which may try a switch
    point; None for a search, whose runs come before all `strategy.expected_runs`. 0 is for the
    answer after all uses. A search compares with a target that it measures first; uses do without
    until a run of the first protocol alone pays. Uses do without a threshold as well: then it
    counts which runs failed, and of the others nobody knows how good they are.
    """

    def __init__(
        self,
        strategy: AdaptiveStrategy,
        finished: Iterable[Observation],
        runs_left: int | None = None,
    ) -> None:
        finished = list(finished)
        self._made = Counter(run.switch_percent for run in finished)
        strategy = strategy.with_measured_threshold(finished)
        self._strategy = strategy
        self._runs_left = runs_left
        self._is_guarded = strategy.guarded
        self._grid = strategy.grid()
        self._last = len(self._grid) - 1
        self._runs = counted_runs(finished, self._grid, strategy.accuracy_range)
        baseline = self._runs_at(self._last)
        check_baseline(run.diverged for run in baseline)
        self._costs = TrialCosts.of(self._runs, strategy.highest_percent, strategy.share_prefix)
        self._missing = strategy.missing_for_threshold(self._runs)
        self._lacks_threshold = self._missing > 0 and runs_left is not None
        if self._lacks_threshold:
            # The belief goes by thresholds, however much one may be.
            self._strategy = replace(strategy, threshold=1.0, accuracy_range=(None, None))
        self._has_target = not self._missing and (
            strategy.target_accuracy is not None or any(not run.diverged for run in baseline)
        )

    def _runs_at(self, index: int) -> list[Observation]:
        return [run for run in self._runs if run.switch_percent == self._grid[index]]

    def decision(self) -> Decision:
        read = {(run.switch_percent, run.replicate) for run in self._runs}
        unread = [percent for percent, n in self._strategy.recorded if (percent, n) not in read]
        if unread:
            return NextTrial(unread[0], unread.count(unread[0]))
        # Without a target and a threshold nothing can be compared.
        if self._missing and not self._lacks_threshold:
            return NextTrial(self._grid[self._last], self._missing)
        if self._has_target:
            index = self._next_index()
        elif self._runs_left is None:
            index = self._last
        else:
            planned = self._untargeted_index()
            # Where that is the first protocol alone, it still has to be measured.
            is_known = planned == self._answer and planned != self._last
            index = None if is_known else planned
        return self._decided() if index is None else NextTrial(self._grid[index])

    def outcomes(self, percent: float) -> list[tuple[float, float]]:
        if self._missing:
            return []
        if not self._has_target:
            return [(1.0, _ANY_ACCURACY)]
        accuracies = self._outlook.predicted(self._grid.index(percent), _QUANTILES)
        limits = self._strategy.accuracy_range
        return [(1 / len(_QUANTILES), possible_accuracy(each, limits)) for each in accuracies]

    def answers(self) -> dict[float, float]:
        if not self._has_target:
            return {}
        return dict(zip(self._grid, map(float, self._outlook.answers()), strict=True))

    def beliefs(self) -> tuple[SwitchPointBelief, ...]:
        if not self._has_target:
            return ()
        outlook = self._outlook
        columns = zip(self._grid, self._likely, outlook.kept_shares, strict=True)
        return tuple(
            SwitchPointBelief(
                percent, float(good), float(kept), *outlook.predicted(index, _NINE_OF_TEN)
            )
            for index, (percent, good, kept) in enumerate(columns)
        )

    def standing_answer(self) -> Decided | None:
        if not self._has_target and (self._runs_left is None or not self._runs):
            return None
        return self._decided()

    def expected(self, percent: float) -> Decided | None:
        """What an answer with this switch point would say; None without a threshold."""
        is_unknown = self._missing and not self._lacks_threshold
        return None if is_unknown else self._decided(self._grid.index(percent))

    def target(self) -> tuple[float, float] | None:
        return self._outlook.belief.target() if self._has_target else None

    def progress(self) -> SearchProgress:
        decision = self.decision()
        verdicts = dict(zip(self._grid, self._verdicts(decision), strict=True))
        rejected = [percent for percent, verdict in verdicts.items() if verdict is False]
        return SearchProgress(
            # In the order in which the switch points were first tried.
            summaries=tuple(
                summary_of(percent, self._runs_at(self._grid.index(percent)), verdicts[percent])
                for percent in dict.fromkeys(run.switch_percent for run in self._runs)
            ),
            lower_percent=max(rejected, default=self._strategy.lowest_percent),
            upper_percent=min(percent for percent, verdict in verdicts.items() if verdict),
            target_accuracy=self._outlook.belief.target_accuracy if self._has_target else None,
            open_percent=None if isinstance(decision, Decided) else decision.switch_percent,
        )

    @property
    def _prior(self) -> Prior:
        from syncswitch.searcher.strategies.adaptive.guesses import Prior

        strategy = self._strategy
        return Prior(
            self._grid,
            strategy.threshold,
            strategy.largest_loss,
            strategy.owns_momentum,
            strategy.owns_optimizer,
            strategy.bearing,
        )

    def tolerance_likelihood(self) -> Floats:
        """(m,) what the runs say of how early the job tolerates a switch, see `likelihood_of`."""
        from syncswitch.searcher.strategies.adaptive.guesses import likelihood_of

        belief = self._outlook.belief
        return likelihood_of(self._prior, belief.guesses, belief.weights)

    @functools.cached_property
    def _outlook(self) -> Outlook:
        # NumPy and SciPy take a while to import, and commands that only show a search do without.
        import numpy as np

        from syncswitch.searcher.strategies.adaptive.belief import Datum, believe
        from syncswitch.searcher.strategies.adaptive.outlook import Outlook

        strategy = self._strategy
        data = (
            Datum(
                self._grid.index(run.switch_percent),
                run.accuracy,
                run.diverged,
                failed=run.alarmed,
                unjudged=self._lacks_threshold and not (run.diverged or run.alarmed),
            )
            for run in self._runs
        )
        belief = believe(self._prior, data, strategy.target_accuracy, strategy.target_runs)
        shares = np.array(self._grid) / strategy.highest_percent
        again = halved_percents(strategy.halvings)
        if strategy.owns_momentum:
            again = later_switch_points(0.0, OWN_MOMENTUM)
        tries = np.isin(shares, [percent / 100 for percent in again])
        return Outlook(
            belief,
            shares,
            self._costs.ratio,
            strategy.min_kept_share,
            strategy.guarded,
            tries & strategy.goes_back,
            strategy.goes_back,
            self._lacks_threshold,
        )

    def _next_index(self) -> int | None:
        """The switch point of the next run, given a target; None if no run is needed."""
        if self._needs_target and self._may_run(self._last):
            return self._last
        paying = self._paying()
        if paying is not None or self._runs_left is not None:
            return paying
        # An answer must have been tried; that BSP alone is one, its neighbour must have shown.
        answer = self._answer
        if answer == self._last and self._outlook.ratio >= 1:
            return None
        if answer == self._last:
            middle = (self._strategy.lowest_percent + self._strategy.highest_percent) / 2
            needed = max(i for i, percent in enumerate(self._grid) if percent <= middle)
            least_runs = 1
        else:
            needed, least_runs = answer, min(self._strategy.own_runs, self._strategy.runs)
        is_tried = len(self._runs_at(needed)) >= least_runs
        return needed if not is_tried and self._may_run(needed) else None

    @property
    def _needs_target(self) -> bool:
        """Whether runs differ by so much that too few of them tell what a switch loses.

        What is expected of a switch then rests on recorded jobs, not on this one: where each worker
        keeps its own momentum, most of these lose nothing, and none of them differs that much.
        """
        if self._lacks_threshold or not self._strategy.owns_momentum:
            return False
        belief = self._outlook.belief
        runs = 0 if belief.measured is None else belief.measured.runs
        # Uses are trainings themselves; a search comes before them all. One more with the same seed
        # measures nothing, and is a training all the same.
        made = 0 if self._runs_left is None else self._made.total()
        measuring = max(runs, self._made[self._grid[self._last]])
        if measuring >= _MOST_MEASURING * (made + self._runs_to_come):
            return False
        usual = belief.prior.threshold * max(1.0, _CERTAIN * math.sqrt(runs))
        spread = belief.guesses.spread[:, self._last]
        differs = float(belief.mean((spread > usual).astype(float))) > 0.5
        return differs and not self._have_shown(float(belief.mean(spread)))

    def _have_shown(self, spread: float) -> bool:
        """Whether runs with a switch tell by themselves that it loses no more than it may.

        They do if their mean lies above the least accuracy by 1.645 times its standard error, where
        all runs differ by this standard deviation.
        """
        measured, threshold = self._outlook.belief.measured, self._outlook.belief.prior.threshold
        if measured is None:
            return False
        for index in range(self._last):
            runs = self._runs_at(index)
            if not runs or any(run.diverged or run.alarmed for run in runs):
                continue
            above = statistics.fmean(run.accuracy for run in runs) - measured.accuracy + threshold
            error = spread * math.sqrt(1 / len(runs) + 1 / measured.runs)
            if above >= ONE_IN_TWENTY * error:
                return True
        return False

    def _untargeted_index(self) -> int:
        """The switch point of the next use while there is no target to compare with.

        A run of the first protocol alone is one more purchase: it costs a training, and from then
        on a guard sees more and each run teaches what it lost. Without a threshold
        several are needed.
        """
        times, uses = self._outlook.untargeted_times, self._runs_to_come
        best = min(range(len(self._grid)), key=lambda index: times[index])
        if best == self._last or self._needs_target:
            return self._last
        without, bought = uses * float(times[best]), max(1, self._missing)
        is_cheaper = bought + self._rest_with_target(uses - bought) < without
        return self._last if is_cheaper else best

    def _rest_with_target(self, uses: int) -> float:
        """The expected time of later uses once the target is measured."""
        if uses < 1:
            return 0.0
        outlook = self._outlook.with_target()
        tried = Counter(run.switch_percent for run in self._runs if not run.alarmed)
        totals = [float(uses)]
        for index, percent in enumerate(self._grid[:-1]):
            made = min(_AHEAD - 1, tried[percent])
            least = outlook.least_times(index, list(range(len(self._grid))), _AHEAD)
            own = float(outlook.costs[index])
            totals += [
                (runs - made) * own + (uses - runs + made) * later
                for runs, later in enumerate(least, 1)
                if made <= runs <= made + uses
            ]
        return min(totals)

    def _paying(self) -> int | None:
        """The run that most reduces the time of everything to come; None if none does."""
        asked = list(range(len(self._grid)))
        if not self._is_guarded:
            asked = [i for i in asked if abs(i - self._answer) <= 1 or i == self._last]
        totals = {index: self._total_time(index) for index in asked if self._may_run(index)}
        best = min(totals, key=lambda index: totals[index], default=None)
        least = self._runs_to_come * self._outlook.least_time(self._possible)
        if best is None or totals[best] >= least:
            return None
        # A use at the answer tries nothing.
        return None if self._runs_left is not None and best == self._answer else best

    def _total_time(self, index: int) -> float:
        """The expected time of a few runs at a switch point and of all uses after them."""
        outlook = self._outlook
        if index == self._last:
            least = outlook.least_times_of_target(self._possible_after, _AHEAD)
        else:
            least = outlook.least_times(index, self._possible, _AHEAD)
        if self._runs_left is None:
            price = self._next_cost(index) * (1 if self._is_guarded else _LEAST_WORTH)
            return min(
                runs * price + self._runs_to_come * later for runs, later in enumerate(least, 1)
            )
        own = float(outlook.costs[index])
        return min(
            runs * own + (self._runs_to_come - runs) * later
            for runs, later in enumerate(least[: self._runs_to_come], 1)
        )

    @property
    def _runs_to_come(self) -> int:
        return self._strategy.expected_runs if self._runs_left is None else max(1, self._runs_left)

    @functools.cached_property
    def _possible(self) -> list[int]:
        return self._possible_after(0.0)

    def _possible_after(self, rise: float) -> list[int]:
        """Those of them if the measured target were so much higher.

        They are those where a run kept the accuracy, and the last.

        A policy that contradicts all its measurements would be no answer, however little its
        failures cost, and of runs that learn neither would one whose trainings deliver fewer good
        models than may be lost against the first protocol's own. Without a guard any may be
        it, and is run before it is the answer.
        """
        if not self._is_guarded:
            return list(range(len(self._grid)))
        target = self._outlook.belief.target_accuracy
        # Without a target that is a run which nothing was wrong with.
        least = -math.inf if target is None else target + rise - self._strategy.threshold - ROUNDING
        delivered = self._outlook.delivered_shares
        # A search goes on until nothing pays; runs that learn must not stay where models are lost.
        is_free = target is None or self._runs_left is None
        wanted = -math.inf if is_free else delivered[-1] - (1 - self._strategy.min_kept_share)
        held = [
            index
            for index in range(self._last)
            if delivered[index] >= wanted
            and any(
                run.accuracy >= least and not (run.diverged or run.alarmed)
                for run in self._runs_at(index)
            )
        ]
        return [*held, self._last]

    @functools.cached_property
    def _answer(self) -> int:
        """Index of the possible answer with the least expected time.

        Without a guard it is the earliest good switch point with only good later ones.
        """
        times = self._outlook.times
        if self._is_guarded:
            costs = self._outlook.costs if self._has_target else self._outlook.untargeted_times
            return min(self._possible, key=lambda index: costs[index])
        answer = self._last
        for index in range(self._last, -1, -1):
            if self._outlook.good_probabilities[index] < _ACCEPTANCE:
                break
            if len(self._runs_at(index)) or self._may_run(index):
                answer = index
        return answer if times[answer] < times[-1] else self._last

    @property
    def _likely(self) -> Floats:
        """(m,) probability that each switch point saves time if guarded, or else is good."""
        outlook = self._outlook
        return outlook.faster_probabilities if self._is_guarded else outlook.good_probabilities

    def _decided(self, index: int | None = None) -> Decided:
        outlook, index = self._outlook, self._answer if index is None else index
        return Decided(
            switch_percent=self._grid[index],
            target_accuracy=outlook.belief.target_accuracy,
            promise=Promise(
                confidence=float(self._likely[index]) if index < self._last else None,
                kept_share=float(outlook.kept_shares[index]),
                delivered_share=float(outlook.delivered_shares[index]),
                baseline_kept_share=float(outlook.kept_shares[-1]),
                expected_time=float(outlook.times[index]),
                reason=self._reason() if index == self._last else None,
            ),
        )

    def _reason(self) -> str:
        if self._outlook.ratio >= 1:
            return "an earlier switch saves no time"
        if all(run.switch_percent == self._grid[self._last] for run in self._runs):
            return UNTRIED_REASON
        if self._is_guarded:
            return "counting failed switches, no earlier switch is expected to save time"
        return "no earlier switch is likely to keep the accuracy often enough"

    def _may_run(self, index: int) -> bool:
        """Whether one more run is within R and the budget; a use is made anyway."""
        if self._runs_left is not None:
            return True
        if len(self._runs_at(index)) >= self._strategy.runs:
            return False
        if self._strategy.budget is None:
            return True
        return self._costs.paid + self._next_cost(index) <= self._strategy.budget

    def _next_cost(self, index: int) -> float:
        used = {run.replicate for run in self._runs_at(index)}
        replicate = next(number for number in itertools.count() if number not in used)
        return self._costs.next(self._grid[index], replicate)

    def _verdicts(self, decision: Decision) -> list[bool | None]:
        """Whether each switch point is acceptable; None while that is open."""
        verdicts: list[bool | None] = [None] * len(self._grid)
        if self._has_target:
            acceptable = list(itertools.accumulate(map(float, self._outlook.answers())))
            if isinstance(decision, Decided):
                answer = self._grid.index(decision.switch_percent)
                # A switch point that saves no time, or is as likely good as not, is not too early.
                return [
                    index >= answer or (None if likely > 1 - _ACCEPTANCE else False)
                    for index, likely in enumerate(acceptable)
                ]
            for index, likely in enumerate(acceptable):
                if likely >= 1 - _DOUBT:
                    verdicts[index] = True
                elif likely <= _DOUBT:
                    verdicts[index] = False
        verdicts[-1] = True
        return verdicts
