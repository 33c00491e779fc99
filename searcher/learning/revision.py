"""Whether a policy still holds after its uses, and which later switch would; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncswitch.searcher.learning.assessment import LearningAssessment
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.strategies.observation import Observation

# A policy is left where it is good with less than this. A search wants far more before it answers:
# between the two a policy stays, as runs fail now and then with any, and one that was left for
# nothing costs time in all later trainings.
_LEAST_PROBABILITY = 0.1
# So many uses have failed at least: one is bad luck, whatever is believed.
_LEAST_FAILED = 2


@dataclass(frozen=True, slots=True)
class Revision:
    """Why a policy should be left, and for what.

    Attributes:
        switch_percent: Of the policy.
        uses: So many runs used it.
        failed: Of these, those that lost more than beta, or that the guard sent back.
        good_probability: How likely enough later runs keep the accuracy.
        answer: A later switch, or the first protocol alone.
    """

    switch_percent: float
    uses: int
    failed: int
    good_probability: float
    answer: Decided


def revised(
    strategy: AdaptiveStrategy,
    finished: Iterable[Observation],
    switch_percent: float,
    kept: Iterable[bool],
) -> Revision | None:
    """A later switch than that of a policy; None where the policy may stay.

    Args:
        strategy: The policy's switch is on its grid.
        finished: All runs of the job, those of the search and all uses; at least one of the first
            protocol alone.
        switch_percent: Of the policy.
        kept: Of each use of this version whether its own switch kept the accuracy.
    """
    outcomes = list(kept)
    failed = outcomes.count(False)
    if failed < _LEAST_FAILED or switch_percent >= strategy.highest_percent:
        return None
    assessment = LearningAssessment(strategy, finished)
    probability = assessment.good_probability(switch_percent)
    if probability >= _LEAST_PROBABILITY:
        return None
    # It is later: an answer has only good switch points after it, and is good itself.
    return Revision(switch_percent, len(outcomes), failed, probability, assessment.answer())
