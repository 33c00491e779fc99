"""Why a search answered what it did, in rows and sentences; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from syncswitch.searcher.search.explanation import Change, ExplainedRun, Explanation, Untried
from syncswitch.searcher.words import percent_text
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT

NO_BELIEFS = "this strategy decides by the mean of a fixed number of runs and believes nothing"

_WHY_UNTRIED = {
    "later": "later than the answer, so a switch there saves less",
    "budget": "the search's budget was spent",
    "price": "a run there costs more than it promises to save",
    "order": "the search's halving did not lead there",
    "open": "not yet",
}


def belief_columns(why: Explanation, metric: Metric) -> tuple[str, ...]:
    """Of `belief_cells`."""
    return ("run", "switch at", metric.name, *map(percent_text, shown_percents(why)))


def belief_cells(why: Explanation, number: int, metric: Metric) -> list[str]:
    """A row: the run with this number, from 0, and what was believed after it."""
    one = why.runs[number]
    likely = {belief.switch_percent: belief.good_probability for belief in one.beliefs}
    found = [likely.get(percent) for percent in shown_percents(why)]
    return [
        str(number + 1),
        percent_text(one.run.switch_percent),
        measured_text(one, metric),
        *("-" if good is None else _percent(good) for good in found),
    ]


def belief_sentence(why: Explanation) -> str:
    """What the columns of the beliefs say."""
    good = "a switch there keeps the accuracy often enough"
    if _is_guarded(why):
        good = "guarded trainings with a switch there save time"
    return f"How likely {good}, as believed after each run."


def certainty_sentence(why: Explanation, first: str, metric: Metric) -> str:
    """How sure one more run with the answer is; empty where nobody says."""
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


def untried_sentences(why: Explanation) -> list[str]:
    """Which switch points were never run, and why; a sentence for each reason."""
    by_reason: dict[str, list[Untried]] = {}
    for one in why.untried:
        by_reason.setdefault(one.why, []).append(one)
    return [
        f"Never tried: {_and(list(map(_untried_text, group)))}: {_WHY_UNTRIED[reason]}."
        for reason, group in by_reason.items()
    ]


def change_sentences(why: Explanation, first: str, metric: Metric) -> list[str]:
    """What would move the answer; empty without an answer or a belief."""
    if why.answer is None or not why.beliefs:
        return []
    if not why.changes:
        return ["No few further runs that were thought of would move the answer."]
    return [_change_text(change, first, metric) for change in why.changes]


def why_sentences(why: Explanation, first: str, metric: Metric) -> list[str]:
    """All that is not in the rows."""
    if why.answer is None:
        return ["There is no answer yet, and nothing that it could be held against."]
    if not why.beliefs:
        return [f"{NO_BELIEFS[0].upper()}{NO_BELIEFS[1:]}.", *untried_sentences(why)]
    certain = certainty_sentence(why, first, metric)
    rest = (*untried_sentences(why), *change_sentences(why, first, metric))
    return [*([certain] if certain else []), *rest]


def why_as_json(why: Explanation) -> dict[str, Any]:
    """All of it for programs."""
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
        "answer_percent": None if why.answer is None else why.answer.switch_percent,
        "is_decided": why.is_decided,
        "never_tried": list(map(asdict, why.untried)),
        "changes": list(map(asdict, why.changes)),
    }


def shown_percents(why: Explanation) -> list[float]:
    """Those with runs, the answer, and the next one on either side: a long grid is too wide."""
    grid = sorted(belief.switch_percent for belief in why.beliefs)
    shown = {one.run.switch_percent for one in why.runs}
    if why.answer is not None:
        shown.add(why.answer.switch_percent)
    near = {place + aside for place, p in enumerate(grid) if p in shown for aside in (-1, 0, 1)}
    shown = {grid[place] for place in near if 0 <= place < len(grid)}
    # What a guarded search believes of a switch is that it saves time against the first protocol.
    return sorted(shown - {BASELINE_PERCENT} if _is_guarded(why) else shown)


def _is_guarded(why: Explanation) -> bool:
    return getattr(why.strategy, "guarded", False)


def measured_text(one: ExplainedRun, metric: Metric) -> str:
    """What a run measured, for people."""
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
