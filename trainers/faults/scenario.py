"""Reads `--inject`: an injection, a scenario of the paper, or a file of injections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syncswitch.storage.errors import UserError, one_line
from syncswitch.trainers.faults.grammar import (
    USAGES,
    Extent,
    Injection,
    parse_injection,
    parse_seconds,
)


class _Scenario(NamedTuple):
    stragglers: int
    occurrences: int
    delay_seconds: float


SCENARIOS: Mapping[str, _Scenario] = {
    "mild": _Scenario(stragglers=1, occurrences=1, delay_seconds=0.010),
    "moderate": _Scenario(stragglers=2, occurrences=4, delay_seconds=0.030),
}
"""Of the Sync-Switch paper's evaluation of its online policies."""

_NOT_OURS = "the processes of TF_CONFIG's cluster belong to whoever started them"
_USAGE = "mild or moderate[:by=proxy][,delay=100ms]"

# Which failures each launcher can cause, by kind and role.
_FAILURES = {
    "in-process": {("kill", "worker"), ("kill", "chief")},
    "processes": {("kill", "worker"), ("kill", "ps"), ("kill", "chief")}
    | {("hang", "worker"), ("hang", "ps")},
    "tf-config": {("kill", "chief")},
    "ray": {("kill", "worker"), ("kill", "ps"), ("kill", "chief")}
    | {("hang", "worker"), ("hang", "ps")},
    "simulated": {("kill", "worker")},
}


class _ScenarioFile(BaseModel):
    """Injections to be used together."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    description: str = ""
    injections: tuple[str, ...] = Field(min_length=1)


def injections(texts: Iterable[str], workers: int, switch_percent: float) -> tuple[Injection, ...]:
    """The injections that the texts of `--inject` mean for one job, in their order.

    Args:
        texts: Each is an injection, a scenario, or the path of a JSON file.
        workers: n.
        switch_percent: The paper's scenarios disturb the part of the job before this.
    """
    found = tuple(one for text in texts for one in _read(text.strip(), workers, switch_percent))
    _check_workers(found, workers)
    return found


def expand(text: str, workers: int, switch_percent: float) -> tuple[Injection, ...]:
    """A scenario of the paper as injections.

    The paper's times are those of its own jobs; here they are shares of the part before the switch:
    it is cut into as many parts as there are occurrences, and the middle half of each is slow. The
    workers with the highest numbers are the stragglers, all at the same time.

    Args:
        text: A name in `SCENARIOS`, or one with options: `moderate:by=proxy,delay=100ms`.
        workers: n.
        switch_percent: Where the switch is.
    """
    name, colon, rest = (part.strip() for part in text.lower().partition(":"))
    if name not in SCENARIOS:
        raise UserError(f"scenario {text!r} is not known; write it as {_USAGE}")
    scenario = SCENARIOS[name]
    try:
        by, delay_seconds = _scenario_options(rest if colon else None, scenario.delay_seconds)
    except ValueError as error:
        raise UserError(f"scenario {text!r}: {error}; write it as {_USAGE}") from error
    if workers <= scenario.stragglers:
        raise UserError(
            f"scenario {text!r} makes {scenario.stragglers} of the workers slow, and there are"
            f" {workers}; use {scenario.stragglers + 1} or more --workers"
        )
    if switch_percent <= 0:
        raise UserError(
            f"scenario {text!r} comes before the switch, which is at 0 %; give injections such as"
            f" {USAGES['straggler'].partition('[')[0]} instead"
        )
    share = switch_percent / scenario.occurrences
    repeats = scenario.occurrences > 1
    return tuple(
        Injection(
            "straggler",
            "worker",
            Extent(share / 4, True),
            worker,
            Extent(share / 2, True),
            by,
            delay_seconds,
            times=scenario.occurrences,
            every=Extent(share, True) if repeats else None,
        )
        for worker in range(workers - scenario.stragglers, workers)
    )


def check_injections(found: Iterable[Injection], launcher: str, servers: int = 1) -> None:
    """Refuses what a cluster of this kind cannot do.

    Args:
        found: What is to be injected.
        launcher: `in-process`, `processes`, `tf-config`, `ray` or `simulated`.
        servers: How many parameter servers it has.
    """
    for injection in found:
        problem = _problem_of(injection, launcher)
        if problem is None and injection.server >= servers:
            only = (
                "there is one parameter server, ps=0"
                if servers == 1
                else (f"the {servers} parameter servers are numbered from 0 to {servers - 1}")
            )
            problem = f"{only}; give another number, or more --parameter-servers"
        if problem is not None:
            raise UserError(f"injection {injection.text!r} cannot be used: {problem}")


def _read(text: str, workers: int, switch_percent: float) -> tuple[Injection, ...]:
    name = text.lower().partition(":")[0].strip()
    if name in USAGES:
        return (parse_injection(text),)
    if name in SCENARIOS:
        return expand(text, workers, switch_percent)
    if text.endswith(".json"):
        return _read_file(text)
    raise UserError(
        f"--inject is {text!r}: give an injection such as kill:worker=1,at=30% (kinds:"
        f" {', '.join(USAGES)}), a scenario ({', '.join(SCENARIOS)}), or a .json file of injections"
    )


def _read_file(path: str) -> tuple[Injection, ...]:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"scenario file {path!r} cannot be read ({error.strerror or one_line(error)});"
            ' give a JSON file such as {"injections": ["kill:worker=1,at=30%"]}'
        ) from error
    try:
        texts = _ScenarioFile.model_validate_json(content).injections
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = f"{place}: {first['msg']}".lstrip(": ")
        raise UserError(
            f'scenario file {path!r}: {message}; it is to be such as {{"description": "...",'
            ' "injections": ["kill:worker=1,at=30%"]}'
        ) from error
    try:
        return tuple(parse_injection(text) for text in texts)
    except UserError as error:
        raise UserError(f"scenario file {path!r}: {error}") from error


def _scenario_options(text: str | None, usual_delay_seconds: float) -> tuple[str, float]:
    by, delay_seconds = "thread", usual_delay_seconds
    for part in [] if text is None else text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name == "by" and value in ("thread", "proxy"):
            by = value
        elif name == "delay":
            delay_seconds = parse_seconds(value, "delay")
        else:
            raise ValueError(f"{part.strip()!r} is no option of it")
    return by, delay_seconds


def _check_workers(found: Sequence[Injection], workers: int) -> None:
    for position, injection in enumerate(found):
        if injection in found[:position]:
            raise UserError(f"injection {injection.text!r} is given twice; leave one out")
        if injection.worker is not None and injection.worker >= workers:
            raise UserError(
                f"injection {injection.text!r}: the {workers} workers are numbered from 0 to"
                f" {workers - 1}"
            )
    taken: dict[Extent, set[int]] = {}
    for injection in found:
        if injection.kind != "straggler" and injection.worker is not None:
            taken.setdefault(injection.at, set()).add(injection.worker)
    for at, gone in taken.items():
        if len(gone) == workers:
            raise UserError(
                f"--inject takes all {workers} workers away at {at.text}; leave one of them, or"
                " use more --workers"
            )


def _problem_of(injection: Injection, launcher: str) -> str | None:
    if injection.by is not None:
        if injection.by == "thread" or launcher != "in-process":
            return None
        return "workers in one process have no network; use by=thread, or --launcher processes"
    if (injection.kind, injection.role) not in _FAILURES[launcher]:
        if launcher == "simulated":
            return "a simulated cluster knows stragglers and kill:worker alone; leave it out"
        if launcher == "tf-config":
            return f"{_NOT_OURS}; use --launcher processes"
        return f"there is no process to {injection.kind}; use --launcher processes"
    if injection.lasting is not None and launcher != "simulated":
        return "a real worker comes back as soon as it can; leave out for="
    return None
