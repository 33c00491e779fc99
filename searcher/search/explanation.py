"""Why a search gave its answer, and what would change it: values, rows and sentences.

Nothing of this is stored: the strategy is asked again with the runs that it had. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import asked_trials
from syncswitch.searcher.strategies.progress import SwitchPointBelief
from syncswitch.searcher.words import measured_threshold_text, percent_text, sentence
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT

# Only a few further runs are considered.
_MOST_FURTHER_RUNS = 3
# Loss of an imagined run that fails, in beta: clearly too much, but not so much that it is odd.
_FAILING_LOSS = 2.0


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """One run of a search, and the belief after it.

    Attributes:
        run: The run.
        beliefs: The belief about each switch point, ascending; empty while nothing can be compared.
    """

    run: Observation
    beliefs: tuple[SwitchPointBelief, ...]


@dataclass(frozen=True, slots=True)
class Untried:
    """A switch point that the search could have run and never did.

    Attributes:
        switch_percent: The switch point.
        good_probability: See `SwitchPointBelief`; None without a belief.
        why: The reason: `later` than an answer for the bare switch, so it saves less; `budget`: it
            is spent; `price`: a run costs more than it promises; `order`: a strategy without a
            belief did not lead there; `open`: the search goes on.
    """

    switch_percent: float
    good_probability: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """Further runs that would change the answer.

    Attributes:
        switch_percent: The switch point of these runs.
        runs: Their number; they are all alike.
        accuracy: The accuracy of each.
        fails: Whether they lose too much; otherwise they reach the target.
        answer_percent: The answer after them.
        next_percent: Switch point of the next run after them; None if the search would end.
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
        strategy: The search's strategy, with its threshold.
        runs: The runs that count, in the order in which they were asked for.
        answer: The answer if the search ended now; None without a target.
        is_decided: Whether it needs no further run.
        untried: Switch points without a run, ascending.
        changes: For each switch point considered, the fewest further runs that change the answer.
        threshold_is_measured: Whether the threshold was measured, because none was given.
    """

    strategy: Strategy
    runs: tuple[ExplainedRun, ...]
    answer: Decided | None
    is_decided: bool
    untried: tuple[Untried, ...]
    changes: tuple[Change, ...]
    threshold_is_measured: bool = False

    @property
    def beliefs(self) -> tuple[SwitchPointBelief, ...]:
        """The belief after the last run."""
        return self.runs[-1].beliefs if self.runs else ()

    @property
    def answer_belief(self) -> SwitchPointBelief | None:
        """The belief about the answer; None if there is none."""
        if self.answer is None:
            return None
        percent = self.answer.switch_percent
        return next((one for one in self.beliefs if one.switch_percent == percent), None)


def explain(strategy: Strategy, runs: Iterable[Observation]) -> Explanation:
    """Explains a search by asking its strategy after each run, and with further, imagined runs.

    Raises:
        UserError: The baseline diverged, so nothing can be compared.
    """
    made = tuple(runs)
    answer = strategy.standing_answer(made)
    return Explanation(
        strategy=strategy.with_measured_threshold(made),
        runs=tuple(
            ExplainedRun(run, strategy.beliefs(made[: number + 1]))
            for number, run in enumerate(made)
        ),
        answer=answer,
        is_decided=isinstance(strategy.decide(made), Decided),
        untried=() if answer is None else tuple(_untried(strategy, made, answer)),
        changes=() if answer is None else tuple(_changes(strategy, made, answer)),
        threshold_is_measured=strategy.threshold_runs > 0,
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
    """Imagines failures at the answer and later, and successes earlier."""
    if not strategy.beliefs(runs):
        return  # further runs mean nothing to the strategy
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
    """Returns the fewest runs at a switch point that change the answer; None if three do not."""
    loss = _FAILING_LOSS * strategy.with_measured_threshold(runs).threshold if fails else 0.0
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


_NO_BELIEFS = "This strategy decides by the mean of a fixed number of runs and believes nothing."

_WHY_UNTRIED = {
    "later": "later than the answer, so a switch there saves less",
    "budget": "the search's budget was spent",
    "price": "a run there costs more than it promises to save",
    "order": "the search's halving did not lead there",
    "open": "not yet",
}


def belief_cells(why: Explanation, number: int, metric: Metric) -> list[tuple[str, str]]:
    """Returns a table row: the run with this number, from 0, and the belief after it."""
    one = why.runs[number]
    likely = {belief.switch_percent: belief.good_probability for belief in one.beliefs}
    return [
        ("run", str(number + 1)),
        ("switch at", percent_text(one.run.switch_percent)),
        (metric.name, _measured_text(one, metric)),
        *(
            (percent_text(percent), _percent(likely[percent]) if percent in likely else "-")
            for percent in _shown_percents(why)
        ),
    ]


def belief_sentence(why: Explanation) -> str:
    """Returns what the columns of the belief mean."""
    good = "a switch there keeps the accuracy often enough"
    if _is_guarded(why):
        good = "guarded trainings with a switch there save time"
    return f"How likely {good}, as believed after each run."


def _certainty_sentence(why: Explanation, first: str, metric: Metric) -> str:
    """Returns how certain one more run with the answer is; empty without a belief."""
    belief = why.answer_belief
    if belief is None:
        return ""
    ends = [metric.limited(one) for one in (belief.low_accuracy, belief.high_accuracy)]
    ends.sort(key=metric.value)
    between = " and ".join(map(metric.text, ends))
    threshold = metric.with_unit(f"{why.strategy.threshold:g}")
    within = f"within {threshold} of {first}'s mean {metric.name}"
    return (
        f"One more run {_with_switch(belief.switch_percent, first)} ends between {between} with"
        f" 90 %, and {within} with {_percent(belief.kept_share)}."
    )


def _untried_sentences(why: Explanation) -> list[str]:
    """Returns which switch points were never run, in a sentence for each reason."""
    by_reason: dict[str, list[Untried]] = {}
    for one in why.untried:
        by_reason.setdefault(one.why, []).append(one)
    return [
        f"Never tried: {_and(list(map(_untried_text, group)))}: {_WHY_UNTRIED[reason]}."
        for reason, group in by_reason.items()
    ]


def _change_sentences(why: Explanation, first: str, metric: Metric) -> list[str]:
    """Returns what would move the answer; empty without an answer or a belief."""
    if why.answer is None or not why.beliefs:
        return []
    if not why.changes:
        return ["None of the further runs that were considered would change the answer."]
    return [_change_text(change, first, metric) for change in why.changes]


def why_sentences(why: Explanation, first: str, metric: Metric) -> list[str]:
    """Returns sentences for everything that is not in the rows."""
    if why.answer is None:
        return ["There is no answer yet: no run has been measured that it could be compared with."]
    said = []
    if why.threshold_is_measured:
        said.append(sentence(measured_threshold_text(why.strategy.threshold, metric, first)))
    if not why.beliefs:
        return [*said, _NO_BELIEFS, *_untried_sentences(why)]
    if certain := _certainty_sentence(why, first, metric):
        said.append(certain)
    return [*said, *_untried_sentences(why), *_change_sentences(why, first, metric)]


def why_as_json(why: Explanation) -> dict[str, Any]:
    """Returns the whole explanation for JSON."""
    return {
        "runs": [
            {
                "trial_number": one.run.trial_number,
                "switch_percent": one.run.switch_percent,
                "replicate": one.run.replicate,
                "accuracy": one.run.accuracy,
                "diverged": one.run.diverged,
                "beliefs": list(map(asdict, one.beliefs)),
            }
            for one in why.runs
        ],
        "threshold": why.strategy.threshold,
        "threshold_is_measured": why.threshold_is_measured,
        "answer_percent": None if why.answer is None else why.answer.switch_percent,
        "is_decided": why.is_decided,
        "never_tried": list(map(asdict, why.untried)),
        "changes": list(map(asdict, why.changes)),
    }


def _shown_percents(why: Explanation) -> list[float]:
    """Returns switch points with runs, the answer, and their neighbours, as grids may be long."""
    grid = sorted(belief.switch_percent for belief in why.beliefs)
    shown = {one.run.switch_percent for one in why.runs}
    if why.answer is not None:
        shown.add(why.answer.switch_percent)
    near = {place + aside for place, p in enumerate(grid) if p in shown for aside in (-1, 0, 1)}
    shown = {grid[place] for place in near if 0 <= place < len(grid)}
    # A guarded search believes that a switch saves time against the first protocol alone.
    return sorted(shown - {BASELINE_PERCENT} if _is_guarded(why) else shown)


def _is_guarded(why: Explanation) -> bool:
    return getattr(why.strategy, "guarded", False)


def _measured_text(one: ExplainedRun, metric: Metric) -> str:
    if one.run.diverged:
        return "diverged"
    return "alarm" if one.run.alarmed else metric.text(one.run.accuracy)


def _untried_text(one: Untried) -> str:
    good = one.good_probability
    likely = "" if good is None else f" ({_percent(good)} likely)"
    return f"{percent_text(one.switch_percent)}{likely}"


def _change_text(change: Change, first: str, metric: Metric) -> str:
    is_one = change.runs == 1
    runs = "One more run" if is_one else f"{change.runs} more runs"
    value = metric.text(change.accuracy)
    if change.fails:
        does = f"{'that fails' if is_one else 'all failing'} ({metric.name} {value})"
    else:
        reaches = "that reaches" if is_one else "all reaching"
        does = f"{reaches} the target ({value})"
    at = _with_switch(change.switch_percent, first)
    answer = _named(change.answer_percent, first)
    onward = ""
    if change.next_percent is not None:
        onward = f", and the search would go on at {percent_text(change.next_percent)}"
    return f"{runs} {at} {does} would move the answer to {answer}{onward}."


def _with_switch(percent: float, first: str) -> str:
    if percent >= BASELINE_PERCENT:
        return f"with {first} alone"
    return f"with the switch at {percent_text(percent)}"


def _named(percent: float, first: str) -> str:
    return f"{first} alone" if percent >= BASELINE_PERCENT else percent_text(percent)


def _percent(probability: float) -> str:
    return f"{100 * probability:.0f} %"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
