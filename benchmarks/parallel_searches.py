"""Searches on several clusters at once, on a virtual clock: time, cost, and whether the answer is
that of the search on one cluster.

    python -m benchmarks.parallel_searches [--problems 200] [--simulations 100]
        [--clusters 1 2 4 8] [--logs FOLDER] [--simulated WORKLOAD WORKERS] [--json FILE]

The problems are generated jobs, the published runs, and, where asked for, 5 runs at each switch
point of a workload that are trained first on the simulated cluster. All are new jobs. A cluster
makes one run at a time; a run that shares a prefix starts from a checkpoint only if the run that
writes it is finished.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import itertools
import json
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track

from benchmarks.console import at_most, new_table, parser
from benchmarks.problems import BETA, PAPER, Problem, RecordedJob, generated_problem, recorded_jobs
from reproduction.replays import PlayedRecording
from reproduction.simulator import Ledger, RunAt, SimulatedSearch
from syncswitch.searcher.search.plan import replicate_seed
from syncswitch.searcher.strategies.adaptive.strategy import halved_percents
from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import (
    Key,
    PlannedTrial,
    SearchCourse,
    asked_trials,
    course_of,
    plan_trial,
)
from syncswitch.searcher.strategies.registry import make_strategy
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.replay import RecordedRun, Recording
from syncswitch.trainers.simulated.profile import load_profile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity


@dataclass(frozen=True, slots=True)
class ParallelSearch:
    """The course of one replayed search.

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


class _Replay:
    """A virtual clock, and the runs under way on it: as many as there are clusters.

    A run that shares a prefix starts from a checkpoint of a run that is finished. Where nobody
    recorded a run that is needed, the search ends as in `search_with`.
    """

    def __init__(self, strategy: Strategy, run_at: RunAt, clusters: int) -> None:
        self._strategy = strategy
        self._run_at = run_at
        self._clusters = clusters
        self._ledger = Ledger(strategy)
        self._now_seconds = 0.0
        # End and beginning of each run under way, its place in line, and the run.
        self._under_way: list[tuple[float, float, int, Observation]] = []
        self._absent: set[Key] = set()
        self._numbers = itertools.count()
        self._speculative_runs = 0

    def search(self) -> ParallelSearch:
        while True:
            course = course_of(self._strategy, self._ledger.observations())
            if isinstance(found := course.decision, Decided):
                return self._ended(found.switch_percent, found.promise.confidence)
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
        """Starts a run, if one is wanted."""
        under_way = {(run.switch_percent, run.replicate) for *_, run in self._under_way}
        planned = plan_trial(self._strategy, self._ledger.observations(), under_way | self._absent)
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
        assert run.cost is not None
        end_seconds = self._now_seconds + run.cost.paid_seconds
        entry = (end_seconds, self._now_seconds, next(self._numbers), run)
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


STRATEGIES = ("adaptive", "paper")
CHUNK = 5
# Of the workload that is trained.
HALVINGS = 5
RUNS = 5

ProblemOf = Callable[[int], Problem]


@dataclass(frozen=True)
class Row:
    """Means over the searches; times in trainings with the first protocol alone."""

    problems: str
    strategy: str
    clusters: int
    wall: float
    cost: float
    runs: float
    speculative_runs: float
    cancelled_runs: float
    same_answer: float


@dataclass(frozen=True)
class Found:
    """One search."""

    switch_percent: float
    wall: float
    cost: float
    runs: int
    speculative_runs: int
    cancelled_runs: int


def main() -> None:
    options = _options()
    # numpy's threads would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with at_most(3600 + 60 * (options.problems + options.simulations)):
        compare(options)


def compare(options: argparse.Namespace) -> None:
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        for title, problem_of, halvings, numbers in _parts(options):
            for strategy in STRATEGIES:
                alone: Sequence[Found] = ()
                for clusters in options.clusters:
                    play = functools.partial(_play, problem_of, strategy, halvings, clusters)
                    found = list(pool.map(play, numbers, chunksize=CHUNK))
                    alone = alone or found
                    rows.append(_row(title, strategy, clusters, found, alone))
    _print(rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def _options() -> argparse.Namespace:
    arguments = parser(
        __doc__, problems=200, simulations=100, clusters=[1, 2, 4, 8], logs=PAPER,
        processes=os.cpu_count(), json=Path,
    )  # fmt: skip
    arguments.add_argument("--simulated", nargs=2, metavar=("WORKLOAD", "WORKERS"))
    options = arguments.parse_args()
    if options.clusters[0] != 1:
        arguments.error("the first number of --clusters has to be 1, with which all are compared")
    return options


def _parts(options: argparse.Namespace) -> Iterator[tuple[str, ProblemOf, int, range]]:
    if options.problems:
        yield "generated jobs", generated_problem, 6, range(options.problems)
    if options.simulated:
        name, workers = options.simulated
        job = _simulated_job(name, int(workers))
        title = f"simulated {name}, {workers} workers"
        yield title, job.problem, job.halvings, range(options.simulations)
    if options.simulations and options.logs.is_dir():
        for name, recorded in recorded_jobs(options.logs).items():
            title = f"published, {name.rpartition('-')[2]} workers"
            yield title, recorded.problem, recorded.halvings, range(options.simulations)


def _simulated_job(reference: str, workers: int) -> RecordedJob:
    """Trains every switch point; real gradients on a virtual clock."""
    workload = load_workload(reference)
    profile = load_profile("uniform")
    identity = simulated_identity(workload, workers, ("bsp", "asp"), profile)
    specs = [
        TrialSpec(identity, percent, replicate_seed(0, replicate), replicate)
        for percent in halved_percents(HALVINGS)[::-1]
        for replicate in range(RUNS)
    ]
    with SimulatedTrainer(workload, workers, profile) as trainer:
        runs = tuple(
            _recorded(trainer.train(spec), str(number)) for number, spec in enumerate(track(specs))
        )
    stop = StopRule.of(_strategy("adaptive", HALVINGS), identity.recipe.learning_rate_boundaries)
    return RecordedJob(PlayedRecording.of(Recording(identity, runs), stop), HALVINGS)


def _recorded(record: TrialRecord, name: str) -> RecordedRun:
    first = record.spec.identity.first_protocol
    return RecordedRun(
        candidate_percent=record.spec.switch_percent,
        accuracy=record.converged_accuracy,
        training_seconds=record.training_seconds,
        diverged=record.diverged,
        first_seconds=sum(phase.seconds for phase in record.phases if phase.protocol == first),
        worker_steps=record.worker_steps,
        evaluations=record.evaluations,
        phases=record.phases,
        seed=record.spec.seed,
        name=name,
    )


def _strategy(strategy: str, halvings: int) -> Strategy:
    return make_strategy(
        strategy, halvings=halvings, runs=RUNS, threshold=BETA, target_accuracy=None
    )


def _play(problem_of: ProblemOf, strategy: str, halvings: int, clusters: int, number: int) -> Found:
    problem = problem_of(number)
    found = _Replay(_strategy(strategy, halvings), problem.run_at, clusters).search()
    unit = problem.first_seconds
    return Found(
        switch_percent=found.search.switch_percent,
        wall=found.wall_seconds / unit,
        cost=found.search.seconds / unit,
        runs=found.search.runs,
        speculative_runs=found.speculative_runs,
        cancelled_runs=found.cancelled_runs,
    )


def _row(
    problems: str, strategy: str, clusters: int, found: Sequence[Found], alone: Sequence[Found]
) -> Row:
    pairs = zip(found, alone, strict=True)
    return Row(
        problems=problems,
        strategy=strategy,
        clusters=clusters,
        wall=statistics.fmean(one.wall for one in found),
        cost=statistics.fmean(one.cost for one in found),
        runs=statistics.fmean(one.runs for one in found),
        speculative_runs=statistics.fmean(one.speculative_runs for one in found),
        cancelled_runs=statistics.fmean(one.cancelled_runs for one in found),
        same_answer=statistics.fmean(a.switch_percent == b.switch_percent for a, b in pairs),
    )


def _print(rows: Sequence[Row]) -> None:
    columns = ("clusters", "time", "cost", "runs", "in advance", "cancelled", "same answer")
    table = new_table("problems", "strategy", *columns, left=2, box=SIMPLE)
    for row in rows:
        table.add_row(
            row.problems,
            row.strategy,
            str(row.clusters),
            f"{row.wall:.2f}",
            f"{row.cost:.2f}",
            f"{row.runs:.1f}",
            f"{row.speculative_runs:.1f}",
            f"{row.cancelled_runs:.1f}",
            f"{100 * row.same_answer:.1f} %",
        )
    console = Console(width=130, highlight=False)
    console.print("Time and cost in trainings with BSP alone; means over the searches.", table)


if __name__ == "__main__":
    main()
