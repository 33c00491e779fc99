"""The interface of strategies: what they see, and what they answer.

A strategy is the offline timing policy as a pure function, from observations to the next run or the
answer. It has no state and looks at the whole history on every call, so whoever holds the history
can go on with the search.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from typing_extensions import Self

from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.strategies.observation import SHARES, Observation, mean_accuracy, width_of
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.metric import USUAL_THRESHOLD, AccuracyRange, Metric
from syncswitch.storage.records.policy import Promise


@dataclass(frozen=True, slots=True)
class NextTrial:
    """Runs at this switch point are needed now: `repeats` of them whatever they measure.

    One that diverges may end them.
    """

    switch_percent: float
    repeats: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Wait:
    """No run can be begun: those needed at this switch point are under way, or all are made."""

    switch_percent: float


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer.

    Attributes:
        switch_percent: The switch point of the timing policy.
        target_accuracy: A, the accuracy that candidates were compared with; None where nothing has
            measured it yet, and all shares are those that are expected of such jobs.
        promise: What is expected of later runs with it.
    """

    switch_percent: float
    target_accuracy: float | None
    promise: Promise = Promise()  # noqa: RUF009 (it is frozen)


Decision = NextTrial | Wait | Decided
Outcomes = Sequence[tuple[float, float]]
"""Likely results of a run: probabilities, which sum to 1, each with its accuracy."""


@dataclass(frozen=True, slots=True)
class SwitchPointSummary:
    """The completed runs that count at one switch point, and what they measured.

    Whether the accuracy is good enough (`accepted`) is None while that is open.
    """

    switch_percent: float
    runs: int
    diverged_runs: int
    mean_accuracy: float | None
    standard_deviation: float | None
    accepted: bool | None


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is.

    Attributes:
        summaries: One for each switch point reached, in the order of the search.
        lower_percent: The highest switch point known to be too early, or the lower end.
        upper_percent: The lowest switch point known to be acceptable.
        target_accuracy: A; None until the baseline is measured.
        open_percent: The switch point being measured; None once decided.
    """

    summaries: tuple[SwitchPointSummary, ...]
    lower_percent: float
    upper_percent: float
    target_accuracy: float | None
    open_percent: float | None


@dataclass(frozen=True, slots=True)
class SwitchPointBelief:
    """The belief about one switch point.

    Attributes:
        good_probability: Probability that guarded runs with it take less time than with the
            first protocol alone; without a guard, that enough of them keep the accuracy.
        kept_share: Probability that one more run loses at most beta.
        low_accuracy: Lower end of the range in which nine of ten further runs end.
        high_accuracy: Upper end of that range.
    """

    switch_percent: float
    good_probability: float
    kept_share: float
    low_accuracy: float
    high_accuracy: float


def summary_of(
    percent: float, runs: Sequence[Observation], accepted: bool | None
) -> SwitchPointSummary:
    """Sums up the runs of a switch point; `accepted` is the strategy's verdict."""
    accuracies = [run.accuracy for run in runs]
    return SwitchPointSummary(
        switch_percent=percent,
        runs=len(runs),
        diverged_runs=sum(run.diverged for run in runs),
        mean_accuracy=mean_accuracy(runs) if runs else None,
        standard_deviation=_standard_deviation(accuracies),
        accepted=accepted,
    )


def _standard_deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    # `statistics.stdev` works with fractions, which is slow, and replays ask 100,000 times.
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


@dataclass(frozen=True, slots=True)
class Strategy(ABC):
    """Decides on the runs of a search.

    Completed runs come in any order; those at other switch points are ignored. What is asked of
    them raises UserError if the baseline diverged, so that there is nothing to compare with, or if
    its runs do not differ, so that no threshold can be measured.

    Attributes:
        name: The strategy's name in policies and studies.
        judges_single_runs: Whether each run keeps the accuracy or fails; otherwise means are
            compared.
        halvings: M, how often the range of switch points may be halved.
        runs: R, the most runs of a switch point.
        threshold: beta, the accuracy that may be lost; 0 until it is measured.
        target_accuracy: A; None to measure it with runs of the first protocol alone.
        share_prefix: Whether runs start from checkpoints of other runs of their replicate.
        early_stop: Whether runs end as soon as their accuracy is known.
        lowest_percent: Lower end of the search.
        highest_percent: Upper end, which stands for the first protocol alone.
        accuracy_range: Least and largest possible accuracy; None for no limit. If less is better,
            accuracies are the metric's negatives; see `storage.records.metric`.
        threshold_runs: Number of first runs, all of the first protocol alone, in which the
            threshold is measured; 0 if it was given.
    """

    name: ClassVar[str]
    judges_single_runs: ClassVar[bool] = False

    halvings: int = 5
    runs: int = 5
    threshold: float = USUAL_THRESHOLD
    target_accuracy: float | None = None
    share_prefix: bool = False
    early_stop: bool = False
    lowest_percent: float = 0.0
    highest_percent: float = 100.0
    accuracy_range: AccuracyRange = SHARES
    threshold_runs: int = 0

    @property
    @abstractmethod
    def most_runs(self) -> int:
        """Number of runs of the longest search in which none diverges."""

    @property
    def repeats(self) -> int | None:
        """Runs of every switch point; None if that depends on what they measure."""
        return None

    def runs_at(self, percent: float) -> int | None:
        """Returns the runs of one switch point, unless one diverges; None as for `repeats`."""
        return self.repeats

    def measured_by(self, metric: Metric) -> Self:
        """Returns this strategy for a job with this metric, given a target in the metric's unit.

        Raises UserError if the metric cannot have this target.
        """
        value = self.target_accuracy
        target = None if value is None else metric.accuracy(value)
        if target is not None and not metric.is_possible(target):
            raise UserError(
                f"give a value that {metric.name} can have, {metric.range_text}",
                parameter="target_accuracy",
                value=value,
            )
        return replace(self, accuracy_range=metric.accuracies, target_accuracy=target)

    @property
    def allowed(self) -> AllowedLoss:
        """The accuracy that may be lost, of `threshold` and `threshold_runs`."""
        return AllowedLoss(self.threshold, self.threshold_runs)

    def with_allowed(self, allowed: AllowedLoss) -> Self:
        """Returns this strategy for another loss."""
        return replace(self, threshold=allowed.threshold, threshold_runs=allowed.runs)

    def with_measured_threshold(self, finished: Iterable[Observation]) -> Self:
        """Returns this strategy with its threshold, measured in these runs if that is necessary.

        It is 0 as long as they are too few. Runs count in the order in which the strategy asks for
        them, so the threshold never changes. Raises UserError as `measured_threshold`.
        """
        if not self.allowed.is_from_runs:
            return self
        runs = {
            run.replicate: run for run in finished if run.switch_percent == self.highest_percent
        }
        asked = map(runs.get, self.replicates(self.highest_percent))
        made = itertools.takewhile(lambda run: run is not None, asked)
        sound = [run.accuracy for run in made if run is not None and not run.diverged]
        most = width_of(self.accuracy_range)
        found = measured_threshold(sound, most, self.allowed.runs) or 0.0
        return self.with_allowed(replace(self.allowed, threshold=found))

    def missing_for_threshold(self, finished: Iterable[Observation]) -> int:
        """Returns how many more runs of the first protocol alone the threshold needs."""
        sound = sum(
            run.switch_percent == self.highest_percent and not run.diverged for run in finished
        )
        return max(0, self.allowed.runs - sound)

    @property
    def largest_loss(self) -> float:
        """The most accuracy that a run can lose; a guess if there is no limit."""
        most = width_of(self.accuracy_range)
        return _LARGEST_LOSS * self.threshold if most is None else most

    @property
    def options(self) -> dict[str, Any]:
        """All attributes but `_OMITTED`, as JSON values.

        A search is stored with them, so that it stays what it was when a default changes.
        """
        kept = (field.name for field in fields(self) if field.name not in _OMITTED)
        values = {name: getattr(self, name) for name in kept}
        return {n: list(one) if isinstance(one, tuple) else one for n, one in values.items()}

    @property
    def given_options(self) -> dict[str, Any]:
        """Those of `options` that differ from their defaults, as after a command line."""
        given = {one.name for one in fields(self) if getattr(self, one.name) != one.default}
        return {name: value for name, value in self.options.items() if name in given}

    @abstractmethod
    def grid(self) -> tuple[float, ...]:
        """Returns all switch points that may be asked for, ascending."""

    def replicates(self, percent: float) -> Iterable[int]:
        """Returns the replicates that a switch point may have, in the order of their runs."""
        return itertools.count()

    @property
    def is_guarded(self) -> bool:
        """Whether it is about guarded runs."""
        return False

    @property
    def seeks_switch(self) -> bool:
        """Whether it looks for a switch point; else it makes the runs that it was given."""
        return True

    @property
    def has_budget(self) -> bool:
        """Whether its cost is limited."""
        return False

    @property
    def runs_to_come(self) -> int | None:
        """Number of later runs for which the search may pay; None where it does not ask."""
        return None

    @property
    def share_to_keep(self) -> float | None:
        """Share of later runs that shall keep the accuracy without a guard; None for all."""
        return None

    @property
    def momentum_rule(self) -> str | None:
        """The rule of the second phase by whose recorded jobs it believes; None without belief."""
        return None

    def without_budget(self) -> Strategy:
        """Returns this strategy with no limit of its cost."""
        return self

    def with_recorded(self, recorded: tuple[tuple[float, int], ...]) -> Strategy:
        """Returns this strategy where runs (switch point, replicate) cost nothing."""
        return self

    def halved_at_most(self, halvings: int) -> Strategy:
        """Returns this strategy with so many halvings, or its own if these are fewer."""
        return replace(self, halvings=min(self.halvings, halvings))

    def between(self, lowest_percent: float, highest_percent: float) -> Strategy:
        """Returns this strategy on another range of switch points."""
        return replace(self, lowest_percent=lowest_percent, highest_percent=highest_percent)

    def among(self, percents: Iterable[float]) -> Strategy:
        """Returns this strategy for jobs that can run only some switch points, as recordings can.

        It asks for those of repeated halving all the same.
        """
        return self

    def distinct(self, step_of: Callable[[float], int]) -> Strategy:
        """Returns this strategy with one switch point for each step; a long job has no others."""
        return self

    def without_going_back(self) -> Strategy:
        """Returns this strategy for trainings that begin anew if their switch fails."""
        return self

    def with_momentum(self, rule: str | None) -> Strategy:
        """Returns this strategy for jobs with this rule; see `momentum_after_switch` of a job."""
        return self

    @abstractmethod
    def decide(self, finished: Iterable[Observation]) -> Decision:
        """Returns what to do next; while runs are under way, `planner.plan_trial` does so."""

    def outcomes(self, finished: Iterable[Observation], percent: float) -> Outcomes:
        """Empty while the threshold is unknown, because all runs are needed until then."""
        finished = list(finished)
        if self.missing_for_threshold(finished):
            return []
        target = self.progress(finished).target_accuracy
        if target is None or percent == self.highest_percent:
            # Nothing is compared with it yet, so any accuracy does.
            return [(1.0, _ANY_ACCURACY if target is None else target)]
        threshold = self.with_measured_threshold(finished).threshold
        return [(0.5, target), (0.5, target - 2 * threshold)]

    def answers(self, finished: Iterable[Observation]) -> Mapping[float, float]:
        """Returns the probability that each switch point is the answer; empty if unknown."""
        return {}

    def beliefs(self, finished: Iterable[Observation]) -> tuple[SwitchPointBelief, ...]:
        """Returns the belief about each switch point, ascending; empty without target or belief."""
        return ()

    def standing_answer(self, finished: Iterable[Observation]) -> Decided | None:
        """Returns the answer if the search had to end now; None if there is none yet."""
        decision = self.decide(finished)
        return decision if isinstance(decision, Decided) else None

    @abstractmethod
    def progress(self, finished: Iterable[Observation]) -> SearchProgress:
        """Returns how far the search is."""


_ANY_ACCURACY = 0.5
_LARGEST_LOSS = 100.0  # in thresholds; the usual threshold of an accuracy is 1 % of its range
_OMITTED = {"halvings", "runs", "threshold", "target_accuracy", "lowest_percent", "highest_percent"}
