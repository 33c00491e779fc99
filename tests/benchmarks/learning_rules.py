"""How trainings of a recorded job get their switch: by a search before, or learnt from each."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from syncswitch.searcher.learning.lessons import lessons_of
from syncswitch.searcher.simulation.simulator import Ledger
from syncswitch.searcher.strategies.adaptive.assessment import Assessment
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, NextTrial, Wait
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.searcher.strategies.observation import Observation
from tests.benchmarks.learning_jobs import GuardedJob, Use
from tests.benchmarks.problems import BASELINE_PERCENT, BETA
from tests.benchmarks.trust_problems import TrustProblem

_SETTINGS = 6
_MOST_BASELINES = 20


@dataclass
class Course:
    """The trainings of a job, one after the other.

    Attributes:
        uses: Those that deliver a model.
        search_cost: Of a search before them, in trainings with BSP alone.
        percent: The policy's switch; None while there is none.
        answered_at: Uses before there was a policy; None where there never was one.
        revisions: Switch points that were left for a later one.
    """

    job: GuardedJob
    strategy: AdaptiveStrategy
    has_guard: bool
    tries_again: bool
    seeds: Iterator[int]
    uses: list[Use] = field(default_factory=list)
    search_cost: float = 0.0
    percent: float | None = None
    answered_at: int | None = None
    revisions: list[float] = field(default_factory=list)
    _observations: list[Observation] = field(default_factory=list)
    _baseline_seeds: list[int] = field(default_factory=list)
    _kept: list[bool] = field(default_factory=list)

    def search(self) -> None:
        """Searches before the first use; each replicate with a seed of its own."""
        seeds = list(itertools.islice(self.seeds, len(self.job.curves)))
        problem, ledger = TrustProblem(0, self.job.job, tuple(seeds)), Ledger(self.strategy)
        while isinstance(found := self.strategy.decide(ledger.observations()), NextTrial):
            replicate = ledger.made(found.switch_percent)
            run = problem.run_at(found.switch_percent, replicate)
            assert run is not None
            known = ledger.observations()
            ledger.finish(ledger.start(found.switch_percent, replicate, run, known))
        assert isinstance(found, Decided)
        self._observations = list(ledger.observations())
        self._baseline_seeds = [
            seeds[run.replicate]
            for run in self._observations
            if run.switch_percent == BASELINE_PERCENT
        ]
        cost = ledger.ended_with(found.switch_percent).seconds
        self.search_cost, self.percent = cost / problem.first_seconds, found.switch_percent
        self.answered_at = 0

    def use(self, percent: float) -> None:
        """One training with a switch, and what it teaches."""
        seed = next(self.seeds)
        has_band = self.has_guard and bool(self._baseline_seeds)
        # Of so many runs one more says nothing new.
        known = self._baseline_seeds[:_MOST_BASELINES]
        band = self.job.band(known) if has_band else None
        later = [one for one in self.job.grid if percent < one < BASELINE_PERCENT]
        use = self.job.train(percent, seed, band, later if self.tries_again else ())
        observed, number = use.observed, len(self.uses)
        self.uses.append(use)
        self._observations += lessons_of(observed, number, seed, use.failed)
        if observed.switch_percent == BASELINE_PERCENT:
            self._baseline_seeds.append(seed)
        known = self._baseline_seeds or [seed]
        least = self.job.target_accuracy(known) - BETA - ROUNDING
        is_kept = observed.accuracy >= least and not observed.diverged
        self._kept.append(is_kept and not use.failed)

    def next_percent(self, uses_left: int, learns: bool) -> float:
        """Where the next training switches; the answer, once there is one, becomes the policy."""
        if self.percent is not None and not learns:
            return self.percent
        decision = Assessment(self.strategy, self._observations, uses_left).decision()
        assert not isinstance(decision, Wait)
        if isinstance(decision, Decided):
            if self.percent is not None and self.percent != decision.switch_percent:
                self.revisions.append(self.percent)
            if self.answered_at is None:
                self.answered_at = len(self.uses)
            self.percent = decision.switch_percent
        return decision.switch_percent


Rule = Callable[[GuardedJob, int, int], Course]


def _new_course(
    job: GuardedJob, number: int, uses: int, has_guard: bool, tries_again: bool = True
) -> Course:
    strategy = AdaptiveStrategy(settings=_SETTINGS, threshold=BETA, uses=uses).among(job.grid)
    assert isinstance(strategy, AdaptiveStrategy)
    return Course(job, strategy, has_guard, tries_again, job.seeds(number))


def search_then_use(
    job: GuardedJob, number: int, uses: int, *, has_guard: bool, learns: bool, tries_again: bool = True
) -> Course:
    """A search, and its answer for every use."""
    course = _new_course(job, number, uses, has_guard, tries_again)
    course.search()
    for left in range(uses, 0, -1):
        course.use(course.next_percent(left, learns))
    return course


def learn(job: GuardedJob, number: int, uses: int, tries_again: bool = True) -> Course:
    """No search: each use is a run of one."""
    course = _new_course(job, number, uses, has_guard=True, tries_again=tries_again)
    course.strategy = replace(course.strategy, share_prefix=False, early_stop=False)
    for left in range(uses, 0, -1):
        course.use(course.next_percent(left, True))
    return course


def bsp_alone(job: GuardedJob, number: int, uses: int) -> Course:
    """What all is compared with."""
    course = _new_course(job, number, uses, has_guard=False)
    course.percent = BASELINE_PERCENT
    for _ in range(uses):
        course.use(BASELINE_PERCENT)
    return course


def best_known(job: GuardedJob, number: int, uses: int) -> Course:
    """Who knows of each job which switch point takes the least time, guarded."""
    course = _new_course(job, number, uses, has_guard=True)
    rows = range(len(job.curves))
    band = job.band(rows)
    def time(p: float) -> float:
        later = [one for one in job.grid if p < one < BASELINE_PERCENT]
        return statistics.fmean(job.train(p, s, band, later).time for s in rows)
    course.percent = min(job.grid, key=time)
    course._baseline_seeds = list(rows)
    for _ in range(uses):
        course.use(course.percent)
    return course
