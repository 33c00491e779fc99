"""Searches with several runs at once; see also strategy_contract.py."""

from __future__ import annotations

from syncswitch.searcher.strategies.base import Decided, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import PlannedTrial, course_of, plan_trial

RULE = PaperStrategy(settings=1, runs=2, target_accuracy=0.9)
SECOND = Observation(50, 0.1, diverged=True, trial_number=0, replicate=1)
FIRST = Observation(50, 0.9, trial_number=1, replicate=0)


def test_a_run_that_ends_a_switch_point_waits_for_those_that_come_before_it() -> None:
    """A searcher alone would have made the first run, whatever the second measures."""
    assert course_of(RULE, [SECOND]).runs == ()
    assert plan_trial(RULE, [SECOND]) == PlannedTrial(50, 0)
    assert plan_trial(RULE, [SECOND], [(50, 0)]) == Wait(50)
    course = course_of(RULE, [SECOND, FIRST])
    assert course.runs == (FIRST, SECOND)
    assert course.decision == Decided(100, 0.9)
