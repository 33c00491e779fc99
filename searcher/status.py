"""The progress of each search: its runs, its knowledge so far, and the rest that is to come.

`StatusReader` reads the database again and again and never writes; `StoredSearch.status` is
a pure function of what is stored.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone

from syncswitch.searcher.forecast import RestOfSearch, rest_of_search
from syncswitch.searcher.search.observations import read_observations, state_of, total_cost
from syncswitch.searcher.strategies.base import (
    SearchProgress,
    Strategy,
    SwitchPointSummary,
    summary_of,
)
from syncswitch.searcher.strategies.observation import Observation, TrialCosts
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.queries.search_costs import SearchCost, wall_seconds
from syncswitch.storage.records.job import Job, RunConditions, ScheduledJob, SearchInfo
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.optuna_tables import running_accuracies
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.store import uses_of
from syncswitch.storage.uses.summary import UseSummary

LEAST_RUNS = 3
"""With fewer runs, a strategy that makes as many as it needs foresees far too few."""

_RECENT = timedelta(minutes=1)
# From the registration of a search to its first run: a big model and a cluster are made first.
_STARTING = timedelta(minutes=3)
# Up to this share of a run, the time to begin it counts for too much.
_LEAST_SHARE = 0.1
_LIVING = frozenset({TrialState.RUNNING, TrialState.STALE})
_OVER = frozenset({"done", "baseline diverged", "no threshold", "dropped"})


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run under way; a speculative one is only likely to be needed.

    Attributes:
        replicate: Number of this repeat of the switch point, from 0.
        state: `running`, or `stale` where its process is dead: it will be made again.
        worker_steps: Worker-steps done so far, including those of a fork's prefix.
        accuracy: Accuracy at the last evaluation; None before the first.
        cost: Cost of its own part so far, in trainings with the first protocol alone.
        remaining_seconds: Estimate of the time left; None without any basis for one.
        silent_seconds: Time since its searcher last reported.
    """

    trial_number: int
    switch_percent: float
    replicate: int
    state: TrialState
    speculative: bool
    host: str | None
    process_id: int | None
    worker_steps: int
    total_worker_steps: int
    accuracy: float | None
    cost: float
    elapsed_seconds: float
    remaining_seconds: float | None
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class SwitchPointStatus(SwitchPointSummary):
    """The state of one switch point of a search under way.

    The probability that it is the answer is None for strategies without one.
    """

    in_flight_runs: int
    answer_probability: float | None


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many runs a search has made, and at most will; None where its strategy cannot say.

    Stale runs have failed, interrupted ones were given back at Ctrl-C.
    """

    finished_runs: int
    most_runs: int | None
    failed_runs: int
    interrupted_runs: int
    cancelled_runs: int
    speculative_runs: int


@dataclass(frozen=True, slots=True)
class Bracket:
    """What a search knows so far, as `SearchProgress` says it; a sweep has no ends."""

    lower_percent: float | None
    upper_percent: float | None
    open_percent: float | None
    target_accuracy: float | None


@dataclass(frozen=True, slots=True)
class Spending:
    """What a search has cost and will cost, in trainings with the first protocol alone.

    Attributes:
        cost: Cost of all runs so far; None where the pace of finished runs is unknown.
        wall_seconds: Time with at least one run under way, as far as was reported.
        rest: The estimated rest, runs under way included; None if not asked for or unknown.
        remaining_wall_seconds: The time of that rest at the pace of the completed runs.
    """

    cost: float | None
    wall_seconds: float
    rest: RestOfSearch | None
    remaining_wall_seconds: float | None


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """The progress of a search, or of a sweep, which has no ends, answer or rest.

    Attributes:
        state: `starting`, `running`, `stopped`, `done`, `dropped`, `baseline diverged`, or `no
            threshold`: all runs with the first protocol alone measured the same.
        is_under_way: Whether a process makes its runs, or did a minute ago.
        last_failure: The last failed run and its reason; None where none failed.
        policy: The policy that it found; None as long as there is none.
        uses: Success of the policy in later runs; None without a policy.
        switch_points: Those that were tried or may be the answer, the latest switch first.
    """

    info: SearchInfo
    job: ScheduledJob
    conditions: RunConditions
    state: str
    is_under_way: bool
    runs: RunCounts
    last_failure: str | None
    bracket: Bracket
    policy: TimingPolicy | None
    uses: UseSummary | None
    spending: Spending
    switch_points: tuple[SwitchPointStatus, ...]
    in_flight: tuple[RunStatus, ...]

    @property
    def is_finished(self) -> bool:
        return self.state in _OVER


@dataclass
class StatusReader:
    """Reads the searches of a database again and again; finished ones once.

    Each reading opens the database anew, so it notices a file that was replaced or a schema that
    was upgraded, and holds no lock in between. A workload and a number of workers narrow them down.
    """

    url: str
    workload: str | None = None
    workers: int | None = None
    _finished: dict[str, SearchStatus] = field(default_factory=dict, init=False)

    def read(self, *, with_rest: bool = True, is_brief: bool = False) -> list[SearchStatus]:
        """All searches and evaluations, in the order in which they were registered.

        To estimate the rest of those under way (`with_rest`) takes a second for each new result. A
        brief reading leaves out the switch points and the bracket of searches that have their
        policy, which take long where there are many. A SyncSwitchError says whether to try again.
        """
        with open_database(self.url, create=False) as database:
            statuses = []
            for search in TrialStore(database).searches(workload=self.workload):
                workload = PolicyRegistry(database).workload(search.fingerprint)
                assert workload is not None  # every search refers to one
                if self.workers not in (None, workload.job.workers):
                    continue
                status = self._finished.get(search.study)
                if status is None:
                    stored = _read(database, search, workload.job, with_rest=with_rest)
                    status = stored.status(datetime.now(timezone.utc), is_brief=is_brief)
                # Runs under way are cancelled only after the policy was published.
                if status.is_finished and not status.in_flight:
                    self._finished[search.study] = status
                statuses.append(status)
            return statuses


def _read(database: Database, search: SearchInfo, job: Job, *, with_rest: bool) -> StoredSearch:
    # Before the runs: a search that is decided in between has all of them.
    policy = PolicyRegistry(database).published(search.fingerprint, search.study)
    if policy is not None:
        search = replace(search, protocols=policy.protocols)
    store = TrialStore(database)
    rows = store.numbered(search.study)
    states = {number: state_of(row) for number, row in rows.items()}
    is_running = TrialState.RUNNING in states.values()
    finished = read_observations(database, search.study, rows, search.protocols)
    wants_rest = with_rest and is_running and policy is None
    return StoredSearch(
        search,
        ScheduledJob(job, search.protocols),
        rows,
        finished,
        states,
        registered_at=None if rows else store.registered_at(search.study),
        policy=policy,
        uses=None if policy is None else uses_of(database, policy),
        accuracies=running_accuracies(database, search.study) if is_running else {},
        rest=_rest(stored_strategy(search), finished) if wants_rest else None,
    )


def _rest(strategy: Strategy, finished: list[Observation]) -> RestOfSearch | None:
    is_early = strategy.repeats is None and len(finished) < LEAST_RUNS
    if not strategy.seeks_switch or is_early:
        return None
    with contextlib.suppress(UserError):
        if not strategy.missing_for_threshold(finished):
            return rest_of_search(strategy, finished)
    return None


@dataclass(frozen=True)
class StoredSearch:
    """A search as the database has it: all its runs by number, and what is known of them."""

    search: SearchInfo
    job: ScheduledJob
    rows: Mapping[int, StoredTrial]
    finished: Sequence[Observation]
    states: Mapping[int, TrialState]
    registered_at: datetime | None = None
    policy: TimingPolicy | None = None
    uses: UseSummary | None = None
    accuracies: Mapping[int, float] = field(default_factory=dict)
    rest: RestOfSearch | None = None

    def status(self, now: datetime, *, is_brief: bool = False) -> SearchStatus:
        """Its progress at a moment with a time zone; for `is_brief` see `StatusReader.read`."""
        search, rows, states, finished = self.search, self.rows, self.states, self.finished
        strategy = stored_strategy(search)
        running = [number for number in rows if states[number] == TrialState.RUNNING]
        needed: tuple[Observation, ...] | None = None
        if not (is_brief and self.policy):
            # A baseline that diverged leaves nothing to compare with.
            with contextlib.suppress(UserError):
                needed = course_of(strategy, finished).runs
        progress = None if needed is None else strategy.progress(needed)
        is_new = (
            not rows and self.registered_at is not None and now - self.registered_at < _STARTING
        )
        state = "starting" if is_new else "running" if running else "stopped"
        if self.job.pair in search.dropped:
            state = "dropped"
        elif self.policy is not None:
            state = "done"
        elif progress is None:
            has_diverged = any(run.diverged for run in finished)
            state = "baseline diverged" if has_diverged else "no threshold"
        elif not strategy.seeks_switch and progress.open_percent is None:
            state = "done"  # a sweep looks for no switch point and publishes nothing
        spent = total_cost(self.job, rows.values())
        costs = TrialCosts.of(finished, strategy.highest_percent, strategy.share_prefix)
        completed_seconds = wall_seconds(rows[run.trial_number] for run in finished)
        pace = completed_seconds / costs.paid if finished and costs.paid else None
        living = [number for number in rows if states[number] in _LIVING]
        in_flight = tuple(self._run_status(number, now, costs, pace) for number in living)
        is_over = state in _OVER
        return SearchStatus(
            info=search,
            job=self.job,
            # Its runs have them; before the first one they are unknown.
            conditions=next((row.conditions for row in rows.values()), RunConditions()),
            state=state,
            is_under_way=not is_over and (bool(running) or is_new or self._is_recent(now)),
            runs=self._counts(strategy, spent, len(running)),
            last_failure=self._last_failure(),
            bracket=_bracket(search, strategy, progress),
            policy=self.policy,
            uses=self.uses,
            spending=self._spending(spent, in_flight, pace),
            switch_points=_switch_point_statuses(
                strategy, needed or (), progress, in_flight, is_over=is_over
            ),
            in_flight=in_flight,
        )

    def _is_recent(self, now: datetime) -> bool:
        rows = self.rows.values()
        signs = ((row.started_at, row.heartbeat_at, row.ended_at) for row in rows)
        seen_at = max(filter(None, itertools.chain.from_iterable(signs)), default=None)
        return seen_at is not None and now - seen_at < _RECENT

    def _counts(self, strategy: Strategy, spent: SearchCost, running: int) -> RunCounts:
        failed = (row for n, row in self.rows.items() if self.states[n] == TrialState.FAILED)
        interrupted = sum(row.is_interrupted for row in failed)
        return RunCounts(
            finished_runs=len(self.finished),
            most_runs=strategy.most_runs if strategy.repeats else None,
            failed_runs=spent.failed_runs + spent.running_runs - running - interrupted,
            interrupted_runs=interrupted,
            cancelled_runs=spent.cancelled_runs,
            speculative_runs=spent.speculative_runs,
        )

    def _spending(
        self, spent: SearchCost, in_flight: Sequence[RunStatus], pace: float | None
    ) -> Spending:
        begun = math.fsum(run.cost for run in in_flight if run.state == TrialState.RUNNING)
        paid = spent.bsp_multiples if self.finished else 0.0
        rest = self.rest and self.rest.less(begun)
        return Spending(
            None if paid is None else paid + begun,
            spent.wall_seconds,
            rest,
            rest.cost * pace if rest and pace else None,
        )

    def _run_status(
        self, number: int, now: datetime, costs: TrialCosts, pace: float | None
    ) -> RunStatus:
        """The progress of a run; a training with the first protocol alone takes `pace` seconds."""
        row, state = self.rows[number], self.states[number]
        elapsed = (now - row.started_at).total_seconds() if row.started_at else 0.0
        silent = (now - row.heartbeat_at).total_seconds() if row.heartbeat_at else elapsed
        start = (row.fork_percent or 0.0) / 100
        # A fork reports nothing before its first own worker-step.
        share = max(row.worker_steps / row.total_worker_steps, start)
        # Beyond the point where runs end on average, it may be one that is made to its end.
        end = costs.end if share < costs.end else 1.0
        begun, now_at, at_end = (costs.until(row.switch_percent, to) for to in (start, share, end))
        done, rest = now_at - begun, at_end - now_at
        remaining = None
        if done > _LEAST_SHARE * (done + rest) or (done > 0 and pace is None):
            # This much was done by its last report.
            remaining = max(0.0, (elapsed - silent) / done * rest - silent)
        elif pace is not None:
            remaining = max(0.0, pace * rest - elapsed)
        return RunStatus(
            trial_number=number,
            switch_percent=row.switch_percent,
            replicate=row.replicate,
            state=state,
            speculative=row.speculative,
            host=row.host,
            process_id=row.process_id,
            worker_steps=round(share * row.total_worker_steps),
            total_worker_steps=row.total_worker_steps,
            accuracy=self.accuracies.get(number),
            cost=done,
            elapsed_seconds=max(0.0, elapsed),
            remaining_seconds=remaining if state == TrialState.RUNNING else None,
            silent_seconds=max(0.0, silent),
        )

    def _last_failure(self) -> str | None:
        """The run that failed last and its reason, stopped ones aside; None where none failed."""
        failed = [
            (row.ended_at or row.heartbeat_at or row.started_at, number)
            for number, row in self.rows.items()
            if self.states[number] in {TrialState.FAILED, TrialState.STALE}
            and not (row.is_cancelled or row.is_interrupted)
        ]
        if not failed:
            return None
        number = max(failed, key=lambda run: (run[0] is not None, run))[1]
        row = self.rows[number]
        reason = row.failure or "its process has exited"
        return f"{row.switch_percent:g} %, run {row.replicate + 1}: {reason}"


def _bracket(search: SearchInfo, strategy: Strategy, progress: SearchProgress | None) -> Bracket:
    if progress is None:
        return Bracket(None, None, None, search.target_accuracy)
    ends = (progress.lower_percent, progress.upper_percent)
    lower, upper = ends if strategy.seeks_switch else (None, None)
    return Bracket(lower, upper, progress.open_percent, progress.target_accuracy)


def _switch_point_statuses(
    strategy: Strategy,
    needed: Sequence[Observation],
    progress: SearchProgress | None,
    in_flight: Sequence[RunStatus],
    *,
    is_over: bool,
) -> tuple[SwitchPointStatus, ...]:
    if progress is None:
        return ()
    summaries = {summary.switch_percent: summary for summary in progress.summaries}
    # A search that has decided believes nothing any more.
    answers = {} if is_over else strategy.answers(needed)
    under_way = Counter(run.switch_percent for run in in_flight if run.state == TrialState.RUNNING)
    return tuple(
        SwitchPointStatus(
            **asdict(summaries.get(percent) or summary_of(percent, (), accepted=None)),
            in_flight_runs=under_way[percent],
            answer_probability=answers.get(percent),
        )
        for percent in sorted({*summaries, *answers, *under_way}, reverse=True)
    )
