"""Reads and writes injections such as `kill:worker=1,at=30%`; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from syncswitch.storage.errors import UserError

USAGES: Mapping[str, str] = {
    "straggler": "straggler:worker=2,at=20%,for=100s,delay=30ms[,times=4,every=10%]"
    " (or slowdown=2, for delay)",
    "kill": "kill:worker=1,at=30%[,for=3s] or kill:ps[=1],at=50% or kill:chief,at=50%",
    "hang": "hang:worker=1,at=30% or hang:ps[=1],at=30%",
}
"""The syntax of each kind, for messages."""

_ROLES = {
    "straggler": ("worker",),
    "kill": ("worker", "ps", "chief"),
    "hang": ("worker", "ps"),
}
_TARGETS = {"worker": "worker=NUMBER", "ps": "ps[=NUMBER]"}
_STRENGTHS = ("delay", "slowdown")
_OPTIONS = {
    "straggler": ("at", "for", *_STRENGTHS, "times", "every"),
    "kill": ("at", "for"),
    "hang": ("at",),
}
_NUMBER = re.compile(r"[0-9]{1,10}(\.[0-9]{1,20})?")
_LARGEST = 1e9
_MOST_TIMES = 1_000
_DECIMALS = 9  # of what is recorded: a nanosecond


@dataclass(frozen=True, slots=True)
class Extent:
    """A moment or a length, in a part of the job or in training time.

    Attributes:
        value: At most 9 decimals count.
        is_percent: Percent of W worker-steps; else seconds.
    """

    value: float
    is_percent: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", round(self.value, _DECIMALS))

    @property
    def text(self) -> str:
        """Its canonical form."""
        return f"{_decimal(self.value)}%" if self.is_percent else _seconds_text(self.value)


@dataclass(frozen=True, slots=True)
class Injection:
    """A deliberate disturbance.

    Attributes:
        kind: `straggler`, `kill` (SIGKILL) or `hang` (SIGSTOP).
        role: The part that it happens to: `worker`, `ps` or `chief`.
        at: Its first beginning.
        worker: Number of the worker, from 0; None for another role.
        lasting: Its length; None where it does not end by itself.
        delay_seconds: Time added to each worker-step.
        slowdown: Factor on the duration of each worker-step.
        times: Number of occurrences.
        every: Distance between beginnings, in the unit of `at`; None where it happens once.
        server: Number of the parameter server, from 0; 0 for another role.
    """

    kind: str
    role: str
    at: Extent
    worker: int | None = None
    lasting: Extent | None = None
    delay_seconds: float = 0.0
    slowdown: float = 1.0
    times: int = 1
    every: Extent | None = None
    server: int = 0

    @property
    def text(self) -> str:
        """Its canonical form, which is recorded, and reads back as the same."""
        number = self.server or None if self.worker is None else self.worker
        target = self.role if number is None else f"{self.role}={number}"
        parts = [f"{self.kind}:{target}", f"at={self.at.text}"]
        if self.lasting is not None:
            parts.append(f"for={self.lasting.text}")
        if self.delay_seconds:
            parts.append(f"delay={_seconds_text(self.delay_seconds)}")
        if self.slowdown != 1.0:
            parts.append(f"slowdown={_decimal(self.slowdown)}")
        if self.every is not None:
            parts += [f"times={self.times}", f"every={self.every.text}"]
        return ",".join(parts)

    @property
    def beginnings(self) -> tuple[Extent, ...]:
        """The beginning of each occurrence."""
        step = 0.0 if self.every is None else self.every.value
        return tuple(
            Extent(self.at.value + turn * step, self.at.is_percent) for turn in range(self.times)
        )


def parse_injection(text: str) -> Injection:
    """Reads one injection.

    Raises:
        UserError: It is not valid.
    """
    kind, _, rest = (part.strip() for part in text.lower().partition(":"))
    if kind not in USAGES:
        raise UserError(f"injection {text!r}: it begins with none of {', '.join(USAGES)}")
    try:
        target, *options = (part.strip() for part in rest.split(","))
        role, number = _target(kind, target)
        found = _injection(kind, role, number if role == "worker" else None, _pairs(kind, options))
        return replace(found, server=number or 0) if role == "ps" else found
    except ValueError as error:
        raise UserError(f"injection {text!r}: {error}; write it as {USAGES[kind]}") from error


def parse_seconds(text: str, name: str) -> float:
    """Reads a time that is not zero.

    Raises:
        ValueError: It is not valid.
    """
    extent = _extent(text, name)
    if extent.is_percent:
        raise ValueError(f"{name}={text} must be a time such as 30ms or 1.5s")
    return _positive(extent, name).value


def _target(kind: str, text: str) -> tuple[str, int | None]:
    role, equals, number = (part.strip() for part in text.partition("="))
    allowed = _ROLES[kind]
    # Without a number it is the first parameter server, mostly the only one.
    numbers = {"worker": (True,), "ps": (True, False)}.get(role, (False,))
    if role not in allowed or bool(equals) not in numbers:
        names = " or ".join(_TARGETS.get(one, one) for one in allowed)
        raise ValueError(f"it happens to {text!r}, which must be {names}")
    return role, _whole(number, role, 0, 99_999) if equals else None


def _pairs(kind: str, parts: Iterable[str]) -> dict[str, str]:
    allowed = _OPTIONS[kind]
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in allowed or not equals or not value:
            raise ValueError(f"{part!r} is no option of it; it has {', '.join(allowed)}")
        if name in found:
            raise ValueError(f"{name}= is given twice")
        found[name] = value
    return found


def _injection(kind: str, role: str, worker: int | None, options: dict[str, str]) -> Injection:
    if "at" not in options:
        raise ValueError("at= is missing")
    at = _extent(options["at"], "at")
    lasting = _positive(_extent(options["for"], "for"), "for") if "for" in options else None
    if kind != "straggler":
        if lasting is not None and role != "worker":
            raise ValueError("for= says how long a killed worker is away; leave it out")
        injection = Injection(kind, role, at, worker, lasting)
    else:
        if lasting is None:
            raise ValueError("for= is missing")
        injection = _straggler(worker, at, lasting, options)
    last = injection.beginnings[-1]
    if last.is_percent and last.value >= 100:
        raise ValueError(f"the last time, at {last.text}, it begins after the end of the job")
    return injection


def _straggler(
    worker: int | None, at: Extent, lasting: Extent, options: dict[str, str]
) -> Injection:
    given = [name for name in _STRENGTHS if name in options]
    if len(given) != 1:
        raise ValueError("it needs delay= or slowdown=")
    times, every = _repeats(at, lasting, options)
    return Injection(
        "straggler",
        "worker",
        at,
        worker,
        lasting,
        delay_seconds=parse_seconds(options["delay"], "delay") if "delay" in options else 0.0,
        slowdown=_slowdown(options["slowdown"]) if "slowdown" in options else 1.0,
        times=times,
        every=every,
    )


def _repeats(at: Extent, lasting: Extent, options: Mapping[str, str]) -> tuple[int, Extent | None]:
    if ("times" in options) != ("every" in options):
        raise ValueError("times= and every= go together")
    if "times" not in options:
        return 1, None
    times = _whole(options["times"], "times", 2, _MOST_TIMES)
    every = _positive(_extent(options["every"], "every"), "every")
    if every.is_percent != at.is_percent:
        raise ValueError(f"at={at.text} and every={every.text} must both be percents or both times")
    if every.is_percent == lasting.is_percent and lasting.value > every.value:
        raise ValueError(f"for={lasting.text} is longer than every={every.text}")
    return times, every


def _extent(text: str, name: str) -> Extent:
    for unit, factor in (("%", 1.0), ("ms", 0.001), ("s", 1.0)):
        number = text.removesuffix(unit).strip()
        if text.endswith(unit) and _NUMBER.fullmatch(number):
            extent = Extent(float(number) * factor, unit == "%")
            if extent.value <= (100.0 if extent.is_percent else _LARGEST):
                return extent
    raise ValueError(
        f"{name}={text} must be a percent of the job such as 20%, or a time such as 12s or 500ms"
    )


def _positive(extent: Extent, name: str) -> Extent:
    if extent.value <= 0:
        raise ValueError(f"{name}={extent.text} must be more than 0")
    return extent


def _slowdown(text: str) -> float:
    value = round(float(text), _DECIMALS) if _NUMBER.fullmatch(text) else 0.0
    if not 1 < value <= _LARGEST:
        raise ValueError(f"slowdown={text} must be a number above 1, such as 2")
    return value


def _whole(text: str, name: str, least: int, most: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise ValueError(f"{name}={text} must be a whole number from {least} to {most}")
    return int(text)


def _seconds_text(seconds: float) -> str:
    return f"{_decimal(seconds * 1000)}ms" if 0 < seconds < 1 else f"{_decimal(seconds)}s"


def _decimal(value: float) -> str:
    return f"{value:.{_DECIMALS}f}".rstrip("0").rstrip(".")
