"""What the adaptive strategy makes of a history, whatever its criterion is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from syncswitch.searcher.strategies.adaptive.options import AdaptiveOptions
from syncswitch.searcher.strategies.base import Decided, Decision, NextTrial
from syncswitch.searcher.strategies.baseline import check_baseline
from syncswitch.searcher.strategies.history import History
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.progress import (
    SearchProgress,
    SwitchPointBelief,
    SwitchPointSummary,
    summary_of,
)
from syncswitch.searcher.strategies.trial_costs import TrialCosts

# Of what a run may measure: the middles of three equally likely parts.
_QUANTILES = (1 / 6, 1 / 2, 5 / 6)
# Where nothing is measured nothing is compared, so any does.
_ANY_ACCURACY = 0.5
# Nine of ten runs end between these.
_NINE_OF_TEN = (0.05, 0.95)


class Assessment(ABC):
    """A strategy, a history, and what is believed after it."""

    def __init__(self, strategy: AdaptiveOptions, finished: Iterable[Observation]) -> None:
        """Looks at what was measured and paid. Raises UserError where the baseline diverged."""
        self._strategy = strategy
        self._grid = strategy.grid()
        self._last = len(self._grid) - 1
        self._history = History.of(finished, self._grid, strategy.accuracy_range)
        baseline = self._history.at(self._last)
        check_baseline(baseline)
        self._costs = TrialCosts.of(
            self._history.runs, strategy.highest_percent, strategy.share_prefix
        )
        self._has_target = strategy.target_accuracy is not None or any(
            not run.diverged for run in baseline
        )

    def decision(self) -> Decision:
        """The answer, or the next run."""
        read = {(run.switch_percent, run.replicate) for run in self._history.runs}
        unread = [percent for percent, n in self._strategy.recorded if (percent, n) not in read]
        if unread:
            return NextTrial(unread[0], unread.count(unread[0]))
        # Without a target nothing can be compared.
        index = self._next_index() if self._has_target else self._last
        return self._decided() if index is None else NextTrial(self._grid[index])

    def outcomes(self, percent: float) -> list[tuple[float, float]]:
        """What a run at a switch point may measure, as `Strategy.outcomes`."""
        if not self._has_target:
            return [(1.0, _ANY_ACCURACY)]
        accuracies = self._predicted(self._grid.index(percent), _QUANTILES)
        return [(1 / len(_QUANTILES), self._strategy.possible(one)) for one in accuracies]

    def answers(self) -> dict[float, float]:
        """How likely each switch point is to be the answer, as `Strategy.answers`."""
        if not self._has_target:
            return {}
        return dict(zip(self._grid, map(float, self._answer_probabilities()), strict=True))

    def beliefs(self) -> tuple[SwitchPointBelief, ...]:
        """As `Strategy.beliefs`."""
        if not self._has_target:
            return ()
        columns = zip(self._grid, self._good_probabilities(), self._kept_shares(), strict=True)
        # Rounded, probabilities may sum to a little more than 1.
        return tuple(
            SwitchPointBelief(
                percent, min(1.0, float(good)), kept, *self._predicted(index, _NINE_OF_TEN)
            )
            for index, (percent, good, kept) in enumerate(columns)
        )

    def standing_answer(self) -> Decided | None:
        """As `Strategy.standing_answer`."""
        return self._decided() if self._has_target else None

    def progress(self) -> SearchProgress:
        """The brackets that are sure, and what is measured."""
        decision = self.decision()
        verdicts = dict(zip(self._grid, self._verdicts(decision), strict=True))
        rejected = [percent for percent, verdict in verdicts.items() if verdict is False]
        return SearchProgress(
            summaries=self._summaries(verdicts),
            lower_percent=max(rejected, default=self._strategy.lowest_percent),
            upper_percent=min(percent for percent, verdict in verdicts.items() if verdict),
            target_accuracy=self._target() if self._has_target else None,
            open_percent=None if isinstance(decision, Decided) else decision.switch_percent,
        )

    @abstractmethod
    def _next_index(self) -> int | None:
        """Switch point of the run to make, once there is a target; None where none is needed."""

    @abstractmethod
    def _decided(self) -> Decided:
        """The answer."""

    @abstractmethod
    def _target(self) -> float:
        """A, once it is measured or known."""

    @abstractmethod
    def _acceptable(self) -> Iterable[float]:
        """How likely each switch point and all later ones are acceptable, given a target."""

    @abstractmethod
    def _good_probabilities(self) -> Iterable[float]:
        """How likely each switch point is acceptable, whatever the others are."""

    @abstractmethod
    def _kept_shares(self) -> list[float]:
        """How likely one more run at each switch point loses at most beta."""

    @abstractmethod
    def _answer_probabilities(self) -> Iterable[float]:
        """How likely each switch point is the earliest of these."""

    @abstractmethod
    def _predicted(self, index: int, quantiles: Sequence[float]) -> list[float]:
        """Quantiles of the accuracy that a run at a switch point would measure."""

    @property
    @abstractmethod
    def _doubt(self) -> float:
        """A search under way accepts or rejects a switch point with less doubt than this."""

    def _may_run(self, index: int) -> bool:
        """Whether one more run is within R and the budget."""
        if self._history.made(index) >= self._strategy.runs:
            return False
        if self._strategy.budget is None:
            return True
        return self._costs.paid + self._next_cost(index) <= self._strategy.budget

    def _next_cost(self, index: int) -> float:
        return self._costs.next(self._grid[index], self._history.next_replicate(index))

    def _summaries(self, verdicts: dict[float, bool | None]) -> tuple[SwitchPointSummary, ...]:
        """In the order in which the switch points were first tried."""
        return tuple(
            summary_of(percent, self._history.at(self._grid.index(percent)), verdicts[percent])
            for percent in dict.fromkeys(run.switch_percent for run in self._history.runs)
        )

    def _verdicts(self, decision: Decision) -> list[bool | None]:
        """Of each switch point: acceptable, not, or open."""
        if isinstance(decision, Decided):
            answer = self._grid.index(decision.switch_percent)
            return [index >= answer for index in range(len(self._grid))]
        verdicts: list[bool | None] = [None] * len(self._grid)
        if self._has_target:
            for index, acceptable in enumerate(self._acceptable()):
                if acceptable >= 1 - self._doubt:
                    verdicts[index] = True
                elif acceptable <= self._doubt:
                    verdicts[index] = False
        verdicts[-1] = True
        return verdicts
