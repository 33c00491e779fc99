"""The adaptive strategy: a binary search in which every run is chosen for what it is worth.

The grid is that of halving from the top: 100 %, 50 %, 25 %, ... A belief over the whole curve says
how likely each switch point is good. By the criterion `kept` the next run is the one that saves
most in later trainings for its price, and the search ends when none pays for itself (see `kept/`);
by `mean` it is the one that tells most of the earliest acceptable switch point (see `mean/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from syncswitch.searcher.strategies.base import Decision, Observation, Progress, Strategy
from syncswitch.searcher.strategies.grids import halvings

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.assessment import Assessment

__all__ = ["AdaptiveStrategy"]


@dataclass(frozen=True, slots=True)
class AdaptiveStrategy(Strategy):
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
        related: Switch points of related jobs, for a warm start.
        switch_points: The switch points to choose from, in percent of the range; empty for those of
            halving and, by the criterion `kept`, 75 %: what is gained there is worth a look.
    """

    share_prefix: bool = True
    early_stop: bool = True
    criterion: str = "kept"
    keep: float = 0.95
    uses: int = 30
    target_runs: int = 5
    least_runs: int | None = None
    budget: float | None = None
    related: tuple[float, ...] = ()
    switch_points: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """What policies and studies call this strategy."""
        return "adaptive"

    @property
    def most_runs(self) -> int:
        """Runs of a search that is never sure, which may measure a known target again."""
        return len(self.grid()) * self.runs

    @property
    def own_runs(self) -> int:
        """Runs that the answer itself needs."""
        usual = 1 if self.criterion == "mean" else 2
        return usual if self.least_runs is None else self.least_runs

    def grid(self) -> tuple[float, ...]:
        """See `Strategy.grid`."""
        percents = {*self.switch_points, 100.0} if self.switch_points else self._usual_percents()
        width = self.highest_percent - self.lowest_percent
        return tuple(self.lowest_percent + width * percent / 100 for percent in sorted(percents))

    def _usual_percents(self) -> set[float]:
        usual = set(halvings(self.settings))
        return usual if self.criterion == "mean" else {*usual, 75.0}

    def among(self, percents: Iterable[float]) -> AdaptiveStrategy:
        """See `Strategy.among`."""
        if self.switch_points or set(self.grid()) <= set(percents):
            return self
        return replace(self, switch_points=halvings(self.settings)[:0:-1])

    def decide(self, finished: Iterable[Observation]) -> Decision:
        """See `Strategy.decide`."""
        return self._assessment(finished).decision()

    def outcomes(
        self, finished: Iterable[Observation], percent: float
    ) -> Sequence[tuple[float, float]]:
        """See `Strategy.outcomes`; as likely as is believed."""
        return self._assessment(finished).outcomes(percent)

    def answers(self, finished: Iterable[Observation]) -> Mapping[float, float]:
        """See `Strategy.answers`; as is believed."""
        return self._assessment(finished).answers()

    def progress(self, finished: Iterable[Observation]) -> Progress:
        """See `Strategy.progress`; accepted or rejected is what is sure."""
        return self._assessment(finished).progress()

    def _assessment(self, finished: Iterable[Observation]) -> Assessment:
        # NumPy takes a while to import, and the command line offers this strategy's options.
        if self.criterion == "mean":
            from syncswitch.searcher.strategies.mean.assessment import MeanAssessment

            return MeanAssessment(self, finished)
        from syncswitch.searcher.strategies.kept.assessment import KeptAssessment

        return KeptAssessment(self, finished)
