"""The adaptive strategy: a binary search in which every run is chosen for what it is worth.

The grid is that of halving from the top: 100 %, 50 %, 25 %, ... A belief over the whole curve says
how likely each switch point is good. By the criterion `kept` the next run is the one that saves
most in later trainings for its price, and the search ends when none pays for itself (see `kept/`);
by `mean` it is the one that tells most of the earliest acceptable switch point (see `mean/`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.strategies.adaptive.options import AdaptiveOptions
from syncswitch.searcher.strategies.base import Decided, Decision
from syncswitch.searcher.strategies.grids import halvings
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.progress import SearchProgress, SwitchPointBelief

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.adaptive.assessment import Assessment


@dataclass(frozen=True, slots=True)
class AdaptiveStrategy(AdaptiveOptions):
    """As many runs as the answer needs, and no more.

    Attributes:
        criterion: `kept`: later runs keep the accuracy as often as is wanted; `mean`: they do in
            the mean, as in the paper.
        keep: Share of later runs that shall keep the accuracy, or 1 - keep less than those of the
            first protocol alone.
        uses: How often the job will be trained with the policy: a run is made where it saves more
            in these trainings than it costs.
        target_runs: How many runs stand behind `target_accuracy`: so sure is it.
        least_runs: Runs that the answer itself needs; None for 2, or by the criterion `mean` for 1.
        budget: The most that the search may cost, in trainings with the first protocol alone;
            None for no limit. After the first run none is begun that would go beyond.
        recorded: Switch point and replicate of each run that is recorded already and costs nothing:
            all of them are looked at before another is made, however many R allows.
        switch_points: The switch points to choose from, in percent of the range; empty for those of
            halving and, by the criterion `kept`, 75 %: what is gained there is worth a look.
    """

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
        """Accepted or rejected is what is sure."""
        return self._assessment(finished).progress()

    def _assessment(self, finished: Iterable[Observation]) -> Assessment:
        # NumPy takes a while to import, and the command line offers this strategy's options.
        if self.criterion == "mean":
            from syncswitch.searcher.strategies.adaptive.mean.assessment import MeanAssessment

            return MeanAssessment(self, finished)
        from syncswitch.searcher.strategies.adaptive.kept.assessment import KeptAssessment

        return KeptAssessment(self, finished)
