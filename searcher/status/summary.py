"""How far a search is, what it knows, and what is to come; a pure function of what is stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from syncswitch.searcher.search.result import cost_of
from syncswitch.searcher.simulation.rest import RestOfSearch
from syncswitch.searcher.status.switch_point_status import SwitchPointStatus, switch_point_statuses
from syncswitch.searcher.status.trial_status import RunStatus, last_failure, last_sign, run_status
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.progress import SearchProgress
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.strategies.trial_costs import TrialCosts
from syncswitch.storage.errors import UserError
from syncswitch.storage.queries.search_costs import wall_seconds
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.values import SearchInfo, StoredTrial
from syncswitch.storage.uses.summary import UseSummary

_RECENT = timedelta(minutes=1)
# From its registration to its first run: a big model and a cluster have to be made.
_STARTING = timedelta(minutes=3)
_LIVING = frozenset({TrialState.RUNNING, TrialState.STALE})
_OVER = frozenset({"done", "baseline diverged", "no threshold", "dropped"})


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """How far a search is, or an evaluation, which has no bracket, answer or rest.

    Costs are in trainings with the first protocol alone.

    Attributes:
        decided_by: The metric of the job.
        simulated_cluster: Digest of its profile; None for a real one.
        state: `starting`, `running`, `stopped`, `done`, `dropped`, `baseline diverged`, or `no
            threshold`: all runs with the first protocol alone measured the same.
        is_under_way: Somebody makes it, or did a minute ago.
        most_runs: Of the longest search; None where the strategy cannot say.
        failed_runs: Stale ones included.
        interrupted_runs: Given back because somebody pressed Ctrl-C.
        speculative_runs: Begun when they were only likely to be needed.
        last_failure: Why a run failed last; None where none did.
        lower_percent: The highest switch point known to be too early.
        upper_percent: The lowest switch point known to be acceptable.
        open_percent: The switch point that is measured now.
        target_accuracy: A; None until it is measured.
        policy: That it found; None as long as there is none.
        dropped: Why another pair of protocols was preferred; None where none was.
        uses: How that has done in later runs, when this was read; None without one.
        cost: Of all runs so far; None where nobody knows the pace of those that ended.
        wall_seconds: While at least one run was under way, as far as was reported.
        rest: What is to come, of runs under way too; None where nobody asked, or none can say.
        remaining_wall_seconds: The same at the pace of the completed runs.
        switch_points: Those that were tried or may be the answer, the latest switch first.
    """

    workload: str
    fingerprint: str
    decided_by: Metric
    workers: int
    simulated_cluster: str | None
    first_protocol: str
    second_protocol: str
    conditions: RunConditions
    study: str
    strategy: str
    state: str
    is_under_way: bool
    finished_runs: int
    most_runs: int | None
    failed_runs: int
    interrupted_runs: int
    cancelled_runs: int
    speculative_runs: int
    last_failure: str | None
    lower_percent: float | None
    upper_percent: float | None
    open_percent: float | None
    target_accuracy: float | None
    threshold: float
    policy: TimingPolicy | None
    dropped: str | None
    uses: UseSummary | None
    cost: float | None
    wall_seconds: float
    rest: RestOfSearch | None
    remaining_wall_seconds: float | None
    switch_points: tuple[SwitchPointStatus, ...]
    in_flight: tuple[RunStatus, ...]

    @property
    def is_finished(self) -> bool:
        """Nothing more will come of it."""
        return self.state in _OVER


def search_status(
    search: SearchInfo,
    identity: WorkloadIdentity,
    rows: Mapping[int, StoredTrial],
    finished: Sequence[Observation],
    states: Mapping[int, TrialState],
    now: datetime,
    *,
    registered_at: datetime | None = None,
    policy: TimingPolicy | None = None,
    uses: UseSummary | None = None,
    accuracies: Mapping[int, float] | None = None,
    rest: RestOfSearch | None = None,
    is_brief: bool = False,
) -> SearchStatus:
    """What the database has of a search, in the words that people need.

    Args:
        search: Its switch points.
        identity: Of the workload.
        rows: Its trials by their number.
        finished: Those that are completed, as `observations_of` has them.
        states: Of each trial as `liveness.state_of` has it.
        now: Time zone aware.
        registered_at: When it began.
        policy: What it published; None as long as it has not.
        uses: How that has done.
        accuracies: Of the last test of runs under way.
        rest: What is to come after the completed runs, as `rest_of_search` has it.
        is_brief: Leaves out the switch points and the bracket of a search that has its policy.
    """
    strategy = stored_strategy(search)
    living = [number for number in rows if states[number] in _LIVING]
    running = [number for number in living if states[number] == TrialState.RUNNING]
    needed = None if is_brief and policy else _needed(strategy, finished)
    progress = None if needed is None else strategy.progress(needed)
    is_new = not rows and registered_at is not None and now - registered_at < _STARTING
    state = _state(
        strategy,
        progress,
        policy,
        is_running=bool(running),
        is_new=is_new,
        has_diverged=any(run.diverged for run in finished),
    )
    state = "dropped" if search.dropped else state
    spent = cost_of(identity, rows.values())
    costs = TrialCosts.of(finished, strategy.highest_percent, strategy.share_prefix)
    interrupted = sum(
        states[n] == TrialState.FAILED and row.is_interrupted for n, row in rows.items()
    )
    completed_seconds = wall_seconds(rows[run.trial_number] for run in finished)
    pace = completed_seconds / costs.paid if finished and costs.paid else None
    is_search = progress is not None and not isinstance(strategy, ComparisonStrategy)
    bracket = (progress.lower_percent, progress.upper_percent) if progress and is_search else None
    in_flight = tuple(
        run_status(rows[n], states[n], now, costs, pace, (accuracies or {}).get(n)) for n in living
    )
    begun = math.fsum(run.cost for run in in_flight if run.state == TrialState.RUNNING)
    paid = spent.bsp_multiples if finished else 0.0
    rest = rest and rest.less(begun)
    seen_at = last_sign(rows)
    is_recent = seen_at is not None and now - seen_at < _RECENT
    is_over = state in _OVER
    return SearchStatus(
        workload=policy.workload if policy else identity.name,
        fingerprint=search.fingerprint,
        decided_by=identity.decided_by,
        workers=identity.workers,
        simulated_cluster=identity.simulated_cluster,
        first_protocol=identity.first_protocol,
        second_protocol=identity.second_protocol,
        # Those of its runs; before the first one nobody knows them.
        conditions=next((row.conditions for row in rows.values()), RunConditions()),
        study=search.study,
        strategy=search.strategy,
        state=state,
        is_under_way=not is_over and (bool(running) or is_recent or is_new),
        finished_runs=len(finished),
        most_runs=strategy.most_runs if strategy.repeats else None,
        failed_runs=spent.failed_runs + spent.running_runs - len(running) - interrupted,
        interrupted_runs=interrupted,
        cancelled_runs=spent.cancelled_runs,
        speculative_runs=spent.speculative_runs,
        last_failure=last_failure(rows, states),
        lower_percent=bracket[0] if bracket else None,
        upper_percent=bracket[1] if bracket else None,
        open_percent=progress.open_percent if progress else None,
        target_accuracy=progress.target_accuracy if progress else search.target_accuracy,
        threshold=search.threshold,
        policy=policy,
        dropped=search.dropped,
        uses=uses,
        cost=None if paid is None else paid + begun,
        wall_seconds=spent.wall_seconds,
        rest=rest,
        remaining_wall_seconds=rest.cost * pace if rest and pace else None,
        switch_points=switch_point_statuses(
            strategy, needed or (), progress, in_flight, is_over=is_over
        ),
        in_flight=in_flight,
    )


def _needed(strategy: Strategy, finished: Sequence[Observation]) -> tuple[Observation, ...] | None:
    """The runs that the search asked for; None where its baseline leaves nothing to compare with.

    Others are speculative, and it does not look at them.
    """
    try:
        return course_of(strategy, finished).runs
    except UserError:
        return None


def _state(
    strategy: Strategy,
    progress: SearchProgress | None,
    policy: TimingPolicy | None,
    *,
    is_running: bool,
    is_new: bool,
    has_diverged: bool,
) -> str:
    if policy is not None:
        return "done"
    if progress is None:
        return "baseline diverged" if has_diverged else "no threshold"
    # An evaluation looks for no switch point and publishes nothing.
    if isinstance(strategy, ComparisonStrategy) and progress.open_percent is None:
        return "done"
    if is_new:
        return "starting"
    return "running" if is_running else "stopped"
