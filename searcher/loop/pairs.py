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

from syncswitch.searcher.loop.search import Search, first_strategy
from syncswitch.searcher.loop.trial_loop import LoopOptions, TrialLoop
from syncswitch.searcher.results.pairs import PairOutcome, PairsResult, best_of
from syncswitch.searcher.results.result import cost_of
from syncswitch.searcher.strategies.base import Decided, Wait
from syncswitch.searcher.strategies.pairs import Dropped, dropped, pace_of
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.searcher.study.plan import SearchPlan, study_name
from syncswitch.searcher.study.study import SearchState
from syncswitch.searcher.text.pairs import why_dropped
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.trials.searches import drop_search
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    loops: list[TrialLoop] = []
    for pair in pairs:
        say(pair)
        options["other_pairs"] = [other.study for other in pairs if other is not pair]
        search = _PairSearch(database, pair, best_of(outcomes), **options)
        outcomes.append(search.run())
        loops.append(search.loop)
    best = best_of(outcomes)
    assert best is not None  # the first pair is never given up
    chosen = next(pair for pair in pairs if pair.study == best.study)
    found = Search(database, chosen.identity, chosen.plan, chosen.open_trainer, **options).run()
    for loop, outcome in zip(loops, outcomes, strict=True):
        loop.prefixes.remove()
        if outcome is not best:
            drop_search(database, outcome.study, why_dropped(outcome, best))
    return PairsResult(tuple(outcomes), found)


class _PairSearch:
    """The search of one pair, up to its answer or until it is given up; nothing is published."""

    def __init__(
        self,
        database: Database,
        pair: PairToSearch,
        best: PairOutcome | None,
        **options: Unpack[LoopOptions],
    ) -> None:
        pair.plan.check()
        self._pair, self._best = pair, best
        self.loop = TrialLoop(
            database,
            pair.identity,
            pair.plan,
            first_strategy(database, pair.identity, pair.plan),
            pair.open_trainer,
            is_decided=self._is_decided,
            **options,
        )

    def run(self) -> PairOutcome:
        """Makes the runs that are missing."""
        return self.loop.run(self._move)

    def _move(self, state: SearchState) -> PairOutcome | PlannedTrial | Wait:
        self.loop.report(state)
        found = self._found(state)
        if found is None:
            planned = state.plan
            assert not isinstance(planned, Decided)  # that is an outcome
            return planned
        seconds = found.seconds if isinstance(found, Dropped) else _seconds(state, found)
        cost = cost_of(self._pair.identity, state.rows.values())
        return PairOutcome(
            self._pair.identity,
            self._pair.study,
            found,
            seconds,
            cost.completed_runs,
            cost.paid_seconds,
        )

    def _found(self, state: SearchState) -> Decided | Dropped | None:
        """The first that its runs say, in the order in which they were asked for."""
        if self._best is not None:
            lost = dropped(self.loop.strategy, state.course.runs, self._best.seconds)
            if lost is not None:
                return lost
        decision = state.course.decision
        return decision if isinstance(decision, Decided) else None

    def _is_decided(self) -> bool:
        with contextlib.suppress(UserError):  # the baseline diverged, which the next look says
            return self._found(self.loop.study.read(self.loop.store)) is not None
        return False


def _seconds(state: SearchState, decided: Decided) -> float:
    seconds = pace_of(state.course.runs).at(decided.switch_percent)
    return math.inf if math.isnan(seconds) else seconds
