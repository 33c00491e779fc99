"""Why a search gave its answer: values, rows and sentences.

Nothing of this is stored: the strategy is asked again with the runs that it had. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy, SwitchPointBelief
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.words import (
    measured_threshold_text,
    other_jobs_text,
    percent_text,
    sentence,
)
from syncswitch.storage.policies.second_phases import RecordedPhase, recorded_phase
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.job import OWN_MOMENTUM, OWN_OPTIMIZER
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """One run of a search, and the belief about each switch point after it.

    They are ascending; there are none while nothing can be compared.
    """

    run: Observation
    beliefs: tuple[SwitchPointBelief, ...]


@dataclass(frozen=True, slots=True)
class Untried:
    """A switch point that the search could have run and never did.

    `good_probability` is that of `SwitchPointBelief`. The reasons: `later` than an answer without a
    guard, so it saves less; `budget`: it is spent; `price`: a run costs more than it promises;
    `order`: a strategy without a belief did not lead there; `open`: the search goes on.
    """

    switch_percent: float
    good_probability: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a search stands where it stands.

    Attributes:
        strategy: The search's strategy, with its threshold.
        runs: The runs that count, in the order in which they were asked for.
        answer: The answer if the search ended now; None without a target.
        is_decided: Whether it needs no further run.
        untried: Switch points without a run, ascending.
        allowed: How much accuracy may be lost, as the policy says it; a `strategy` for later runs
            has the threshold alone.
        own_jobs: Other jobs of the database that the first belief rests on, beside the recorded.
        tolerance: By these, switch points and the share of the jobs that tolerate a switch there;
            empty for a strategy without a belief.
        chosen: What runs found to be the fastest protocols of their cluster, with figures.
    """

    strategy: Strategy
    runs: tuple[ExplainedRun, ...]
    answer: Decided | None
    is_decided: bool
    untried: tuple[Untried, ...]
    allowed: AllowedLoss
    own_jobs: int = 0
    tolerance: tuple[tuple[float, float], ...] = ()
    chosen: tuple[str, ...] = ()

    @property
    def beliefs(self) -> tuple[SwitchPointBelief, ...]:
        """The belief after the last run."""
        return self.runs[-1].beliefs if self.runs else ()


def explain(strategy: Strategy, runs: Iterable[Observation]) -> Explanation:
    """Explains a search by asking its strategy after each run.

    Raises UserError if the baseline diverged, so that nothing can be compared.
    """
    made = tuple(runs)
    beliefs = [strategy.beliefs(made[:number]) for number in range(1, len(made) + 1)]
    answer, last = strategy.standing_answer(made), beliefs[-1] if beliefs else ()
    measured = strategy.with_measured_threshold(made)
    return Explanation(
        strategy=measured,
        runs=tuple(map(ExplainedRun, made, beliefs)),
        answer=answer,
        is_decided=isinstance(strategy.decide(made), Decided),
        untried=() if answer is None else tuple(_untried(strategy, made, answer, last)),
        allowed=measured.allowed,
    )


def _untried(
    strategy: Strategy,
    runs: Sequence[Observation],
    answer: Decided,
    beliefs: Iterable[SwitchPointBelief],
) -> Iterator[Untried]:
    likely = {one.switch_percent: one.good_probability for one in beliefs}
    now, unlimited = strategy.decide(runs), strategy.without_budget().decide(runs)
    tried = {run.switch_percent for run in runs}
    for percent in (percent for percent in strategy.grid() if percent not in tried):
        if not isinstance(now, Decided):
            why = "open"
        elif percent > answer.switch_percent and not strategy.is_guarded:
            why = "later"
        elif not likely:
            why = "order"
        else:
            why = "budget" if unlimited == NextTrial(percent) else "price"
        yield Untried(percent, likely.get(percent), why)


_NO_BELIEFS = "This strategy decides by the mean of a fixed number of runs, without probabilities."

_WHY_UNTRIED = {
    "later": "later than the answer, so a switch there saves less",
    "budget": "the search's budget was spent",
    "price": "a run there costs more than it promises to save",
    "order": "the search's halving did not lead there",
    "open": "not yet",
}


def belief_cells(why: Explanation, number: int, metric: Metric) -> list[tuple[str, str]]:
    """A table row: the run with this number, from 0, and the belief after it."""
    explained = why.runs[number]
    likely = {belief.switch_percent: belief.good_probability for belief in explained.beliefs}
    measured = "alarm" if explained.run.alarmed else metric.text(explained.run.accuracy)
    return [
        ("run", str(number + 1)),
        ("switch at", percent_text(explained.run.switch_percent)),
        (metric.name, "diverged" if explained.run.diverged else measured),
        *(
            (percent_text(percent), _percent(likely[percent]) if percent in likely else "-")
            for percent in _shown_percents(why)
        ),
    ]


def _shown_percents(why: Explanation) -> list[float]:
    """Switch points with runs, the answer, and their neighbours, as grids may be long."""
    grid = sorted(belief.switch_percent for belief in why.beliefs)
    shown = {one.run.switch_percent for one in why.runs}
    if why.answer is not None:
        shown.add(why.answer.switch_percent)
    near = {place + aside for place, p in enumerate(grid) if p in shown for aside in (-1, 0, 1)}
    shown = {grid[place] for place in near if 0 <= place < len(grid)}
    # A guarded search believes that a switch saves time against the first protocol alone.
    return sorted(shown - {BASELINE_PERCENT} if why.strategy.is_guarded else shown)


def belief_sentence(why: Explanation) -> str:
    """The meaning of the columns of the belief."""
    good = "a switch there keeps the accuracy often enough"
    if why.strategy.is_guarded:
        good = "guarded runs with a switch there save time"
    return f"The probability after each run that {good}."


def why_sentences(
    why: Explanation, first: str, metric: Metric, second_protocol: str = ""
) -> list[str]:
    """Sentences for everything that is not in the rows; the second protocol as it is recorded."""
    said = [_tolerance_text(why, first)] if why.tolerance else []
    if (phase := _recorded_phase(why, second_protocol)) is not None:
        said.append(_phase_text(phase, first))
    said += [f"A run compared the protocols at its switch: {one}." for one in why.chosen]
    if why.answer is None:
        begins = "This job has not confirmed it" if why.tolerance else "There is no answer yet"
        return [*said, f"{begins}: no run of {first} alone is there to compare with."]
    threshold, percent = why.strategy.threshold, why.answer.switch_percent
    if why.allowed.is_from_runs:
        said.append(sentence(measured_threshold_text(why.allowed, metric, first)))
    if not why.beliefs:
        said.append(_NO_BELIEFS)
    for belief in (one for one in why.beliefs if one.switch_percent == percent):
        is_alone = percent >= BASELINE_PERCENT
        at = f"with {first} alone" if is_alone else f"with the switch at {percent_text(percent)}"
        ends = [metric.limited(one) for one in (belief.low_accuracy, belief.high_accuracy)]
        between = " and ".join(map(metric.text, sorted(ends, key=metric.value)))
        within = f"within {metric.with_unit(f'{threshold:g}')} of {first}'s mean {metric.name}"
        said.append(
            f"One more run {at} ends between {between} with a probability of 90 %, and {within}"
            f" with one of {_percent(belief.kept_share)}."
        )
    for reason in dict.fromkeys(one.why for one in why.untried):
        group = [_untried_text(one) for one in why.untried if one.why == reason]
        listed = " and ".join(filter(None, [", ".join(group[:-1]), group[-1]]))
        said.append(f"Never tried: {listed}: {_WHY_UNTRIED[reason]}.")
    return said


def _tolerance_text(why: Explanation, first: str) -> str:
    from syncswitch.searcher.strategies.adaptive.guesses import PANEL_JOBS, RECORDED_JOBS

    has_optimizers = why.strategy.momentum_rule == OWN_OPTIMIZER
    rule, names = (OWN_OPTIMIZER, PANEL_JOBS) if has_optimizers else (None, RECORDED_JOBS)
    shares = ", ".join(
        f"{_percent(share)} at {percent_text(percent)}"
        for percent, share in why.tolerance
        if percent < BASELINE_PERCENT
    )
    jobs = other_jobs_text(why.own_jobs, rule, names)
    return (
        f"Jobs that keep the accuracy nearly as often as with {first} alone, as expected before the"
        f" first run from {jobs}: {shares}."
    )


def _recorded_phase(why: Explanation, second_protocol: str) -> RecordedPhase | None:
    rule = why.strategy.momentum_rule
    if rule in (None, OWN_OPTIMIZER):
        return None
    return recorded_phase(second_protocol, owns_momentum=rule == OWN_MOMENTUM)


def _phase_text(phase: RecordedPhase, first: str) -> str:
    shares = ", ".join(
        f"{_percent(phase.mean_kept_share(percent))} "
        + (f"with {first} alone" if percent >= BASELINE_PERCENT else f"at {percent_text(percent)}")
        for percent in sorted(phase.kept_shares)
    )
    return (
        f"{phase.jobs} recorded jobs with this second phase kept the accuracy without a guard in"
        f" these shares of {phase.runs} runs each: {shares} ({phase.provenance})."
    )


def _untried_text(untried: Untried) -> str:
    good = untried.good_probability
    return percent_text(untried.switch_percent) + (
        "" if good is None else f" ({_percent(good)} likely)"
    )


def _percent(probability: float) -> str:
    return f"{100 * probability:.0f} %"


def why_as_json(why: Explanation) -> dict[str, Any]:
    """The whole explanation for JSON."""
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
        "threshold_is_measured": why.allowed.is_from_runs,
        "answer_percent": None if why.answer is None else why.answer.switch_percent,
        "is_decided": why.is_decided,
        "other_jobs": {"own": why.own_jobs, "bearing": [list(one) for one in why.tolerance]},
        "chosen": list(why.chosen),
        "never_tried": list(map(asdict, why.untried)),
    }
