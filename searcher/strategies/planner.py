"""The course of a search: the runs that it needs one after another, whichever searcher makes them.

Several searchers may make the runs of one search. So that they find what one alone would have found
with the same seeds, the strategy is walked through from the start and is told a result only once it
has asked for it. While results are missing, the walk goes on with likely ones, and a searcher that
has nothing better to do makes a run that is likely to be needed soon (a speculative run). Runs that
turn out not to be needed cost time, and change nothing.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from syncswitch.searcher.strategies.base import Decided, Decision, NextTrial, Strategy, Wait
from syncswitch.searcher.strategies.early_stopping import may_stop
from syncswitch.searcher.strategies.observation import Observation

Key = tuple[float, int]
"""Switch point and replicate of a run."""

# A run that is less likely to be needed is not worth a cluster.
_LEAST_PROBABILITY = 0.2
# Size of the tree of likely results; the least likely branches are left out.
_MOST_BRANCHES = 48


@dataclass(frozen=True, slots=True)
class SearchCourse:
    """The completed runs that a search needed, in the order in which it asked, and what follows."""

    runs: tuple[Observation, ...]
    decision: Decision


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A run that may begin now; a speculative one is only likely to be needed."""

    switch_percent: float
    replicate: int
    is_speculative: bool = False


def course_of(strategy: Strategy, finished: Iterable[Observation]) -> SearchCourse:
    """Walks through a search as far as its completed runs lead.

    Raises UserError if the baseline diverged.
    """
    return _walk(strategy, (), _by_key(finished))


def plan_trial(
    strategy: Strategy, finished: Iterable[Observation], in_flight: Iterable[Key] = ()
) -> PlannedTrial | Wait | Decided:
    """Returns what a free searcher does next, given the runs that are completed and under way.

    Without a budget it may be a run that is only likely to be needed. Raises UserError if the
    baseline diverged.
    """
    results, under_way = _by_key(finished), frozenset(in_flight)
    course = _walk(strategy, (), results)
    decision = course.decision
    if not isinstance(decision, NextTrial):
        return decision
    free = [key for key in asked_trials(strategy, course.runs, decision) if key not in under_way]
    missing = [key for key in free if key not in results]
    if missing:
        return PlannedTrial(*missing[0])
    # A budget covers the runs that are needed; others would come on top of it.
    likely = {} if strategy.has_budget else _likely_runs(strategy, course, results, under_way)
    if likely:
        # Of equally likely runs the lowest replicate, and then the cheaper one.
        key = min(likely, key=lambda key: (-round(likely[key], 6), key[1], key[0]))
        if likely[key] >= _LEAST_PROBABILITY:
            return PlannedTrial(*key, is_speculative=likely[key] < 1)
    return Wait(decision.switch_percent)


def _by_key(finished: Iterable[Observation]) -> dict[Key, Observation]:
    """The first run of each switch point and replicate; others have the same seed."""
    first_runs: dict[Key, Observation] = {}
    for run in sorted(finished, key=lambda run: run.trial_number):
        first_runs.setdefault((run.switch_percent, run.replicate), run)
    return first_runs


def _walk(
    strategy: Strategy, runs: tuple[Observation, ...], results: Mapping[Key, Observation]
) -> SearchCourse:
    while True:
        decision = decision_after(strategy, runs)
        if not isinstance(decision, NextTrial):
            return SearchCourse(runs, decision)
        asked = asked_trials(strategy, runs, decision)
        # In their order: one that diverges may end the switch point before the later ones.
        run = results.get(asked[0]) if asked else None
        if run is None:
            return SearchCourse(runs, decision)
        runs = (*runs, _as_alone(strategy, runs, run))


def asked_trials(strategy: Strategy, runs: Iterable[Observation], wanted: NextTrial) -> list[Key]:
    """Returns the runs that a strategy asks for: the first replicates that it has not seen."""
    percent = wanted.switch_percent
    seen = {run.replicate for run in runs if run.switch_percent == percent}
    unseen: Iterator[int] = (n for n in strategy.replicates(percent) if n not in seen)
    return [(percent, replicate) for replicate in itertools.islice(unseen, wanted.repeats)]


def _as_alone(strategy: Strategy, before: tuple[Observation, ...], run: Observation) -> Observation:
    """A run as a searcher alone would have made it, which might have stopped it."""
    if run.stopped_early or run.plateau_accuracy is None or run.diverged or run.is_recorded:
        return run
    measured = strategy.with_measured_threshold(before)
    if not may_stop(measured, run.switch_percent, before):
        return run
    return replace(run, accuracy=run.plateau_accuracy, plateau_accuracy=None, stopped_early=True)


def _likely_runs(
    strategy: Strategy,
    course: SearchCourse,
    results: Mapping[Key, Observation],
    under_way: frozenset[Key],
) -> dict[Key, float]:
    """Returns runs that nobody makes yet, and how likely each is to be needed.

    It expands a tree of what the runs under way may measure, the likeliest branches first. Each
    branch goes as far as to its first free runs.
    """
    likely: dict[Key, float] = defaultdict(float)
    order = itertools.count()
    branches = [(-1.0, next(order), course)]
    for _ in range(_MOST_BRANCHES):
        if not branches:
            break
        minus_probability, _, branch = heapq.heappop(branches)
        if not isinstance(branch.decision, NextTrial):
            continue
        asked = asked_trials(strategy, branch.runs, branch.decision)
        missing = [key for key in asked if key not in results]
        free = [key for key in missing if key not in under_way]
        for key in free:
            likely[key] -= minus_probability
        if free or not asked:
            continue
        percent = branch.decision.switch_percent
        for probability, accuracy in _outcomes(strategy, branch.runs, percent):
            imagined = {key: Observation(key[0], accuracy, replicate=key[1]) for key in missing}
            next_course = _walk(strategy, branch.runs, {**results, **imagined})
            heapq.heappush(branches, (minus_probability * probability, next(order), next_course))
    return likely


# A searcher that waits asks again and again, and replayed searches often begin alike.
@functools.lru_cache(maxsize=20_000)
def decision_after(strategy: Strategy, runs: tuple[Observation, ...]) -> Decision:
    """What a strategy decides; cached."""
    return strategy.decide(runs)


@functools.lru_cache(maxsize=20_000)
def _outcomes(
    strategy: Strategy, runs: tuple[Observation, ...], percent: float
) -> tuple[tuple[float, float], ...]:
    return tuple(strategy.outcomes(runs, percent))
