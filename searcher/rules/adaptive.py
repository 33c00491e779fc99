"""The adaptive rule: a binary search in which every run is chosen for what it tells per cost.

The grid is that of halving from the top: 100 %, 50 %, 25 %, ... A belief over the whole curve of
accuracy against switch point (see `belief`) says how sure each answer is. The next run is at the
setting in the middle of what is believed, or at one beside it, whichever tells most for its price;
the search ends when one answer is sure enough, or when no run is worth its price (see
`assessment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from syncswitch.searcher.decision import Decision, Observation, Progress, Rule

__all__ = ["AdaptiveRule"]


@dataclass(frozen=True, slots=True)
class AdaptiveRule(Rule):
    """As many runs as the answer needs, and no more.

    Attributes:
        criterion: `kept`: a setting is good if enough of the later runs with it lose at most beta;
            `mean`: if its mean accuracy loses at most beta, as in the paper.
        keep: So large a share of later runs is enough, and so is the share of the first protocol's
            own runs less five points (`kept`).
        uses: How often the policy will be used: more uses are worth a dearer search.
        target_runs: How many runs stand behind `target_accuracy`: so sure is it.
        least_runs: Runs that the answer itself needs.
        budget: The most that the search may cost, in trainings with the first protocol alone;
            None for no limit. After the first run none is begun that would go beyond.
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
    criterion: str = "kept"
    keep: float = 0.95
    uses: int = 30
    target_runs: int = 5
    least_runs: int = 1
    budget: float | None = None
    related: tuple[float, ...] = ()
    too_early: float = 0.12
    too_late: float = 0.35
    steady_runs: float = 2.5
    slack: float = 0.1
    least_information: float = 0.03
    acceptance: float = 0.8
    confirmation: float = 0.8

    @property
    def name(self) -> str:
        """What policies and studies call this rule."""
        return "adaptive"

    @property
    def most_runs(self) -> int:
        """Runs of a search that is never sure, which may measure a known target again."""
        return (self.settings + 1) * self.runs

    def grid(self) -> tuple[float, ...]:
        """The ends of repeated halving, ascending."""
        width = self.highest_percent - self.lowest_percent
        return tuple(
            self.lowest_percent + width / 2**halvings for halvings in range(self.settings, -1, -1)
        )

    def decide(self, finished: Iterable[Observation]) -> Decision:
        """See `Rule.decide`."""
        from syncswitch.searcher.rules.assessment import Assessment

        return Assessment(self, finished).decision()

    def outcomes(
        self, finished: Iterable[Observation], percent: float
    ) -> Sequence[tuple[float, float]]:
        """See `Rule.outcomes`; as likely as is believed."""
        from syncswitch.searcher.rules.assessment import Assessment

        return Assessment(self, finished).outcomes(percent)

    def answers(self, finished: Iterable[Observation]) -> Mapping[float, float]:
        """See `Rule.answers`; as is believed."""
        from syncswitch.searcher.rules.assessment import Assessment

        return Assessment(self, finished).answers()

    def progress(self, finished: Iterable[Observation]) -> Progress:
        """See `Rule.progress`; a setting is accepted or rejected as soon as that is sure."""
        from syncswitch.searcher.rules.assessment import Assessment

        return Assessment(self, finished).progress()
