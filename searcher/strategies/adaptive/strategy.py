"""The adaptive strategy: a binary search in which every run is chosen for what it is worth.

The grid is that of halving from the top: 100 %, 50 %, 25 %, ... A belief over the whole curve says
how likely runs with each switch keep the accuracy, and so how long all later trainings are expected
to take. A run is made where it saves more of that than it costs, and the answer is the switch point
with the least expected time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.strategies.base import Decided, Decision, Strategy
from syncswitch.searcher.strategies.grids import halvings
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.progress import SearchProgress, SwitchPointBelief

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.adaptive.assessment import Assessment


@dataclass(frozen=True, slots=True)
class AdaptiveStrategy(Strategy):
    """As many runs as the answer needs, and no more.

    Attributes:
        guarded: Later trainings go back to a switch that failed and switch again later, as those of
            `syncswitch-run` do; else the answer has to hold with the bare switch.
        keep: Share of later runs that shall keep the accuracy with the bare switch, or 1 - keep
            less than those of the first protocol alone.
        uses: How often the job will be trained with the policy: a run is made where it saves more
            in these trainings than it costs.
        target_runs: How many runs stand behind `target_accuracy`: so sure is it.
        least_runs: Runs that the answer itself needs; None for one, and two without a guard.
        budget: The most that the search may cost, in trainings with the first protocol alone;
            None for no limit. After the first run none is begun that would go beyond.
        recorded: Switch point and replicate of each run that is recorded already and costs nothing:
            all of them are looked at before another is made, however many R allows.
        switch_points: The switch points to choose from, in percent of the range; empty for those of
            halving and 75 %: what is gained there is worth a look.
    """

    share_prefix: bool = True
    early_stop: bool = True
    guarded: bool = True
    keep: float = 0.95
    uses: int = 30
    target_runs: int = 5
    least_runs: int | None = None
    budget: float | None = None
    recorded: tuple[tuple[float, int], ...] = ()
    switch_points: tuple[float, ...] = ()

    @property
    @override
    def name(self) -> str:
        return "adaptive"

    @property
    @override
    def most_runs(self) -> int:
        """Runs of a search that is never sure, which may measure a known target again."""
        return len(self.grid()) * self.runs

    @property
    @override
    def judges_single_runs(self) -> bool:
        return True

    @property
    def own_runs(self) -> int:
        """Runs that the answer itself needs."""
        if self.least_runs is not None:
            return self.least_runs
        return 1 if self.guarded else 2

    @override
    def grid(self) -> tuple[float, ...]:
        percents = {*(self.switch_points or (*halvings(self.settings), 75.0)), 100.0}
        width = self.highest_percent - self.lowest_percent
        return tuple(self.lowest_percent + width * percent / 100 for percent in sorted(percents))

    @override
    def among(self, percents: Iterable[float]) -> AdaptiveStrategy:
        if self.switch_points or set(self.grid()) <= set(percents):
            return self
        return replace(self, switch_points=halvings(self.settings)[:0:-1])

    @override
    def replicates(self, percent: float) -> Iterable[int]:
        """The recorded ones first."""
        recorded = [number for at, number in self.recorded if at == percent]
        return itertools.chain(recorded, (n for n in itertools.count() if n not in recorded))

    @override
    def decide(self, finished: Iterable[Observation]) -> Decision:
        return self._assessment(finished).decision()

    @override
    def outcomes(
        self, finished: Iterable[Observation], percent: float
    ) -> Sequence[tuple[float, float]]:
        """As likely as is believed."""
        return self._assessment(finished).outcomes(percent)

    @override
    def answers(self, finished: Iterable[Observation]) -> Mapping[float, float]:
        """As is believed."""
        return self._assessment(finished).answers()

    @override
    def beliefs(self, finished: Iterable[Observation]) -> tuple[SwitchPointBelief, ...]:
        return self._assessment(finished).beliefs()

    @override
    def standing_answer(self, finished: Iterable[Observation]) -> Decided | None:
        return self._assessment(finished).standing_answer()

    @override
    def progress(self, finished: Iterable[Observation]) -> SearchProgress:
        return self._assessment(finished).progress()

    def _assessment(self, finished: Iterable[Observation]) -> Assessment:
        # NumPy and SciPy take a while to import, and commands that only show a search need neither.
        from syncswitch.searcher.strategies.adaptive.assessment import Assessment

        return Assessment(self, finished)
