"""Options that several commands share.

Light at import: what an option needs is imported when it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from syncswitch.cli.completion import PROTOCOL_EXAMPLES, complete_protocols
from syncswitch.storage.database.defaults import DEFAULT_URL, ENVIRONMENT_VARIABLE
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.stragglers.online import ONLINE

PROTOCOLS_HELP = (
    f"Protocols before and after the switch, such as {', '.join(PROTOCOL_EXAMPLES)}."
    " Experimental: growing."
)

# More than any cluster has.
_MOST_WORKERS = 100_000

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class FiniteRange(click.FloatRange):
    """A number in a range; unlike its base class it refuses NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number


storage_option = click.option(
    "--storage",
    "storage_url",
    metavar="URL",
    envvar=ENVIRONMENT_VARIABLE,
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="Database of trials and policies: a SQLite file or a PostgreSQL server.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON instead of a table."
)

debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)


def combined(*options: Callable[[Any], Any]) -> Decorator:
    """Several options as one decorator, in the order of the help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


common_options = combined(storage_option, json_option, debug_option)


def workers_option(default: int | None, text: str | None = None) -> Decorator:
    """`--workers`; without a default and a text it narrows down a choice of jobs."""
    narrowing = "Only jobs on this many workers."
    return click.option(
        "--workers",
        metavar="N",
        type=click.IntRange(min=1, max=_MOST_WORKERS),
        default=default,
        show_default=default is not None,
        help=text or ("Workers in the cluster." if default else narrowing),
    )


def protocols_option(
    default: str | None, text: str | None = None, metavar: str = "FIRST,SECOND", **more: Any
) -> Decorator:
    """`--protocols`; see `workers_option`."""
    narrowing = "Only jobs with these protocols before and after the switch."
    return click.option(
        "--protocols",
        metavar=metavar,
        shell_complete=complete_protocols,
        default=default,
        show_default=default is not None,
        help=text or (PROTOCOLS_HELP if default else narrowing),
        **more,
    )


seed_option = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed from which the seeds of all runs are derived.",
)

tensorboard_option = click.option(
    "--tensorboard",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write a TensorBoard log of each run while it trains, into a subfolder of this folder."
    " Needs the extra tensorboard.",
)


def mlflow_option(*, required: bool = False) -> Decorator:
    """`--mlflow`."""
    return click.option(
        "--mlflow",
        metavar="URI",
        required=required,
        help="At the end, copy runs with their curves, and policies, to this tracking URI of"
        " MLflow, such as http://localhost:5000. Needs the extra mlflow. Experimental.",
    )


def is_given(name: str) -> bool:
    """Checks whether the user gave this parameter on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


_USUAL = RunConditions()

conditions_options = combined(
    click.option(
        "--online",
        type=click.Choice(ONLINE),
        default=_USUAL.online,
        show_default=True,
        help="What to do about stragglers before the switch: greedy = use the second protocol as"
        " long as there are some; elastic = continue without them until the switch. Both are"
        " experimental.",
    ),
    click.option(
        "--switch",
        type=click.Choice(["hot", "restart"]),
        default=_USUAL.switch_mechanism,
        show_default=True,
        help="hot = the running cluster changes its protocol; restart = a checkpoint and a new"
        " cluster.",
    ),
)

inject_option = click.option(
    "--inject",
    metavar="INJECTION|SCENARIO",
    multiple=True,
    help="A deliberate disturbance, such as kill:worker=1,at=30% or"
    " straggler:worker=2,at=20%,for=100s,delay=30ms, or one of the paper's scenarios: mild,"
    " moderate. May be given several times.",
)
