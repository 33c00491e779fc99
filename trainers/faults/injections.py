"""Reads and writes injections such as `kill:worker=1,at=30%`, and the paper's scenarios; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from syncswitch.storage.errors import OptionHint, Part, UserError


class _Kind(NamedTuple):
    usage: str
    roles: tuple[str, ...]
    options: tuple[str, ...]


_KINDS = {
    "straggler": _Kind(
        "straggler:worker=2,at=20%,for=100s,delay=30ms (or slowdown=2 instead of delay)",
        ("worker",),
        ("at", "for", "delay", "slowdown"),
    ),
    "kill": _Kind(
        "kill:worker=1,at=30%[,for=3s] or kill:ps[=1],at=50% or kill:chief,at=50%",
        ("worker", "ps", "chief"),
        ("at", "for"),
    ),
    "hang": _Kind("hang:worker=1,at=30% or hang:ps[=1],at=30%", ("worker", "ps"), ("at",)),
}
_TARGETS = {"worker": "worker=NUMBER", "ps": "ps[=NUMBER]", "chief": "chief"}
_NUMBER = "[0-9]{1,10}(?:[.][0-9]{1,20})?"
_LARGEST = 1e9
_LARGEST_NUMBER = 99_999
_DECIMALS = 9  # a nanosecond


class _Scenario(NamedTuple):
    stragglers: int
    occurrences: int
    delay_seconds: float


SCENARIOS: Mapping[str, _Scenario] = {
    "mild": _Scenario(stragglers=1, occurrences=1, delay_seconds=0.010),
    "moderate": _Scenario(stragglers=2, occurrences=4, delay_seconds=0.030),
}
"""Scenarios of the Sync-Switch paper's evaluation of its online policies."""

_KILLS = {"kill:worker", "kill:ps", "kill:chief"}
_FAILURES = _KILLS | {"hang:worker", "hang:ps"}
_FAILURES_OF = {
    "in-process": {"kill:worker", "kill:chief"},
    "processes": _FAILURES,
    "tf-config": {"kill:chief"},
    "ray": _FAILURES,
    "simulated": {"kill:worker"},
}
"""The failures that each launcher can cause; one of another package ends processes."""

_REFUSALS = {
    "simulated": "a simulated cluster only supports stragglers and kill:worker",
    "tf-config": "the processes of TF_CONFIG's cluster belong to the platform that started them",
}


@dataclass(frozen=True, slots=True)
class Extent:
    """A moment or a length, as a share of the job or as training time."""

    value: float  # rounded to 9 decimals
    # Whether the value is a percentage of W worker-steps; otherwise it is in seconds.
    is_percent: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", round(self.value, _DECIMALS))

    @property
    def text(self) -> str:
        return f"{_decimal(self.value)}%" if self.is_percent else _seconds_text(self.value)


@dataclass(frozen=True, slots=True)
class Injection:
    """A deliberate disturbance."""

    kind: str  # `straggler`, `kill` (SIGKILL) or `hang` (SIGSTOP)
    role: str  # the part that is disturbed: `worker`, `ps` or `chief`
    at: Extent  # when it begins
    number: int = 0  # index of the worker or parameter server, from 0; 0 for the chief
    lasting: Extent | None = None  # how long it lasts; None if it does not end by itself
    delay_seconds: float = 0.0  # time added to each worker-step
    slowdown: float = 1.0  # factor on the duration of each worker-step

    @property
    def worker(self) -> int | None:
        """Index of the worker; None for the other roles."""
        return self.number if self.role == "worker" else None

    @property
    def text(self) -> str:
        """The canonical form, which is recorded and reads back as an equal injection."""
        has_number = self.role == "worker" or self.number > 0
        target = f"{self.role}={self.number}" if has_number else self.role
        text = f"{self.kind}:{target},at={self.at.text}"
        if self.lasting is not None:
            text += f",for={self.lasting.text}"
        if self.delay_seconds:
            text += f",delay={_seconds_text(self.delay_seconds)}"
        if self.slowdown != 1.0:
            text += f",slowdown={_decimal(self.slowdown)}"
        return text


def parse_injection(text: str) -> Injection:
    """Reads one injection; raises UserError if it is not valid."""
    kind, _, rest = _tidy(text).partition(":")
    if kind not in _KINDS:
        raise UserError(
            f"injection {text!r}: it begins with none of {', '.join(_KINDS)}",
            code="parameter-invalid",
        )
    try:
        return _parsed(kind, rest)
    except ValueError as error:
        raise UserError(
            f"injection {text!r}: {error}; write it as {_KINDS[kind].usage}",
            code="parameter-invalid",
        ) from error


def injections(texts: Iterable[str], workers: int, switch_percent: float) -> tuple[Injection, ...]:
    """Reads the values of `--inject` in order; raises UserError for one that is not for the job."""
    parsed: list[Injection] = []
    for text in texts:
        name = _tidy(text).partition(":")[0]
        if name in _KINDS:
            parsed.append(parse_injection(text))
        elif name in SCENARIOS:
            parsed += _expanded(text, workers, switch_percent)
        else:
            raise UserError(
                parameter="inject",
                value=text,
                allowed=f"an injection such as kill:worker=1,at=30% (kinds: {', '.join(_KINDS)}),"
                f" or a scenario ({', '.join(SCENARIOS)})",
            )
    _check_workers(parsed, workers)
    return tuple(parsed)


def _expanded(text: str, workers: int, switch_percent: float) -> tuple[Injection, ...]:
    """The injections of one of the paper's scenarios, perhaps with another delay: `mild:delay=1s`.

    The paper gives times for its own jobs. Here the part before the switch is divided into as many
    equal stretches as there are occurrences, and the middle half of each is slow. The stragglers
    are the workers with the highest numbers, all at the same time.
    """
    name, colon, option = _tidy(text).partition(":")
    key, _, value = option.partition("=")
    if colon and key != "delay":
        raise UserError(
            f"there is no scenario {text!r}; write it as mild or moderate[:delay=100ms]",
            code="parameter-invalid",
        )
    scenario = SCENARIOS[name]
    try:
        delay_seconds = _delay(value) if colon else scenario.delay_seconds
    except ValueError as error:
        raise UserError(f"scenario {text!r}: {error}", code="parameter-invalid") from error
    if workers <= scenario.stragglers:
        raise UserError(
            f"scenario {text!r} makes {scenario.stragglers} of the workers slow, and there are"
            f" {workers}",
            remedy=OptionHint("workers", verb=f"use {scenario.stragglers + 1} or more"),
            code="parameter-invalid",
        )
    if switch_percent <= 0:
        raise UserError(
            f"scenario {text!r} comes before the switch, which is at 0 %; give injections such as"
            f" {_KINDS['straggler'].usage} instead",
            code="parameter-invalid",
        )
    stretch = switch_percent / scenario.occurrences
    return tuple(
        Injection(
            "straggler",
            "worker",
            Extent(stretch * (turn + 1 / 4), True),
            worker,
            Extent(stretch / 2, True),
            delay_seconds,
        )
        for worker in range(workers - scenario.stragglers, workers)
        for turn in range(scenario.occurrences)
    )


def check_injections(injections: Iterable[Injection], launcher: str, servers: int = 1) -> None:
    """Raises UserError if a cluster cannot carry one of the injections out.

    The launcher is a key of `_FAILURES_OF`, or one of another package.
    """
    for injection in injections:
        remedy: Part | tuple[Part, ...] = "leave it out"
        if injection.kind == "straggler":
            continue
        if f"{injection.kind}:{injection.role}" not in _FAILURES_OF.get(launcher, _KILLS):
            nobody = f"{launcher} has no process to {injection.kind}"
            problem = _REFUSALS.get(launcher, nobody)
            if launcher != "simulated":
                remedy = OptionHint("launcher", "processes", "use")
        elif injection.lasting is not None and launcher != "simulated":
            problem, remedy = "a real worker comes back as soon as it can", "leave for= out"
        elif injection.role == "ps" and injection.number >= servers:
            problem = f"the {servers} parameter servers are numbered from 0 to {servers - 1}"
            if servers == 1:
                problem = "there is one parameter server, ps=0"
            remedy = ("give another number", OptionHint("parameter_servers", verb="use more"))
        else:
            continue
        raise UserError(
            f"injection {injection.text!r} cannot be used: {problem}",
            remedy=remedy,
            code="parameter-invalid",
        )


def _check_workers(injections: Sequence[Injection], workers: int) -> None:
    taken: dict[Extent, set[int]] = {}
    for position, injection in enumerate(injections):
        if injection in injections[:position]:
            raise UserError(
                f"injection {injection.text!r} is given twice; leave one out",
                code="parameter-invalid",
            )
        if injection.worker is None:
            continue
        if injection.worker >= workers:
            raise UserError(
                f"injection {injection.text!r}: the {workers} workers are numbered from 0 to"
                f" {workers - 1}",
                code="parameter-invalid",
            )
        if injection.kind != "straggler":
            taken.setdefault(injection.at, set()).add(injection.worker)
    for at, gone in taken.items():
        if len(gone) == workers:
            raise UserError(
                f"takes all {workers} workers away at {at.text}",
                parameter="inject",
                remedy=("leave one of them", OptionHint("workers", verb="use more")),
            )


def _parsed(kind: str, rest: str) -> Injection:
    _, roles, allowed = _KINDS[kind]
    target, *settings = rest.split(",")
    role, equals, number = target.partition("=")
    # Without a number, ps is the first parameter server, often the only one.
    if role not in roles or role == ("chief" if equals else "worker"):
        names = " or ".join(map(_TARGETS.__getitem__, roles))
        raise ValueError(f"its target is {target!r}, which must be {names}")
    if equals and not (re.fullmatch("[0-9]{1,9}", number) and int(number) <= _LARGEST_NUMBER):
        raise ValueError(f"{target} must have a whole number from 0 to {_LARGEST_NUMBER}")
    options: dict[str, str] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in allowed or not value:
            raise ValueError(f"{setting!r} is not one of its options {', '.join(allowed)}")
        if name in options:
            raise ValueError(f"{name}= is given twice")
        options[name] = value
    is_straggler = kind == "straggler"
    for name in ("at", "for") if is_straggler else ("at",):
        if name not in options:
            raise ValueError(f"{name}= is missing")
    if is_straggler and ("delay" in options) == ("slowdown" in options):
        raise ValueError("it needs either delay= or slowdown=")
    if "for" in options and role != "worker":
        raise ValueError("for= says how long a killed worker is away; leave it out")
    at = _extent("at", options["at"])
    if at.is_percent and at.value >= 100:
        raise ValueError(f"at={at.text} is the end of the job")
    slowdown = 1.0
    if text := options.get("slowdown"):
        slowdown = round(float(text), _DECIMALS) if re.fullmatch(_NUMBER, text) else 0.0
        if not 1 < slowdown <= _LARGEST:
            raise ValueError(f"slowdown={text} must be a number above 1, such as 2")
    return Injection(
        kind,
        role,
        at,
        int(number or 0),
        _positive("for", options["for"]) if "for" in options else None,
        delay_seconds=_delay(options["delay"]) if "delay" in options else 0.0,
        slowdown=slowdown,
    )


def _tidy(text: str) -> str:
    return re.sub(r"\s*([:,=])\s*", r"\1", text.strip().lower())


def _extent(name: str, text: str) -> Extent:
    if match := re.fullmatch(rf"({_NUMBER})\s*(%|ms|s)", text):
        value, unit = float(match[1]), match[2]
        extent = Extent(value * 0.001 if unit == "ms" else value, unit == "%")
        if extent.value <= (100.0 if extent.is_percent else _LARGEST):
            return extent
    raise ValueError(
        f"{name}={text} must be a percentage of the job such as 20%, or a time such as 12s or 500ms"
    )


def _positive(name: str, text: str) -> Extent:
    extent = _extent(name, text)
    if extent.value <= 0:
        raise ValueError(f"{name}={extent.text} must be more than 0")
    return extent


def _delay(text: str) -> float:
    extent = _positive("delay", text)
    if extent.is_percent:
        raise ValueError(f"delay={text} must be a time such as 30ms or 1.5s")
    return extent.value


def _seconds_text(seconds: float) -> str:
    return f"{_decimal(seconds * 1000)}ms" if 0 < seconds < 1 else f"{_decimal(seconds)}s"


def _decimal(value: float) -> str:
    return f"{value:.{_DECIMALS}f}".rstrip("0").rstrip(".")
