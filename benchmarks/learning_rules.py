"""How trainings of a recorded job get their switch: by a search before, or learnt from each."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.contenders import contenders
from benchmarks.learning_jobs import GuardedJob, Use
from benchmarks.problems import BASELINE_PERCENT, BETA
from benchmarks.trust_problems import TrustProblem
from syncswitch.searcher.learning.used_job import lessons_of
from syncswitch.searcher.simulation.simulator import Ledger
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy, Assessment
from syncswitch.searcher.strategies.base import Decided, NextTrial, Wait
from syncswitch.searcher.strategies.observation import Observation

_SETTINGS = 6
_MOST_BASELINES = 20


@dataclass
class Course:
    """The trainings of a job, one after the other.

    Attributes:
        strategy: Guarded where the trainings are.
        uses: Those that deliver a model.
        search_cost: Of a search before them, in trainings with BSP alone.
        percent: The policy's switch; None while there is none.
        answer: Where it comes from; None where nobody answered.
        answered_at: Uses before there was a policy; None where there never was one.
        revisions: Switch points that were left for another.
    """

    job: GuardedJob
    strategy: AdaptiveStrategy
    seeds: Iterator[int]
    uses: list[Use] = field(default_factory=list)
    search_cost: float = 0.0
    percent: float | None = None
    answer: Decided | None = None
    answered_at: int | None = None
    revisions: list[float] = field(default_factory=list)
    _observations: list[Observation] = field(default_factory=list)
    _baseline_seeds: list[int] = field(default_factory=list)

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
        self.search_cost = cost / problem.first_seconds
        self._decide(found)

    def knows(self, seeds: Sequence[int]) -> None:
        """Has a band of runs with these seeds."""
        self._baseline_seeds = list(seeds)

    def use(self, percent: float) -> None:
        """One training with a switch, and what it teaches."""
        seed = next(self.seeds)
        use, number = self._trained(percent, seed), len(self.uses)
        self.uses.append(use)
        self._observations += lessons_of(use.observed, number, seed, use.failed)
        if use.observed.switch_percent == BASELINE_PERCENT:
            self._baseline_seeds.append(seed)

    def next_percent(self, uses_left: int, learns: bool) -> float:
        """Where the next training switches; the answer, once there is one, becomes the policy."""
        if self.percent is not None and not learns:
            return self.percent
        decision = Assessment(self.strategy, self._observations, uses_left).decision()
        assert not isinstance(decision, Wait)
        if isinstance(decision, Decided):
            self._decide(decision)
        return decision.switch_percent

    def delivered_share(self, percent: float) -> float:
        """Share of the models of such trainings that keep the accuracy, over all seeds."""
        seeds = range(len(self.job.curves))
        return statistics.fmean(self._trained(percent, seed).kept for seed in seeds)

    def mean_time(self, percent: float) -> float:
        """Of such trainings, over all seeds."""
        seeds = range(len(self.job.curves))
        return statistics.fmean(self._trained(percent, seed).time for seed in seeds)

    def _trained(self, percent: float, seed: int) -> Use:
        # Of so many runs one more says nothing new.
        known = self._baseline_seeds[:_MOST_BASELINES]
        band = self.job.band(known) if self.strategy.guarded and known else None
        later = [one for one in self.job.grid if percent < one < BASELINE_PERCENT]
        return self.job.train(percent, seed, band, later)

    def _decide(self, answer: Decided) -> None:
        if self.percent is not None and self.percent != answer.switch_percent:
            self.revisions.append(self.percent)
        if self.answered_at is None:
            self.answered_at = len(self.uses)
        self.percent, self.answer = answer.switch_percent, answer


Rule = Callable[[GuardedJob, int, int], Course]


def bsp_alone(job: GuardedJob, number: int, uses: int) -> Course:
    """What all is compared with."""
    course = _new_course(job, number, uses, guarded=False)
    for _ in range(uses):
        course.use(BASELINE_PERCENT)
    return course


def search_then_use(
    job: GuardedJob, number: int, uses: int, *, guarded: bool = True, learns: bool = False
) -> Course:
    """A search, and its answer for every use; or for those to begin with, which then learn."""
    course = _new_course(job, number, uses, guarded=guarded)
    course.search()
    for left in range(uses, 0, -1):
        course.use(course.next_percent(left, learns))
    return course


def rival_then_use(job: GuardedJob, number: int, uses: int, *, name: str) -> Course:
    """A search as others do it, and its answer for every use; nothing guards those.

    Args:
        job: What is trained.
        number: Deals the seeds.
        uses: How many trainings.
        name: One of the answers of `contenders`.
    """
    course = _new_course(job, number, uses, guarded=False)
    seeds = itertools.islice(course.seeds, len(job.curves))
    problem = TrustProblem(number, job.job, tuple(seeds))
    rival = next(one for one in contenders() if name in one.names)
    found = dict(zip(rival.names, rival.search(problem, False), strict=True))[name]
    course.search_cost = found.seconds / problem.first_seconds
    course.percent = found.switch_percent
    for _ in range(uses):
        course.use(found.switch_percent)
    return course


def learn(job: GuardedJob, number: int, uses: int) -> Course:
    """No search: each use is a run of one."""
    course = _new_course(job, number, uses, share_prefix=False, early_stop=False)
    for left in range(uses, 0, -1):
        course.use(course.next_percent(left, True))
    return course


def best_known(job: GuardedJob, number: int, uses: int) -> Course:
    """Who knows of each job which switch point takes the least time, guarded."""
    course = _new_course(job, number, uses)
    every = range(len(job.curves))
    course.knows(every)
    course.percent = best = min(job.grid, key=course.mean_time)
    for _ in range(uses):
        course.use(best)
    return course


def _new_course(job: GuardedJob, number: int, uses: int, **options: bool) -> Course:
    strategy = AdaptiveStrategy(settings=_SETTINGS, threshold=BETA, uses=uses)
    strategy = replace(strategy, **options)  # type: ignore[arg-type]
    known = strategy.among(job.grid)
    assert isinstance(known, AdaptiveStrategy)
    return Course(job, known, job.seeds(number))
