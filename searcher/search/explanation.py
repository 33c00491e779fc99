"""Why a search answered what it did: what was believed after each run, and what would change it.

Nothing of this is stored: the strategy is asked again, with the runs that it had. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import asked_trials
from syncswitch.searcher.strategies.progress import SwitchPointBelief

# Whoever asks what would change an answer means a run or a few.
_MOST_FURTHER_RUNS = 3
# What a further run loses that fails, in beta: clearly too much, and not so much that it is odd.
_FAILING_LOSS = 2.0


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """One run of a search, and what was believed of each switch point after it.

    Attributes:
        beliefs: Ascending; empty as long as nothing could be compared.
    """

    run: Observation
    beliefs: tuple[SwitchPointBelief, ...]


@dataclass(frozen=True, slots=True)
class Untried:
    """A switch point that the search might have run and never did.

    Attributes:
        good_probability: See `SwitchPointBelief`; None where nobody says.
        why: `later` than an answer for the bare switch, so it saves less; `budget`: it is spent;
            `price`: a run costs more than it promises; `order`: a strategy without a belief did not
            lead there; `open`: the search goes on.
    """

    switch_percent: float
    good_probability: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """Further runs that would give another answer.

    Attributes:
        switch_percent: Where they are.
        runs: So many, alike.
        accuracy: Of each.
        fails: It loses too much; else it measures the target.
        answer_percent: The answer after them.
        next_percent: Where the search would go on; None where it would end.
    """

    switch_percent: float
    runs: int
    accuracy: float
    fails: bool
    answer_percent: float
    next_percent: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a search stands where it stands.

    Attributes:
        strategy: The strategy that was asked.
        runs: Those that count, in the order in which they were asked for.
        answer: What it would answer if it ended now; None without a target.
        is_decided: It needs no further run.
        untried: Switch points without a run, ascending.
        changes: The fewest further runs of each kind that change the answer, of those thought of.
    """

    strategy: Strategy
    runs: tuple[ExplainedRun, ...]
    answer: Decided | None
    is_decided: bool
    untried: tuple[Untried, ...]
    changes: tuple[Change, ...]

    @property
    def beliefs(self) -> tuple[SwitchPointBelief, ...]:
        """After the last run."""
        return self.runs[-1].beliefs if self.runs else ()

    @property
    def answer_belief(self) -> SwitchPointBelief | None:
        """What is believed of the answer."""
        if self.answer is None:
            return None
        percent = self.answer.switch_percent
        return next((one for one in self.beliefs if one.switch_percent == percent), None)


def explain(strategy: Strategy, runs: Iterable[Observation]) -> Explanation:
    """Asks a strategy after each of its runs, and with further runs that nobody made.

    Args:
        strategy: That of the search.
        runs: The runs that it asked for, in that order.

    Raises:
        UserError: The baseline diverged, so nothing can be compared.
    """
    made = tuple(runs)
    answer = strategy.standing_answer(made)
    return Explanation(
        strategy=strategy,
        runs=tuple(
            ExplainedRun(run, strategy.beliefs(made[: number + 1]))
            for number, run in enumerate(made)
        ),
        answer=answer,
        is_decided=isinstance(strategy.decide(made), Decided),
        untried=() if answer is None else tuple(_untried(strategy, made, answer)),
        changes=() if answer is None else tuple(_changes(strategy, made, answer)),
    )


def _untried(strategy: Strategy, runs: Sequence[Observation], answer: Decided) -> Iterator[Untried]:
    tried = {run.switch_percent for run in runs}
    likely = {one.switch_percent: one.good_probability for one in strategy.beliefs(runs)}
    now, unlimited = strategy.decide(runs), _without_budget(strategy).decide(runs)
    is_guarded: bool = getattr(strategy, "guarded", False)
    for percent in strategy.grid():
        if percent in tried:
            continue
        if not isinstance(now, Decided):
            why = "open"
        elif percent > answer.switch_percent and not is_guarded:
            why = "later"
        elif not likely:
            why = "order"
        else:
            why = "budget" if unlimited == NextTrial(percent) else "price"
        yield Untried(percent, likely.get(percent), why)


def _without_budget(strategy: Strategy) -> Strategy:
    changes: dict[str, Any] = {"budget": None}
    return replace(strategy, **changes) if "budget" in strategy.options else strategy


def _changes(strategy: Strategy, runs: Sequence[Observation], answer: Decided) -> Iterator[Change]:
    """A failure of the answer and of what is later; a success of what is earlier."""
    if not strategy.beliefs(runs):
        return  # the strategy looks at no further runs
    tried = {run.switch_percent for run in runs}
    earlier = [p for p in strategy.grid() if p < answer.switch_percent]
    asked = sorted({*tried, answer.switch_percent, *earlier[-1:]}, reverse=True)
    for percent in asked:
        if percent >= strategy.highest_percent:
            continue
        change = _change(strategy, runs, answer, percent, percent >= answer.switch_percent)
        if change is not None:
            yield change


def _change(
    strategy: Strategy, runs: Sequence[Observation], answer: Decided, percent: float, fails: bool
) -> Change | None:
    """The fewest alike runs at a switch point that move the answer; None where three do not."""
    loss = _FAILING_LOSS * strategy.threshold if fails else 0.0
    accuracy = answer.target_accuracy - loss
    imagined = tuple(runs)
    for number in range(1, _MOST_FURTHER_RUNS + 1):
        key = asked_trials(strategy, imagined, NextTrial(percent))[0]
        trial_number = 1 + max((run.trial_number for run in imagined), default=-1)
        further = Observation(percent, accuracy, trial_number=trial_number, replicate=key[1])
        imagined = (*imagined, further)
        moved = strategy.standing_answer(imagined)
        if moved is not None and moved.switch_percent != answer.switch_percent:
            decision = strategy.decide(imagined)
            onward = decision.switch_percent if isinstance(decision, NextTrial) else None
            return Change(percent, number, accuracy, fails, moved.switch_percent, onward)
    return None
