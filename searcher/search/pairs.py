"""A search over several pairs of protocols that have the first one in common.

It is one study of one job. One pair after the other is searched for its switch point, until that is
known or the pair is no longer likely to be faster than the best one so far. Then the policy of the
best pair is published. Runs with the first protocol alone count for all pairs, and checkpoints of
all runs serve all.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.search.loop import LoopOptions, TrialLoop
from syncswitch.searcher.search.observations import total_cost
from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.search.reporter import Reporter
from syncswitch.searcher.search.search import Search, SearchResult
from syncswitch.searcher.search.study import SearchState
from syncswitch.searcher.strategies.base import Decided, Strategy, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.searcher.words import counted, percent_text, seconds_text
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UnsuitableProtocolError, UserError
from syncswitch.storage.metrics import mean_of
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


_LEAST_GAIN = 0.02
"""A pair is preferred to the best one before it if it takes this share less of the time."""

# A pair that is less likely to be preferred is given up.
_LEAST_CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class Dropped:
    """Why a pair cannot win, or is not likely to, as it was known after so many of its `runs`.

    `percent` is the fastest switch point that may still keep the accuracy, `seconds` the time of a
    training with it. `chance` is that of being preferred to the best so far; None if no switch
    point that may keep the accuracy is fast enough. `saving_seconds` is what it may be expected to
    save in all trainings that the search is for, where that is less than one more run costs.
    `refusal` is why the job cannot be trained with it.
    """

    runs: int
    percent: float
    seconds: float
    chance: float | None = None
    saving_seconds: float | None = None
    refusal: str | None = None


def _is_preferred(seconds: float, best_seconds: float) -> bool:
    return seconds < (1 - _LEAST_GAIN) * best_seconds


def _expected_seconds(answer: Decided, runs: Sequence[Observation]) -> float:
    """The time of a training with an answer, with what failed switches cost if known."""
    time = answer.promise.expected_time
    if time is not None:
        return time * _seconds_at(runs, BASELINE_PERCENT)
    return _seconds_at(runs, answer.switch_percent)


def _seconds_at(runs: Sequence[Observation], percent: float) -> float:
    """The time of a training with a switch, at the pace of some runs; NaN if unknown."""
    costs = [run.cost for run in runs if run.cost is not None]
    first = mean_of(cost.first_seconds for cost in costs)
    second = mean_of(cost.second_seconds for cost in costs)
    share = percent / 100
    # The pace of a protocol without a share of the training need not be known.
    first = share * (math.nan if first is None else first) if share else 0.0
    return first + ((1 - share) * (math.nan if second is None else second) if share < 1 else 0.0)


# A searcher that waits asks again and again, and every look begins with the first run.
@functools.lru_cache(maxsize=1_000)
def _dropped_after(
    strategy: Strategy, runs: tuple[Observation, ...], best_seconds: float
) -> Dropped | None:
    if math.isnan(_seconds_at(runs, 50.0)):
        return None
    rejected = strategy.progress(runs).lower_percent
    grid = strategy.grid()
    possible = [percent for percent in grid if percent > rejected] or [grid[-1]]
    seconds = {percent: _seconds_at(runs, percent) for percent in possible}
    fastest = min(possible, key=lambda percent: seconds[percent])
    faster = [percent for percent in possible if _is_preferred(seconds[percent], best_seconds)]
    if not faster:
        return Dropped(len(runs), fastest, seconds[fastest])
    answers = strategy.answers(runs)
    chance = math.fsum(answers.get(percent, 0.0) for percent in faster)
    if not answers:
        return None
    if chance < _LEAST_CHANCE:
        return Dropped(len(runs), fastest, seconds[fastest], chance)
    if strategy.runs_to_come is not None:
        gains = (answers.get(one, 0.0) * (best_seconds - seconds[one]) for one in faster)
        saving_seconds = strategy.runs_to_come * math.fsum(gains)
        if saving_seconds < seconds[fastest]:
            return Dropped(len(runs), fastest, seconds[fastest], chance, saving_seconds)
    return None


def why_dropped(pair: PairOutcome, best: PairOutcome) -> str:
    """Returns why a pair is not the answer, as a clause: `given up after 2 runs: ...`."""
    if isinstance(pair.found, Dropped) and pair.found.refusal is not None:
        return f"not possible: {pair.found.refusal}"
    assert isinstance(best.found, Decided)
    switch = percent_text(best.found.switch_percent)
    takes = f"{best.name} {seconds_text(best.seconds)} s with a switch at {switch}"
    mine = f"{seconds_text(pair.seconds)} s with a switch at"
    least = f"{100 * _LEAST_GAIN:g} % faster"
    if isinstance(pair.found, Decided):
        if math.isinf(pair.seconds):
            return f"not known to be faster: none of its runs tells how long it takes, and {takes}"
        mine = f"{mine} {percent_text(pair.found.switch_percent)}"
        return f"not {least}: it takes {mine}, and {takes}"
    after = f"given up after {counted(pair.found.runs, 'run')}"
    mine = f"{mine} {percent_text(pair.found.percent)}"
    if pair.found.chance is None:
        return f"{after}: it may keep the accuracy and take {mine} at best, and {takes}"
    if pair.found.saving_seconds is not None:
        saved = seconds_text(pair.found.saving_seconds)
        return (
            f"{after}: all trainings together may save {saved} s with it, and one more run costs"
            f" {seconds_text(pair.found.seconds)} s; {takes}"
        )
    chance = f"{100 * pair.found.chance:.1f} %"
    return f"{after}: the chance that it keeps the accuracy and is {least} is {chance}; {takes}"


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """The outcome of the search of one pair.

    `seconds` is the time of a training with its switch, with what failed switches cost where the
    strategy tells it, else at the pace of its runs; infinite if unknown. `runs` includes those with
    the first protocol alone, `paid_seconds` is what the runs cost that were made for this pair.
    """

    identity: ScheduledJob
    found: Decided | Dropped
    seconds: float
    runs: int
    paid_seconds: float

    @property
    def name(self) -> str:
        return self.identity.pair


@dataclass(frozen=True, slots=True)
class PairsResult:
    """The outcome of each pair, in the order of the tries, and the result of the best one."""

    pairs: tuple[PairOutcome, ...]
    best: SearchResult


def best_of(pairs: Sequence[PairOutcome]) -> PairOutcome | None:
    """Returns the fastest pair that keeps the accuracy, the first one of nearly equal ones."""
    best = None
    for pair in pairs:
        if isinstance(pair.found, Decided) and (
            best is None or _is_preferred(pair.seconds, best.seconds)
        ):
            best = pair
    return best


PairToSearch = tuple[ScheduledJob, SearchPlan, Callable[[], Trainer]]


def search_pairs(
    database: Database, pairs: Sequence[PairToSearch], **options: Unpack[LoopOptions]
) -> PairsResult:
    """Finds the fastest pair that keeps the accuracy, and publishes its policy only.

    The same call goes on where an interrupted one stopped, shares the work with others, or answers
    at once: all decisions follow from the runs that each pair's search asked for, in their order.

    All pairs have the same first protocol, and the first pair is searched to its end. Raises as
    `Search`.
    """
    outcomes: list[PairOutcome] = []
    reporter = options.get("reporter") or Reporter()
    first, plan, _ = pairs[0]
    study = options["study"] = study_name(first, plan)
    for pair in pairs:
        reporter.on_next(pair[0].pair)
        search = _PairSearch(database, *pair, **options)
        search.best = best_of(outcomes)
        try:
            outcomes.append(search.run())
        except UnsuitableProtocolError as error:
            if not outcomes:
                raise
            refusal = reporter.words.say(error)
            refused = Dropped(0, BASELINE_PERCENT, math.inf, refusal=refusal)
            outcomes.append(PairOutcome(pair[0], refused, math.inf, 0, 0.0))
    best = best_of(outcomes)
    assert best is not None  # the first pair is never given up
    result = Search(database, *pairs[outcomes.index(best)], **options).run()
    why = {one.name: why_dropped(one, best) for one in outcomes if one is not best}
    TrialStore(database).drop(study, why)
    return PairsResult(tuple(outcomes), result)


class _PairSearch(TrialLoop[PairOutcome]):
    """The search of one pair, up to its answer or until it is given up; it publishes nothing.

    `best` is that of the pairs before it.
    """

    best: PairOutcome | None = None

    def move(self, state: SearchState) -> PairOutcome | PlannedTrial | Wait:
        self.report(state)
        conclusion = self._found(state)
        if conclusion is None:
            planned = state.plan
            assert not isinstance(planned, Decided)  # that is an outcome
            return planned
        if isinstance(conclusion, Dropped):
            seconds = conclusion.seconds
        else:
            seconds = _expected_seconds(conclusion, state.course.runs)
            seconds = math.inf if math.isnan(seconds) else seconds
        identity, rows = self._identity, state.own_rows.values()
        runs = total_cost(identity, rows).completed_runs
        made = (row for row in rows if row.job.second_protocol == identity.second_protocol)
        paid = total_cost(identity, made).paid_seconds
        return PairOutcome(identity, conclusion, seconds, runs, paid)

    def _found(self, state: SearchState) -> Decided | Dropped | None:
        """The first conclusion of its runs, in the order in which they were asked for."""
        if self.best is not None:
            runs = state.course.runs
            for end in range(1, len(runs) + 1):  # later looks, with more runs made, find the same
                lost = _dropped_after(state.measured_strategy, runs[:end], self.best.seconds)
                if lost is not None:
                    return lost
        decision = state.course.decision
        return decision if isinstance(decision, Decided) else None

    def is_decided(self) -> bool:
        with contextlib.suppress(UserError):  # the baseline diverged: the next look raises it
            return self._found(self.study.read()) is not None
        return False
