"""A search on several clusters at once, replayed on recorded runs."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

from syncswitch.searcher.simulation.simulator import Ledger, RunAt, SimulatedSearch, StartedRun
from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy
from syncswitch.searcher.strategies.planner import (
    Key,
    PlannedTrial,
    SearchCourse,
    asked_trials,
    course_of,
    plan_trial,
)


@dataclass(frozen=True, slots=True)
class ParallelSearch:
    """How one replayed search went.

    Attributes:
        search: Its answer and cost, what cancelled runs paid included.
        wall_seconds: From its start to its answer.
        speculative_runs: Runs that were begun when they were only likely to be needed.
        cancelled_runs: Runs that were under way when the answer was known.
    """

    search: SimulatedSearch
    wall_seconds: float
    speculative_runs: int
    cancelled_runs: int


def search_in_parallel(strategy: Strategy, run_at: RunAt, clusters: int) -> ParallelSearch:
    """Lets a strategy search with as many runs at once as there are clusters.

    A run that shares a prefix starts from a checkpoint of a run that is finished. Where nobody
    recorded a run that is needed, the search ends as in `search_with`.

    Args:
        strategy: Decides.
        run_at: As in `search_with`.
        clusters: How many runs there may be at once.
    """
    return _Replay(strategy, run_at, clusters).search()


class _Replay:
    """A virtual clock, and the runs under way on it."""

    def __init__(self, strategy: Strategy, run_at: RunAt, clusters: int) -> None:
        self._strategy = strategy
        self._run_at = run_at
        self._clusters = clusters
        self._ledger = Ledger(strategy)
        self._now_seconds = 0.0
        # End and beginning of each run under way, its place in line, and the run.
        self._under_way: list[tuple[float, float, int, StartedRun]] = []
        self._absent: set[Key] = set()
        self._numbers = itertools.count()
        self._speculative_runs = 0

    def search(self) -> ParallelSearch:
        while True:
            course = course_of(self._strategy, self._ledger.observations())
            if isinstance(course.decision, Decided):
                return self._ended(course.decision.switch_percent, course.decision.confidence)
            if self._is_stuck(course):
                progress = self._strategy.progress(course.runs)
                return self._ended(progress.upper_percent)
            while len(self._under_way) < self._clusters and self._start_one(course):
                pass
            if self._under_way:
                self._now_seconds, _, _, run = heapq.heappop(self._under_way)
                self._ledger.finish(run)

    def _is_stuck(self, course: SearchCourse) -> bool:
        """Whether the run that is needed next was never recorded."""
        decision = course.decision
        if not isinstance(decision, NextTrial):
            return True
        return asked_trials(self._strategy, course.runs, decision)[0] in self._absent

    def _start_one(self, course: SearchCourse) -> bool:
        """Starts a run, where one is wanted."""
        under_way = {
            (run.observation.switch_percent, run.observation.replicate)
            for *_, run in self._under_way
        }
        planned = plan_trial(
            self._strategy,
            self._ledger.observations(),
            under_way | self._absent,
            speculate=self._clusters > 1,
        )
        if not isinstance(planned, PlannedTrial):
            return False
        percent, replicate = planned.switch_percent, planned.replicate
        recorded = self._run_at(percent, replicate)
        if recorded is None:
            self._absent.add((percent, replicate))
            # What is needed now is not there: the search is stuck, or goes on with what runs.
            return planned.is_speculative
        run = self._ledger.start(percent, replicate, recorded, course.runs)
        self._speculative_runs += planned.is_speculative
        entry = (self._now_seconds + run.seconds, self._now_seconds, next(self._numbers), run)
        heapq.heappush(self._under_way, entry)
        return True

    def _ended(self, percent: float, confidence: float | None = None) -> ParallelSearch:
        for _, began_seconds, _, _ in self._under_way:
            self._ledger.pay(self._now_seconds - began_seconds)
        return ParallelSearch(
            search=self._ledger.ended_with(percent, confidence),
            wall_seconds=self._now_seconds,
            speculative_runs=self._speculative_runs,
            cancelled_runs=len(self._under_way),
        )
