"""The metric that decides about a job: its direction, range and unit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

ACCURACY_NAME = "accuracy"
MetricGoal = Literal["max", "min"]
"""Whether more of a metric is better, or less."""

GOALS = get_args(MetricGoal)


class GoalWords(NamedTuple):
    """How people speak of the values of a metric that has this goal.

    `0.9 or {better}`, `up to 0.1 {worse}`, `the {worst} accepted`, `0.1 {worse_side} the target`,
    `it {worsened} to 0.8`, `it is still {improving}`.
    """

    better: str
    worse: str
    worst: str
    worse_side: str
    worsened: str
    improving: str


_WORDS = {
    "max": GoalWords("more", "less", "least", "below", "fell", "rising"),
    "min": GoalWords("less", "more", "most", "above", "rose", "falling"),
}

AccuracyRange = tuple[float | None, float | None]
"""Least and largest possible accuracy; None for no limit."""

USUAL_THRESHOLD = 0.01
"""The default threshold of metrics whose best value is 1."""

WORST = -1e30
"""Accuracy of a run that measured none, for a metric without a worst value."""

_LARGE, _SMALL = 100.0, 0.01

VALUE_NAMES: Mapping[str, str] = {
    "accuracy": "value",
    "converged_accuracy": "converged_value",
    "final_accuracy": "final_value",
    "high_accuracy": "high_value",
    "low_accuracy": "low_value",
    "lower_accuracy": "lower_value",
    "mean_accuracy": "mean_value",
    "mean_final_accuracy": "mean_final_value",
    "plateau_accuracy": "plateau_value",
    "target_accuracy": "target_value",
    "upper_accuracy": "upper_value",
}
"""The columns that hold accuracies, and those beside them with values in the metric's unit."""

# Where less is better, the lower end of an interval of values is the upper end of accuracies.
_OTHER_ENDS = {
    "high_accuracy": "low_accuracy",
    "low_accuracy": "high_accuracy",
    "lower_accuracy": "upper_accuracy",
    "upper_accuracy": "lower_accuracy",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric that the runs of a job are compared by.

    Everything that compares runs uses their *accuracy*, of which more is always better: the value
    of the metric, or its negative if less of the metric is better. So only this class knows about
    directions.
    """

    COLUMNS: ClassVar[Mapping[str, str]] = {
        "name": "metric",
        "goal": "metric_goal",
        "unit": "metric_unit",
        "lowest": "metric_lowest",
        "highest": "metric_highest",
    }

    name: Annotated[str, "Name for people, such as `accuracy` or `MeanAbsoluteError`."] = (
        ACCURACY_NAME
    )
    goal: Annotated[str, "`max` if more is better, or `min`."] = "max"
    unit: Annotated[str | None, "Unit of its values; None for none."] = None
    lowest: Annotated[float | None, "Least possible value; None for no limit."] = 0.0
    highest: Annotated[float | None, "Largest possible value; None for no limit."] = 1.0

    @property
    def is_less_better(self) -> bool:
        """True if `goal` is `min`."""
        return self.goal == "min"

    @property
    def words(self) -> GoalWords:
        """How people speak of its values."""
        return _WORDS[self.goal]

    @property
    def has_usual_threshold(self) -> bool:
        """Whether a hundredth is a small amount of it, as more is better and 1 is the best."""
        return (self.goal, self.highest) == ("max", 1.0)

    @property
    def usual_threshold(self) -> float:
        """The accuracy that may be lost by default; 0 where that has to be measured."""
        return USUAL_THRESHOLD if self.has_usual_threshold else 0.0

    def accuracy(self, value: float) -> float:
        """Converts a value in the metric's unit to an accuracy."""
        # The sum makes 0.0 of -0.0.
        return 0.0 - value if self.is_less_better else value

    def value(self, accuracy: float) -> float:
        """Converts an accuracy back to a value in the metric's unit."""
        return self.accuracy(accuracy)

    @property
    def accuracies(self) -> AccuracyRange:
        """Its possible accuracies."""
        if not self.is_less_better:
            return self.lowest, self.highest
        return (
            None if self.highest is None else 0.0 - self.highest,
            None if self.lowest is None else 0.0 - self.lowest,
        )

    @property
    def worst_accuracy(self) -> float:
        """The accuracy of a run that measured none."""
        least, _ = self.accuracies
        return WORST if least is None else least

    def is_possible(self, accuracy: float) -> bool:
        """Returns whether an accuracy is finite and in the metric's range."""
        least, largest = self.accuracies
        is_above = least is None or accuracy >= least
        return math.isfinite(accuracy) and is_above and (largest is None or accuracy <= largest)

    @property
    def range_text(self) -> str:
        """The possible values, for example `from 0 to 1`, `0 or more`."""
        if self.lowest is None:
            return "any number" if self.highest is None else f"{self.highest:g} or less"
        if self.highest is None:
            return f"{self.lowest:g} or more"
        return f"from {self.lowest:g} to {self.highest:g}"

    @property
    def title(self) -> str:
        """Heading of an axis or column of its values, for example `mae in km`."""
        return f"{self.name} in {self.unit}" if self.unit else self.name

    @property
    def axis_title(self) -> str:
        """The title, with the direction if less is better."""
        return f"{self.title} (less is better)" if self.is_less_better else self.title

    @property
    def with_article(self) -> str:
        """The name with its article, for example `an accuracy`, `a loss`, `an MAE`."""
        # Capitals are spelled: an MAE, an R2, a UAR.
        is_spelled = self.name[:2].isupper() or self.name[1:2].isdigit()
        vowels = "AEFHILMNORSX" if is_spelled else "AEIOaeiou"
        return f"{'an' if self.name[:1] in vowels else 'a'} {self.name}"

    def lose_at_most(self, threshold: float) -> str:
        """Describes what good runs do: `lose at most 0.01 of it`, `are at most 2 km worse`."""
        amount = self.with_unit(f"{threshold:g}")
        return (
            f"are at most {amount} worse" if self.is_less_better else f"lose at most {amount} of it"
        )

    def limited(self, accuracy: float) -> float:
        """Returns the possible accuracy that is nearest to this one."""
        return possible_accuracy(accuracy, self.accuracies)

    @property
    def naming(self) -> dict[str, str | None]:
        """The columns that describe it in rows for programs."""
        return {"metric": self.name, "metric_goal": self.goal, "metric_unit": self.unit}

    def with_values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Adds the metric's own values to a row for programs, beside its accuracies.

        See `VALUE_NAMES`.
        """
        values = dict(row)
        if "accuracies" in row:
            values["values"] = [self.value(one) for one in row["accuracies"]]
        for name in (one for one in row if one in VALUE_NAMES):
            is_turned = self.is_less_better and name in _OTHER_ENDS
            accuracy = row[_OTHER_ENDS[name] if is_turned else name]
            values[VALUE_NAMES[name]] = None if accuracy is None else self.value(accuracy)
        return values

    def document(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Adds the metric's own values to a document for JSON, in all of its parts.

        If less is better, they take the place of the accuracies: nobody reads -0.43 as a loss.
        """
        return {
            name: self._part(value)
            for name, value in self.with_values(content).items()
            if not (self.is_less_better and (name == "accuracies" or name in VALUE_NAMES))
        }

    def _part(self, content: Any) -> Any:
        if isinstance(content, Mapping):
            return self.document(content)
        is_list = isinstance(content, list | tuple)
        return list(map(self._part, content)) if is_list else content

    def text(self, accuracy: float) -> str:
        """Formats an accuracy as a value of the metric, for example `0.9132`, `12.5 km`."""
        return self.amount(self.value(accuracy))

    def amount(self, value: float) -> str:
        """Formats a value, or the difference of two, with the metric's unit."""
        return self.with_unit(self.number(value))

    def number(self, value: float) -> str:
        """Formats a value without its unit, for a column or axis whose heading has it."""
        if abs(value) >= _LARGE:
            return f"{value:,.6g}"
        is_small = 0 < abs(value) < _SMALL and not self.has_usual_threshold
        return f"{value:.3g}" if is_small else f"{value:.4f}"

    def with_unit(self, number: str) -> str:
        """Appends the unit to a formatted number."""
        return f"{number} {self.unit}" if self.unit else number


@dataclass(frozen=True, slots=True)
class DescribedMetric:
    """The metric of a job, as its model describes it; a `Metric` but for its name."""

    COLUMNS: ClassVar[Mapping[str, str]] = {**Metric.COLUMNS, "description": "metric"}

    description: Annotated[
        str | None, "Its name, or how it is made as canonical JSON; None if unknown."
    ]
    goal: Annotated[str, "`max` if more of the metric is better, or `min`."] = "max"
    unit: Annotated[str | None, "Unit of the metric; None for none."] = None
    lowest: Annotated[float | None, "Least possible value of the metric; None for no limit."] = 0.0
    highest: Annotated[float | None, "Largest possible value of the metric; None for no limit."] = (
        1.0
    )

    @property
    def metric(self) -> Metric:
        """The metric by its name."""
        name = metric_name(self.description)
        return Metric(name, self.goal, self.unit, self.lowest, self.highest)


def possible_accuracy(accuracy: float, limits: AccuracyRange) -> float:
    """Returns the accuracy within the limits that is closest to this one."""
    least, largest = limits
    accuracy = accuracy if least is None else max(least, accuracy)
    return accuracy if largest is None else min(largest, accuracy)


def metric_name(description: str | None) -> str:
    """Returns the name in a job's description of its metric, for example `AUC`.

    It is `accuracy` if the description does not say.
    """
    if description is None or not description.startswith("{"):
        return description or ACCURACY_NAME
    try:
        known = json.loads(description)
        # With several outputs, the description also says which one it is for.
        return shown_name(str(known["class"])) if "class" in known else metric_name(known["metric"])
    except (ValueError, KeyError):
        return ACCURACY_NAME


_ACCURACIES = ("Accuracy", "BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy")


def shown_name(kind: str) -> str:
    """Returns the name of a class of metrics for people: those that Keras calls accuracy are."""
    return ACCURACY_NAME if kind in _ACCURACIES else kind
