"""Where the next training of a job switches, while each of them is also a run of a search.

Every run delivers a model, and a guarded one that fails goes back to its switch and on with the
first protocol. So trying a switch point costs little: what its run takes longer than the best one.
"""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from syncswitch.searcher.strategies.adaptive.kept.assessment import AHEAD, KeptAssessment
from syncswitch.searcher.strategies.adaptive.options import AdaptiveOptions
from syncswitch.searcher.strategies.base import Decided, Decision
from syncswitch.searcher.strategies.observation import Observation


def next_use(
    strategy: AdaptiveOptions, finished: Iterable[Observation], uses_left: int
) -> Decision:
    """Where the next training switches, or the answer of a search, with which all others train.

    The first protocol alone until a run of it is there: nothing can be held against anything
    before.

    Args:
        strategy: By the criterion `kept`.
        finished: All runs of the job, those of a search and those with a policy.
        uses_left: So many trainings are to come, this one included.

    Raises:
        UserError: The first protocol alone diverges, so there is nothing to compare with.
    """
    return LearningAssessment(strategy, finished, uses_left).decision()


class LearningAssessment(KeptAssessment):
    """Of a job whose runs are guarded."""

    _is_guarded = True

    def __init__(
        self, strategy: AdaptiveOptions, finished: Iterable[Observation], uses_left: int = 1
    ) -> None:
        """See `next_use`."""
        super().__init__(strategy, finished)
        self._uses_left = max(1, uses_left)

    def good_probability(self, percent: float) -> float:
        """How likely enough runs with this switch keep the accuracy."""
        return float(self._outlook.good_probabilities[self._grid.index(percent)])

    def answer(self) -> Decided:
        """What a search would answer that had to end now."""
        return self._decided()

    @override
    def _may_run(self, index: int) -> bool:
        # A run is a training that somebody wants anyway.
        return True

    @override
    def _paying(self) -> int | None:
        """The switch point with the least total time over the uses to come, unless the answer."""
        best = min(range(len(self._grid)), key=self._total_time)
        return None if best == self._answer else best

    def _total_time(self, index: int) -> float:
        """Of all uses to come: a few at a switch point, and the others at the best one then."""
        times = self._outlook.times
        least = times.min()
        savings = self._outlook.savings(index, min(AHEAD, self._uses_left))
        return float(
            min(
                runs * times[index] + (self._uses_left - runs) * (least - saving)
                for runs, saving in enumerate(savings, 1)
            )
        )
