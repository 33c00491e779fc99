"""The course of a search, run by run: what each measured, and what was known after it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import SearchInfo


@dataclass(frozen=True, slots=True)
class PathStep:
    """One run of a search, and what was known after it.

    Attributes:
        trial_number: In the search.
        switch_percent: Its switch point.
        replicate: Number of this repeat of the switch point, from 0.
        accuracy: Converged accuracy.
        diverged: Whether the training blew up.
        stopped_early: It was not made to its end.
        accepted: What the strategy thought of the switch point now; None while that was open.
        lower_percent: The highest switch point known to switch too early, or the lower end.
        upper_percent: The lowest switch point known to be acceptable.
        is_needed: The search asked for it; else it is speculative, and not asked for so far.
    """

    trial_number: int
    switch_percent: float
    replicate: int
    accuracy: float
    diverged: bool
    stopped_early: bool
    accepted: bool | None
    lower_percent: float
    upper_percent: float
    is_needed: bool


@dataclass(frozen=True, slots=True)
class SearchHistory:
    """How a search went so far.

    Attributes:
        steps: Its completed runs.
        trouble: Why it cannot go on; None where it can.
        target_accuracy: A, as far as it is known.
    """

    steps: tuple[PathStep, ...]
    trouble: str | None
    target_accuracy: float | None


def history_of(search: SearchInfo, finished: Sequence[Observation]) -> SearchHistory:
    """What a search did so far; `finished` as `read_observations` has it."""
    strategy = stored_strategy(search)
    trouble, target = None, search.target_accuracy
    try:
        needed = course_of(strategy, finished).runs
        target = strategy.progress(needed).target_accuracy
    except UserError as error:
        needed, trouble = tuple(finished), str(error)
    return SearchHistory(
        steps=_steps(strategy, finished, needed),
        trouble=trouble,
        target_accuracy=target,
    )


def _steps(
    strategy: Strategy, finished: Iterable[Observation], needed: tuple[Observation, ...]
) -> tuple[PathStep, ...]:
    """The runs in the order in which the search asked for them, then the speculative ones."""
    asked = {run.trial_number for run in needed}
    in_advance = [run for run in finished if run.trial_number not in asked]
    return (
        *(_step(strategy, needed[: n + 1], run, is_needed=True) for n, run in enumerate(needed)),
        *(_step(strategy, needed, run, is_needed=False) for run in in_advance),
    )


def _step(
    strategy: Strategy, known: tuple[Observation, ...], run: Observation, *, is_needed: bool
) -> PathStep:
    try:
        progress = strategy.progress(known)
    except UserError:  # the baseline diverged: nothing is known, and nothing will be
        accepted, bracket = None, (strategy.lowest_percent, strategy.highest_percent)
    else:
        verdicts = {one.switch_percent: one.accepted for one in progress.summaries}
        accepted = verdicts.get(run.switch_percent)
        bracket = (progress.lower_percent, progress.upper_percent)
    return PathStep(
        trial_number=run.trial_number,
        switch_percent=run.switch_percent,
        replicate=run.replicate,
        accuracy=run.accuracy,
        diverged=run.diverged,
        stopped_early=run.stopped_early,
        accepted=accepted,
        lower_percent=bracket[0],
        upper_percent=bracket[1],
        is_needed=is_needed,
    )


def kind_of(step: PathStep) -> str:
    """What a run was for the search: `target`, `accepted`, `rejected`, `open` or `speculative`."""
    if not step.is_needed:
        return "speculative"
    if step.switch_percent >= BASELINE_PERCENT:
        return "target"
    return {True: "accepted", False: "rejected", None: "open"}[step.accepted]
