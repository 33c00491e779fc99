"""Options that say under which conditions a job trains."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from syncswitch.cli.options import combined
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.stragglers.online import ONLINE

_USUAL = RunConditions()
_F = TypeVar("_F", bound=Callable[..., Any])

_chosen_options = combined(
    click.option(
        "--online",
        type=click.Choice(ONLINE),
        default=_USUAL.online,
        show_default=True,
        help="What to do about stragglers before the switch: greedy = use the second protocol as"
        " long as there are some; elastic = go on without them until the switch.",
    ),
    click.option(
        "--switch",
        "switch_mechanism",
        type=click.Choice(["hot", "restart"]),
        default=_USUAL.switch_mechanism,
        show_default=True,
        help="hot = the running cluster changes its protocol; restart = a checkpoint and a new"
        " cluster.",
    ),
)


def conditions_options(function: _F) -> _F:
    """`--online` and `--switch`, as one argument `chosen`; with `--inject` where that is there."""

    @functools.wraps(function)
    def gathered(
        *arguments: Any,
        online: str,
        switch_mechanism: str,
        inject: tuple[str, ...] = (),
        **others: Any,
    ) -> Any:
        chosen = ConditionsChoice(online, switch_mechanism, inject)
        return function(*arguments, chosen=chosen, **others)

    decorated: Any = gathered
    found: _F = _chosen_options(decorated)
    return found


inject_option = click.option(
    "--inject",
    metavar="INJECTION|SCENARIO",
    multiple=True,
    help="A deliberate disturbance, such as kill:worker=1,at=30% or"
    " straggler:worker=2,at=20%,for=100s,delay=30ms; or a scenario of the paper: mild,"
    " moderate. May be given several times.",
)
"""Stands above `conditions_options`, which takes it."""
