"""The benefit of guard, revision and learning, on consecutive trainings of recorded jobs.

    python -m benchmarks.learning [--jobs FOLDER] [--momentum-after-switch own] [--repeats 20]
        [--expected-runs 1 3 10 30 100] [--generated 100]

Every rule trains every recorded job so many times over, each repeat with seeds dealt anew. Time is
that of all trainings, with the search and the failed runs, over the same number of trainings with
BSP alone; without a guard each run that fails more often than BSP's own is made again with BSP. The
paper's search and Optuna's TPE (`contenders` says how they search) have no guard.

Whether the stated shares are true is also asked of generated jobs (`generated_problem`), which have
nothing of the recorded ones.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.console import at_most, new_table, parser
from benchmarks.contenders import REFERENCE, contenders
from benchmarks.problems import BASELINE_PERCENT, BETA, GeneratedProblem, generated_problem
from benchmarks.recorded_jobs import JOBS, GuardedJob, TrustProblem, Use, guarded_jobs, parsed
from benchmarks.trust import calibration
from reproduction.simulator import Ledger, PlayedRun
from syncswitch.searcher.learning.lessons import lessons_of
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy, Assessment
from syncswitch.searcher.strategies.base import Decided, NextTrial, Wait
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.storage.records.goal import Goal
from syncswitch.storage.records.guard import Band, BelievedBand, later_switch_points

_HALVINGS = 6
_MOST_BASELINES = 20
_PLAIN = 3.0


@dataclass
class Course:
    """The trainings of a job, one after the other.

    Attributes:
        strategy: Guarded where the trainings are.
        uses: Those that deliver a model.
        search_cost: Cost of a search before the trainings, in trainings with BSP alone.
        percent: The policy's switch; None while there is none.
        answer: Origin of the answer; None if there is none.
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
            seeds[run.replicate % len(seeds)]
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

    def next_percent(self, runs_left: int, learns: bool) -> float:
        """The next training's switch point; the answer becomes the policy once there is one."""
        if self.percent is not None and not learns:
            return self.percent
        decision = Assessment(self.strategy, self._observations, runs_left).decision()
        assert not isinstance(decision, Wait)
        if isinstance(decision, Decided):
            self._decide(decision)
        return decision.switch_percent

    def mean(self, what: str, percent: float) -> float:
        """Mean `time`, or share that is `kept`, of such trainings, over all seeds."""
        uses = (self._trained(percent, seed) for seed in range(len(self.job.curves)))
        return statistics.fmean(getattr(use, what) for use in uses)

    def _trained(self, percent: float, seed: int) -> Use:
        # Of so many runs one more says nothing new.
        known = self._baseline_seeds[:_MOST_BASELINES]
        band = None
        if self.strategy.guarded:
            band = self.job.band(known) if known else Band(None, BETA)
        target = Assessment(self.strategy, self._observations).target() if known else None
        if band is not None and target is not None and self.strategy.owns_momentum:
            band = BelievedBand(target[0], BETA, band.runs, band.curve, target[1])
        later = [one for one in self.job.grid if percent < one < BASELINE_PERCENT]
        if self.strategy.owns_momentum:
            again = later_switch_points(percent, self.job.job.momentum_after_switch)
            later = [one for one in again if one in self.job.grid]
        return self.job.train(percent, seed, band, later)

    def _decide(self, answer: Decided) -> None:
        if self.percent is not None and self.percent != answer.switch_percent:
            self.revisions.append(self.percent)
        if self.answered_at is None:
            self.answered_at = len(self.uses)
        self.percent, self.answer = answer.switch_percent, answer


Rule = Callable[[GuardedJob, int, int], Course]


def search_then_use(
    job: GuardedJob, number: int, expected_runs: int, *, guarded: bool = True, learns: bool = False
) -> Course:
    """A search, and its answer for every use; or for those to begin with, which then learn."""
    course = _new_course(job, number, expected_runs, guarded=guarded)
    course.search()
    for left in range(expected_runs, 0, -1):
        course.use(course.next_percent(left, learns))
    return course


def rival_then_use(job: GuardedJob, number: int, expected_runs: int, *, name: str) -> Course:
    """A search as others do it, with its answer for every use, unguarded.

    Args:
        job: The job that is trained.
        number: Deals the seeds.
        expected_runs: Number of trainings.
        name: One of the answers of `contenders`.
    """
    course = _new_course(job, number, expected_runs, guarded=False)
    seeds = itertools.islice(course.seeds, len(job.curves))
    problem = TrustProblem(number, job.job, tuple(seeds))
    rival = next(one for one in contenders() if name in one.names)
    found = dict(zip(rival.names, rival.search(problem, False), strict=True))[name]
    course.search_cost = found.seconds / problem.first_seconds
    course.percent = found.switch_percent
    for _ in range(expected_runs):
        course.use(found.switch_percent)
    return course


def learn(
    job: GuardedJob, number: int, expected_runs: int, *, begins_with_bsp: bool = False
) -> Course:
    """No search: each use is a run of one; the first may be of BSP alone, whatever their number."""
    course = _new_course(job, number, expected_runs, share_prefix=False, early_stop=False)
    if begins_with_bsp:
        course.use(BASELINE_PERCENT)
    for left in range(expected_runs - begins_with_bsp, 0, -1):
        course.use(course.next_percent(left, True))
    return course


def always(job: GuardedJob, number: int, expected_runs: int, *, percent: float) -> Course:
    """One switch point for every use, without a guard."""
    course = _new_course(job, number, expected_runs, guarded=False)
    for _ in range(expected_runs):
        course.use(percent)
    return course


def best_known(job: GuardedJob, number: int, expected_runs: int) -> Course:
    """An oracle that knows the guarded switch point of least time of each job."""
    course = _new_course(job, number, expected_runs)
    every = range(len(job.curves))
    course.knows(every)
    course.percent = best = min(job.grid, key=functools.partial(course.mean, "time"))
    for _ in range(expected_runs):
        course.use(best)
    return course


def _new_course(job: GuardedJob, number: int, expected_runs: int, **options: bool) -> Course:
    strategy = AdaptiveStrategy(
        halvings=job.job.halvings,
        threshold=BETA,
        expected_runs=expected_runs,
        owns_momentum=job.job.owns_momentum,
        owns_optimizer=job.job.owns_optimizer,
    )
    strategy = replace(strategy, **options)  # type: ignore[arg-type]
    known = strategy.among(job.grid)
    assert isinstance(known, AdaptiveStrategy)
    return Course(job, known, job.seeds(number))


RULES: dict[str, Rule] = {
    "BSP alone": functools.partial(always, percent=BASELINE_PERCENT),
    "paper's search": functools.partial(rival_then_use, name=REFERENCE),
    "Optuna TPE": functools.partial(rival_then_use, name="Optuna TPE, means"),
    "search, no guard": functools.partial(search_then_use, guarded=False),
    "search, guarded": search_then_use,
    "search, then learning": functools.partial(search_then_use, learns=True),
    "always 6.25 %": functools.partial(always, percent=6.25),
    "BSP first, then learning": functools.partial(learn, begins_with_bsp=True),
    "learning": learn,
    "best known": best_known,
}


@dataclass(frozen=True, slots=True)
class Figures:
    """One course, in figures.

    Attributes:
        time: Mean time of a training, everything included, relative to BSP alone.
        kept: Share of the models that keep the accuracy.
        baseline_kept: The same share for all recorded runs of BSP.
        search_cost: Cost of the search, in trainings with BSP alone.
        answered_at: Uses until there was a policy.
        alarms: Number of alarms.
        good_uses: Trainings with a good switch before W.
        false_alarms: Number of alarms in runs of good switch points that keep the accuracy.
        revisions: Versions of the policy that were left for another.
        shares: Of the last answer: what it states of runs without a guard, what all recorded
            seeds show; and both of the delivered models. None where nobody answered.
    """

    rule: str
    job: str
    expected_runs: int
    time: float
    kept: float
    baseline_kept: float
    search_cost: float
    answered_at: int
    alarms: int
    good_uses: int
    false_alarms: int
    revisions: int
    shares: tuple[float, float, float, float] | None


def figures(job: GuardedJob, rule: str, number: int, expected_runs: int) -> Figures:
    """Plays one course of trainings, and measures it."""
    course = RULES[rule](job, number, expected_runs)
    is_good = {percent: job.job.is_good(percent) for percent in job.grid[:-1]}
    good = [use for use in course.uses if is_good.get(use.observed.switch_percent, False)]
    return Figures(
        rule=rule,
        job=job.job.name,
        expected_runs=expected_runs,
        time=_time(course, job) + course.search_cost / expected_runs,
        kept=statistics.fmean(use.kept for use in course.uses),
        baseline_kept=job.job.kept_share(BASELINE_PERCENT),
        search_cost=course.search_cost,
        answered_at=expected_runs if course.answered_at is None else course.answered_at,
        good_uses=len(good),
        alarms=sum(len(use.failed) for use in course.uses),
        false_alarms=sum(use.false_alarms for use in good),
        revisions=len(course.revisions),
        shares=_shares(course),
    )


def _shares(course: Course) -> tuple[float, float, float, float] | None:
    answer = course.answer
    if (
        answer is None
        or answer.promise.kept_share is None
        or answer.promise.delivered_share is None
    ):
        return None
    bare = course.job.job.kept_share(answer.switch_percent)
    delivered = course.mean("kept", answer.switch_percent)
    return answer.promise.kept_share, bare, answer.promise.delivered_share, delivered


def _time(course: Course, job: GuardedJob) -> float:
    time = statistics.fmean(use.time for use in course.uses)
    if course.strategy.guarded:
        return time
    shares = (job.job.kept_share(use.observed.switch_percent) for use in course.uses)
    return time + max(0.0, job.job.kept_share(BASELINE_PERCENT) - statistics.fmean(shares))


@dataclass
class GeneratedCourse:
    """Trainings of a generated job that learn, whose guard sees a failed switch only at the end.

    Attributes:
        job: The job. Without a threshold it is measured, in first uses of BSP alone.
        strategy: That of the job; its threshold is not looked at.
        goes_back: Whether a failed run switches again later, and not to BSP alone at once.
        targets: Accuracies of the runs of BSP alone.
        delivered: Accuracies of the models of all uses; None for one that diverged.
        time: Of all uses together, in trainings with BSP alone.
    """

    job: GeneratedProblem
    strategy: AdaptiveStrategy
    goes_back: bool = True
    targets: list[float] = field(default_factory=list)
    delivered: list[float | None] = field(default_factory=list)
    time: float = 0.0
    _observations: list[Observation] = field(default_factory=list)

    @property
    def threshold(self) -> float:
        """beta; 0 while it is not measured."""
        return self.job.threshold or measured_threshold(self.targets) or 0.0

    def learn(self, expected_runs: int) -> None:
        """Trains so many times, each time where the runs so far call for it."""
        for number in range(expected_runs):
            percent = BASELINE_PERCENT
            if self.threshold:
                decision = self._assessment(expected_runs - number).decision()
                assert not isinstance(decision, Wait)
                percent = decision.switch_percent
            self._use(percent, number)

    def answer(self) -> Decided:
        """What is known after all uses."""
        found = self._assessment(0).standing_answer()
        assert found is not None
        return found

    def is_kept(self, accuracy: float | None) -> bool:
        """Whether a model keeps the accuracy, in truth."""
        return accuracy is not None and accuracy >= self.job.target_accuracy - self.threshold

    def trained(
        self, percent: float, replicate: int
    ) -> tuple[float, PlayedRun, list[tuple[float, float | None]], float]:
        """The switch that held in a guarded run, its run, the failed ones, and the time."""
        failed: list[tuple[float, float | None]] = []
        time = 0.0
        later = [one for one in self.job.grid if one > percent] if self.goes_back else []
        for at in dict.fromkeys([percent, *later, BASELINE_PERCENT]):
            run = self.job.run_at(at, replicate)
            time += run.seconds
            if self.goes_back and failed:  # it begins at its last switch
                time -= failed[-1][0] / BASELINE_PERCENT
            if at == BASELINE_PERCENT or (not run.diverged and run.accuracy >= self._least):
                return at, run, failed, time
            failed.append((at, None if run.diverged else run.accuracy))
        raise AssertionError("BSP alone is the last one")

    @property
    def _least(self) -> float:
        """The accuracy that a guard still lets through."""
        beta = self.threshold
        if self.targets:
            goal = Goal.mean_of(self.targets, beta)
            return goal.least_accuracy - goal.margin
        # Without a target it sees only what is plain.
        return self.job.target_accuracy - _PLAIN * beta

    def _assessment(self, runs_left: int) -> Assessment:
        strategy = replace(self.strategy, threshold=self.threshold).among(self.job.grid)
        return Assessment(strategy, self._observations, runs_left)

    def _use(self, percent: float, number: int) -> None:
        held, run, failed, time = self.trained(percent, number)
        self.time += time
        self.delivered.append(None if run.diverged else run.accuracy)
        if held == BASELINE_PERCENT:
            self.targets.append(run.accuracy)
        alone = held == BASELINE_PERCENT
        ratio = None if alone else self.job.ratio
        cost = TrialCost(run.seconds, 1.0 if held else None, ratio)
        observed = Observation(held, run.accuracy, run.diverged, cost=cost)
        self._observations += lessons_of(observed, number, number, tuple(failed))


def generated_shares(
    number: int, expected_runs: int, owns_momentum: bool = False
) -> tuple[float, float, float, float]:
    """Learns on a generated job.

    Returns:
        Kept share of the answer without a guard, stated and in truth; kept share of the models that
        the trainings delivered, and of BSP's own.
    """
    job = generated_problem(number)
    strategy = AdaptiveStrategy(
        halvings=_HALVINGS,
        expected_runs=expected_runs,
        share_prefix=False,
        early_stop=False,
        owns_momentum=owns_momentum,
    )
    course = GeneratedCourse(job, strategy)
    course.learn(expected_runs)
    answer = course.answer()
    stated, true = answer.promise.kept_share, job.kept_share(answer.switch_percent)
    assert stated is not None
    delivered = statistics.fmean(map(course.is_kept, course.delivered))
    return stated, true, delivered, job.kept_share()


def table(found: Sequence[Figures]) -> Table:
    """By rule, the mean of all; shares in percent."""
    columns = ("rule", "time", "kept %", "BSP %", "search", "policy after", "alarms %", "false %")
    made = new_table(*columns, "left", "bare %", "delivered %", box=SIMPLE)
    for rule in RULES:
        rows = [one for one in found if one.rule == rule]
        if rows:
            runs, good = (
                sum(one.expected_runs for one in rows),
                sum(one.good_uses for one in rows) or 1,
            )
            made.add_row(
                rule,
                f"{statistics.fmean(one.time for one in rows):.3f}",
                f"{100 * statistics.fmean(one.kept for one in rows):.1f}",
                f"{100 * statistics.fmean(one.baseline_kept for one in rows):.1f}",
                f"{statistics.fmean(one.search_cost for one in rows):.1f}",
                f"{statistics.fmean(one.answered_at for one in rows):.1f}",
                f"{100 * sum(one.alarms for one in rows) / runs:.1f}",
                f"{100 * sum(one.false_alarms for one in rows) / good:.1f}",
                f"{statistics.fmean(one.revisions for one in rows):.2f}",
                *_stated_and_true(rows),
            )
    return made


def _stated_and_true(rows: Sequence[Figures]) -> tuple[str, str]:
    known = [one.shares for one in rows if one.shares is not None]
    if not known:
        return "", ""
    values = [100 * statistics.fmean(column) for column in zip(*known, strict=True)]
    return f"{values[0]:.1f} / {values[1]:.1f}", f"{values[2]:.1f} / {values[3]:.1f}"


def by_job(found: Sequence[Figures]) -> Table:
    """Time, and share of the models that keep the accuracy, of each job."""
    rules = list(dict.fromkeys(one.rule for one in found))
    made = new_table("job", *rules, box=SIMPLE)
    for job in dict.fromkeys(one.job for one in found):
        cells = []
        for rule in rules:
            rows = [one for one in found if (one.job, one.rule) == (job, rule)]
            time, kept = (statistics.fmean(getattr(r, name) for r in rows) for name in _SHOWN)
            cells.append(f"{time:.2f} {100 * kept:5.1f}")
        made.add_row(job, *cells)
    return made


_SHOWN = ("time", "kept")


def main() -> None:
    options = parsed(
        parser(
            __doc__,
            jobs=JOBS,
            repeats=20,
            expected_runs=[1, 3, 10, 30, 100],
            generated=100,
            processes=2,
        )
    )
    console, jobs = Console(width=140), guarded_jobs(options.jobs, options.momentum_after_switch)
    with at_most(3600), ProcessPoolExecutor(options.processes) as pool:
        tasks = [
            pool.submit(figures, job, rule, number, expected_runs)
            for expected_runs in options.expected_runs
            for number in range(options.repeats)
            for job in jobs
            for rule in RULES
        ]
        numbers = range(options.generated)
        generated = {
            expected_runs: list(
                pool.map(
                    functools.partial(
                        generated_shares,
                        expected_runs=expected_runs,
                        owns_momentum=jobs[0].job.owns_momentum,
                    ),
                    numbers,
                )
            )
            for expected_runs in (options.expected_runs if numbers else ())
        }
        found = [task.result() for task in tasks]
    for expected_runs in options.expected_runs:
        rows = [one for one in found if one.expected_runs == expected_runs]
        console.print(
            f"{expected_runs} trainings of each of {len(jobs)} recorded jobs, {options.repeats}"
            " times over. Time by that of BSP alone, all in; false: alarms in runs of good switch"
            " points that would have kept the accuracy; left: versions of a policy; bare,"
            " delivered: runs without a guard and delivered models that keep the accuracy, as"
            " stated / in truth."
        )
        console.print(table(rows))
        console.print(by_job(rows))
    said = [one.shares for one in found if one.shares is not None]
    console.print("Of all answers, the kept share without a guard; then that of the models:")
    console.print(calibration((stated, true) for stated, true, _, _ in said))
    console.print(calibration((stated, true) for _, _, stated, true in said))
    for expected_runs, shares in generated.items():
        stated, true, delivered, own = (
            f"{100 * statistics.fmean(column):.1f} %" for column in zip(*shares, strict=True)
        )
        console.print(
            f"Of {len(shares)} generated jobs, each learnt in {expected_runs} trainings, the answer"
            f" without a guard is stated to keep the accuracy in {stated}, and does in {true}."
            f" Of the delivered models {delivered} keep it, and of BSP's own {own}."
        )


if __name__ == "__main__":
    main()
