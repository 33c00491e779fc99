"""Reads `--inject`: an injection, or a scenario of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from syncswitch.storage.errors import UserError
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
"""Scenarios of the Sync-Switch paper's evaluation of its online policies."""

_NOT_OURS = "the processes of TF_CONFIG's cluster belong to whoever started them"
_USAGE = "mild or moderate[:delay=100ms]"

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


def injections(texts: Iterable[str], workers: int, switch_percent: float) -> tuple[Injection, ...]:
    """Reads the texts of `--inject` for one job, in their order.

    Args:
        texts: Injections or scenarios.
        workers: n.
        switch_percent: The switch point; the paper's scenarios disturb the part before it.

    Raises:
        UserError: One is not valid for this job.
    """
    found = tuple(one for text in texts for one in _read(text.strip(), workers, switch_percent))
    _check_workers(found, workers)
    return found


def expand(text: str, workers: int, switch_percent: float) -> tuple[Injection, ...]:
    """The injections of one of the paper's scenarios.

    The paper gives times for its own jobs; here the part before the switch is cut into as many
    parts as there are occurrences, and the middle half of each is slow. The stragglers are the
    workers with the highest numbers, all at the same time.

    Args:
        text: A name in `SCENARIOS`, optionally with another delay: `moderate:delay=100ms`.
        workers: n.
        switch_percent: The switch point.

    Raises:
        UserError: There is no such scenario, or the job is not one for it.
    """
    name, colon, rest = (part.strip() for part in text.lower().partition(":"))
    if name not in SCENARIOS:
        raise UserError(f"scenario {text!r} is not known; write it as {_USAGE}")
    scenario = SCENARIOS[name]
    option, _, value = (part.strip() for part in rest.partition("="))
    try:
        if colon and option != "delay":
            raise ValueError(f"{rest!r} is no option of it")
        delay_seconds = parse_seconds(value, "delay") if colon else scenario.delay_seconds
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
            delay_seconds,
            times=scenario.occurrences,
            every=Extent(share, True) if repeats else None,
        )
        for worker in range(workers - scenario.stragglers, workers)
    )


def check_injections(found: Iterable[Injection], launcher: str, servers: int = 1) -> None:
    """Refuses injections that a cluster of this kind cannot carry out.

    Args:
        found: The injections.
        launcher: `in-process`, `processes`, `tf-config`, `ray` or `simulated`.
        servers: Number of its parameter servers.

    Raises:
        UserError: One cannot be carried out.
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
    raise UserError(
        f"--inject is {text!r}: give an injection such as kill:worker=1,at=30% (kinds:"
        f" {', '.join(USAGES)}), or a scenario ({', '.join(SCENARIOS)})"
    )


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
    if injection.kind == "straggler":
        return None
    if (injection.kind, injection.role) not in _FAILURES[launcher]:
        if launcher == "simulated":
            return "a simulated cluster only supports stragglers and kill:worker; leave it out"
        if launcher == "tf-config":
            return f"{_NOT_OURS}; use --launcher processes"
        return f"there is no process to {injection.kind}; use --launcher processes"
    if injection.lasting is not None and launcher != "simulated":
        return "a real worker comes back as soon as it can; leave for= out"
    return None
