"""Parses what a training command reports, line by line; pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncswitch.storage.errors import UserError

_LONGEST_QUOTE = 80
_ALLOWED = 'give lines such as {"step": 100, "seconds": 12.5, "accuracy": 0.91}'


@dataclass(frozen=True, slots=True)
class Report:
    """One line of results.

    Attributes:
        step: Of the command, from 0; None where a line says only that the training diverged.
        seconds: Training time since the start; None where the clock on the wall has to do.
        accuracy: Test accuracy, 0 to 1; None where the line says only how far the training is.
        loss: Training loss; NaN where nobody says it.
        diverged: Whether the training blew up.
    """

    step: int | None
    seconds: float | None = None
    accuracy: float | None = None
    loss: float = math.nan
    diverged: bool = False


ParseLine = Callable[[str], Report | None]
"""Reads a line; None for one that says nothing. Raises ValueError, which says what is wrong."""


def parse_json(line: str) -> Report | None:
    """Reads a line of a metric file: a JSON object; further keys are ignored.

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
    return _report(content)


def compile_pattern(text: str) -> re.Pattern[str]:
    """A regular expression with the groups `step` and `accuracy`, perhaps `seconds` and `loss`.

    The accuracy may also be a `percent`.
    """
    example = r"such as 'step (?P<step>\d+) accuracy (?P<accuracy>\S+)'"
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UserError(
            f"--metric-pattern {text!r} is no regular expression: {error}; give one {example}"
        ) from error
    named = {"accuracy" if name == "percent" else name for name in pattern.groupindex}
    missing = [name for name in ("step", "accuracy") if name not in named]
    if missing:
        raise UserError(
            f"--metric-pattern {text!r} has no group named {' and none named '.join(missing)};"
            f" give one {example}"
        )
    return pattern


def parse_pattern(pattern: re.Pattern[str]) -> ParseLine:
    """Reads lines of output; one that does not match says nothing."""

    def parse(line: str) -> Report | None:
        found = pattern.search(line)
        if found is None:
            return None
        texts = {name: text for name, text in found.groupdict().items() if text is not None}
        values = {name: _number(name, text) for name, text in texts.items()}
        if (percent := values.pop("percent", None)) is not None:
            values["accuracy"] = percent / 100
        return _report(values)

    return parse


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if name == "step" else float(text)
    except ValueError as error:
        raise ValueError(f"{name} is {_quoted(text)}, which is no number") from error


def _report(content: dict[str, Any]) -> Report | None:
    # A line about something else altogether.
    if not {"step", "accuracy", "diverged"} & content.keys():
        return None
    accuracy, loss = _value(content, "accuracy"), _value(content, "loss")
    diverged = content.get("diverged", False)
    if not isinstance(diverged, bool):
        raise ValueError(f"diverged is {diverged!r}; give true or false")
    known = [one for one in (accuracy, loss) if one is not None]
    diverged = diverged or not all(map(math.isfinite, known))
    if not diverged and accuracy is not None and not 0 <= accuracy <= 1:
        raise ValueError(
            f"accuracy is {accuracy:g}; give a number from 0 to 1, or in a --metric-pattern a group"
            " named percent instead"
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
    return Report(step, seconds, accuracy, math.nan if loss is None else loss, diverged)


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
