"""Options that say how to search, shared by `run` and `cost`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from syncswitch.searcher.strategies.base import CRITERIA
from syncswitch.searcher.strategies.registry import DEFAULT_STRATEGY, STRATEGIES

_F = TypeVar("_F", bound=Callable[..., Any])

RULE_OPTIONS = (
    "criterion",
    "keep",
    "uses",
    "switch_points",
    "baseline_runs",
    "least_runs",
    "budget",
    "share_prefix",
    "early_stop",
)
"""Parameters that not every strategy has; None where nothing was asked for."""


def strategy_options(function: _F) -> _F:
    """Adds --strategy, --runs, --threshold and the options in `RULE_OPTIONS`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS: list[Callable[[Any], Any]] = [
    click.option(
        "--strategy",
        type=click.Choice(list(STRATEGIES)),
        default=DEFAULT_STRATEGY,
        show_default=True,
        help="Strategy of the search: adaptive = each run is chosen for what it tells per cost;"
        " paper = binary search with R runs at each switch point (Sync-Switch, Algorithm 1).",
    ),
    click.option(
        "--runs",
        type=int,
        default=5,
        show_default=True,
        help="Runs of each switch point (R); adaptive: at most.",
    ),
    click.option(
        "--threshold",
        type=float,
        default=0.01,
        show_default=True,
        help="Accuracy that may be lost against the target (beta).",
    ),
    click.option(
        "--criterion",
        type=click.Choice(CRITERIA),
        help="What makes a switch point good (adaptive): kept = later runs with it keep the"
        " accuracy, --keep of them or nearly as many as of the first protocol's own runs; mean ="
        " their mean does, as in the paper. Default: kept.",
    ),
    click.option(
        "--keep",
        metavar="SHARE",
        type=float,
        help="Share of later runs that have to keep the accuracy, unless the first protocol alone"
        " keeps it more seldom (adaptive). Default: 0.95.",
    ),
    click.option(
        "--uses",
        type=int,
        help="How often the policy will be used: more uses are worth a dearer search (adaptive)."
        " Default: 30.",
    ),
    click.option(
        "--grid",
        "switch_points",
        metavar="GRID",
        help="Switch points to choose from: halving, fine (one more between each two of these), or"
        " percents such as 75,50,40,30 (adaptive). Default: halving and 75 %.",
    ),
    click.option(
        "--baseline-runs",
        type=int,
        help="Runs of the first protocol alone (paper). Default: as --runs.",
    ),
    click.option(
        "--least-runs",
        type=int,
        help="Runs that the answer itself needs (adaptive). Default: 2, or 1 by the mean.",
    ),
    click.option(
        "--budget",
        type=float,
        help="The most that the search may cost, in trainings with the first protocol alone"
        " (adaptive).",
    ),
    click.option(
        "--share-prefix/--no-share-prefix",
        default=None,
        help="Start runs from checkpoints of others with the same seed. Default: adaptive does.",
    ),
    click.option(
        "--early-stop/--no-early-stop",
        default=None,
        help="End a run as soon as its accuracy is known. Default: adaptive does.",
    ),
]
