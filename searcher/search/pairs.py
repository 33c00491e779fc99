"""A search over several pairs of protocols that have the first one in common.

One pair after the other is searched for its switch point, until that is known or the pair cannot be
faster any more than the best one so far; then the best one's policy is published. What the first
protocol does alone is trained once for all of them, and the checkpoints on its way serve all.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.search.observations import total_cost
from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.search.search import (
    LoopOptions,
    Search,
    SearchResult,
    SearchState,
    TrialLoop,
)
from syncswitch.searcher.strategies.base import Decided, Wait
from syncswitch.searcher.strategies.pairs import LEAST_GAIN, Dropped, dropped, is_preferred, pace_of
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.searcher.words import counted, percent_text, seconds_text
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


def why_dropped(pair: PairOutcome, best: PairOutcome) -> str:
    """Why a pair is not the answer, as a clause: `given up after 2 runs: with a switch at ...`."""
    assert isinstance(best.found, Decided)
    switch = percent_text(best.found.switch_percent)
    takes = f"{best.name} {seconds_text(best.seconds)} s with a switch at {switch}"
    mine = f"{seconds_text(pair.seconds)} s with a switch at"
    least = f"{100 * LEAST_GAIN:g} % faster"
    if isinstance(pair.found, Decided):
        if math.isinf(pair.seconds):
            return f"not known to be faster: none of its runs tells how long it takes, and {takes}"
        mine = f"{mine} {percent_text(pair.found.switch_percent)}"
        return f"not {least}: it takes {mine}, and {takes}"
    after = f"given up after {counted(pair.found.runs, 'run')}"
    mine = f"{mine} {percent_text(pair.found.percent)}"
    if pair.found.chance is None:
        return f"{after}: it may keep the accuracy and take {mine} at best, and {takes}"
    chance = f"{100 * pair.found.chance:.1f} %"
    return f"{after}: that it keeps the accuracy and is {least} has a chance of {chance}; {takes}"


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """The outcome of the search of one pair.

    Attributes:
        study: Name of its search.
        found: The earliest switch that keeps the accuracy, or why nobody looked on for it.
        seconds: A training with that switch, at the pace of the runs behind it; infinite where
            nobody knows.
        runs: Completed runs of the pair, those of the first protocol alone included that it has
            from another pair.
        paid_seconds: Training time of its own.
    """

    identity: WorkloadIdentity
    study: str
    found: Decided | Dropped
    seconds: float
    runs: int
    paid_seconds: float

    @property
    def name(self) -> str:
        """For example `bsp,asp`."""
        return self.identity.pair


@dataclass(frozen=True, slots=True)
class PairsResult:
    """The end of a search over pairs: one policy.

    Attributes:
        pairs: In the order in which they were tried.
        best: The search of the pair whose policy it is.
    """

    pairs: tuple[PairOutcome, ...]
    best: SearchResult


def best_of(pairs: Sequence[PairOutcome]) -> PairOutcome | None:
    """The fastest pair that keeps the accuracy, of nearly equal ones the first; None for none.

    Args:
        pairs: In the order in which they were tried.
    """
    best = None
    for pair in pairs:
        if isinstance(pair.found, Decided) and (
            best is None or is_preferred(pair.seconds, best.seconds)
        ):
            best = pair
    return best


def paid_trainings(pairs: Sequence[PairOutcome], baseline_seconds: float | None) -> float | None:
    """The cost of all pairs together, in trainings with the first protocol alone."""
    paid = math.fsum(one.paid_seconds for one in pairs)
    return paid / baseline_seconds if baseline_seconds else None


@dataclass(frozen=True)
class PairToSearch:
    """A pair of protocols of a job, and where it is to be trained.

    Attributes:
        identity: The job with this pair.
        plan: Of the pair's search; it names all the pairs.
        open_trainer: Called when the first run is needed, and again after a failure.
    """

    identity: WorkloadIdentity
    plan: SearchPlan
    open_trainer: Callable[[], Trainer]

    @property
    def study(self) -> str:
        """Name of its search."""
        return study_name(self.identity, self.plan)


def search_pairs(
    database: Database,
    pairs: Sequence[PairToSearch],
    *,
    say: Callable[[PairToSearch], None] = lambda _: None,
    **options: Unpack[LoopOptions],
) -> PairsResult:
    """Finds the fastest pair that keeps the accuracy, and publishes its policy alone.

    The same call goes on where an interrupted one stopped, shares the work with others, or answers
    at once: what is decided follows from the runs that each pair's search asked for, in that order.

    Args:
        database: Holds Optuna's tables and ours.
        pairs: All with one first protocol; the first of them is searched to its end.
        say: Is told which pair comes next.
        **options: See `LoopOptions`.

    Raises:
        UserError: As `Search`.
        RetryableError: As `Search`.
    """
    outcomes: list[PairOutcome] = []
    searches: list[_PairSearch] = []
    for pair in pairs:
        say(pair)
        options["other_pairs"] = [other.study for other in pairs if other is not pair]
        search = _PairSearch(database, pair, best_of(outcomes), **options)
        outcomes.append(search.run())
        searches.append(search)
    best = best_of(outcomes)
    assert best is not None  # the first pair is never given up
    chosen = next(pair for pair in pairs if pair.study == best.study)
    found = Search(database, chosen.identity, chosen.plan, chosen.open_trainer, **options).run()
    for search, outcome in zip(searches, outcomes, strict=True):
        search.prefixes.remove()
        if outcome is not best:
            TrialStore(database).drop(outcome.study, why_dropped(outcome, best))
    return PairsResult(tuple(outcomes), found)


class _PairSearch(TrialLoop[PairOutcome]):
    """The search of one pair, up to its answer or until it is given up; nothing is published."""

    def __init__(
        self,
        database: Database,
        pair: PairToSearch,
        best: PairOutcome | None,
        **options: Unpack[LoopOptions],
    ) -> None:
        super().__init__(database, pair.identity, pair.plan, pair.open_trainer, **options)
        self._best = best

    def move(self, state: SearchState) -> PairOutcome | PlannedTrial | Wait:
        """Return the outcome of the pair once it is known; else what its strategy wants."""
        self.report(state)
        found = self._found(state)
        if found is None:
            planned = state.plan
            assert not isinstance(planned, Decided)  # that is an outcome
            return planned
        if isinstance(found, Dropped):
            seconds = found.seconds
        else:
            seconds = pace_of(state.course.runs).at(found.switch_percent)
            seconds = math.inf if math.isnan(seconds) else seconds
        cost = total_cost(self._identity, state.rows.values())
        return PairOutcome(
            self._identity,
            self.study_name,
            found,
            seconds,
            cost.completed_runs,
            cost.paid_seconds,
        )

    def _found(self, state: SearchState) -> Decided | Dropped | None:
        """The first that its runs say, in the order in which they were asked for."""
        if self._best is not None:
            lost = dropped(state.measured_strategy, state.course.runs, self._best.seconds)
            if lost is not None:
                return lost
        decision = state.course.decision
        return decision if isinstance(decision, Decided) else None

    def is_decided(self) -> bool:
        """Whether its runs say what becomes of it."""
        with contextlib.suppress(UserError):  # the baseline diverged, which the next look says
            return self._found(self.study.read()) is not None
        return False
