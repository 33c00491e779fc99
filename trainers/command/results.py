"""Parses what a training command reports, line by line; pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.trial import MOST_FURTHER

_ACCURACY = Metric()
_OWN_KEYS = ("step", "epoch", "seconds", "loss", "diverged")
_LARGEST = 1e300
_LONGEST_QUOTE = 80
_ALLOWED = 'give lines such as {"step": 100, "seconds": 12.5, "accuracy": 0.91}'


@dataclass(frozen=True, slots=True)
class Report:
    """One line of results.

    Attributes:
        step: Of the command, from 0; None where a line says only that the training diverged.
        seconds: Training time since the start; None where the clock on the wall has to do.
        accuracy: Of the test, as `Metric.accuracy` has it; None where the line says only how far
            the training is.
        loss: Training loss; NaN where nobody says it.
        diverged: Whether the training blew up.
        further: What else it measured, by name.
    """

    step: int | None
    seconds: float | None = None
    accuracy: float | None = None
    loss: float = math.nan
    diverged: bool = False
    further: Mapping[str, float] = field(default_factory=dict)


ParseLine = Callable[[str], Report | None]
"""Reads a line; None for one that says nothing. Raises ValueError, which says what is wrong."""


def parse_json(line: str, metric: Metric = _ACCURACY) -> Report | None:
    """Reads a line of a metric file: a JSON object with the metric under its name.

    Raises:
        ValueError: It is none, or a value is not as it has to be.
    """
    if not line.strip():
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {_quoted(line)}; {_ALLOWED}") from error
    if not isinstance(content, dict):
        raise ValueError(f"it is no JSON object: {_quoted(line)}; {_ALLOWED}")
    return _report(content, metric)


def compile_pattern(text: str, metric: Metric = _ACCURACY) -> re.Pattern[str]:
    """A regular expression with the groups `step` and `value`, perhaps `seconds` and `loss`.

    The value may also be in a group with the name of the metric, and an accuracy in `percent`.
    """
    name = metric.name if metric.name.isidentifier() else "value"
    example = rf"such as 'step (?P<step>\d+) {name} (?P<{name}>\S+)'"
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UserError(
            f"--metric-pattern {text!r} is no regular expression: {error}; give one {example}"
        ) from error
    same = {"value", *(["percent"] if metric.name == ACCURACY_NAME else [])}
    named = {name if group in same else group for group in pattern.groupindex}
    missing = [wanted for wanted in ("step", name) if wanted not in named]
    if missing:
        raise UserError(
            f"--metric-pattern {text!r} has no group named {' and none named '.join(missing)};"
            f" give one {example}"
        )
    return pattern


def parse_pattern(pattern: re.Pattern[str], metric: Metric = _ACCURACY) -> ParseLine:
    """Reads lines of output; one that does not match says nothing."""

    def parse(line: str) -> Report | None:
        found = pattern.search(line)
        if found is None:
            return None
        texts = {name: text for name, text in found.groupdict().items() if text is not None}
        values = {name: _number(name, text) for name, text in texts.items()}
        if metric.name == ACCURACY_NAME and (percent := values.pop("percent", None)) is not None:
            values["value"] = percent / 100
        if "value" in values:
            values[metric.name] = values.pop("value")
        return _report(values, metric)

    return parse


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if name == "step" else float(text)
    except ValueError as error:
        raise ValueError(f"{name} is {_quoted(text)}, which is no number") from error


def _report(content: dict[str, Any], metric: Metric) -> Report | None:
    # A line about something else altogether.
    if not {"step", metric.name, "diverged"} & content.keys():
        return None
    value, loss = _value(content, metric.name), _value(content, "loss")
    diverged = content.get("diverged", False)
    if not isinstance(diverged, bool):
        raise ValueError(f"diverged is {diverged!r}; give true or false")
    known = [one for one in (value, loss) if one is not None]
    diverged = diverged or not all(map(math.isfinite, known))
    accuracy = None if value is None else metric.accuracy(value)
    if not diverged and accuracy is not None and not metric.is_possible(accuracy):
        raise ValueError(
            f"{metric.name} is {value:g}; give a number {metric.range_text}, in a --metric-pattern"
            " a group named percent instead, or say with --metric-name what else it is"
        )
    seconds = _value(content, "seconds")
    if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"seconds is {seconds:g}; give the training time so far, 0 or more")
    step = content.get("step")
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if step is None and diverged:
        return Report(None, seconds, diverged=True)
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"step is {step!r}; give a whole number, 0 or more")
    return Report(
        step,
        seconds,
        accuracy,
        math.nan if loss is None else loss,
        diverged,
        _further(content, metric.name),
    )


def _further(content: dict[str, Any], name: str) -> dict[str, float]:
    """What else is a number; whatever a script adds for others is no mistake."""
    known = {*_OWN_KEYS, name}
    numbers = {
        other: float(value)
        for other, value in content.items()
        if other not in known
        and len(other) <= _LONGEST_QUOTE
        and isinstance(value, float | int)
        and not isinstance(value, bool)
        and abs(value) < _LARGEST
    }
    return dict(list(numbers.items())[:MOST_FURTHER])


def _value(content: dict[str, Any], name: str) -> float | None:
    value = content.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; give a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{name} is beyond all numbers; give a smaller one") from error


def _quoted(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")
