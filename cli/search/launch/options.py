"""The options of a search's strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from syncswitch.cli.options import combined
from syncswitch.searcher.strategies.registry import DEFAULT_STRATEGY, STRATEGIES

_F = TypeVar("_F", bound=Callable[..., Any])


STRATEGY_OPTIONS = (
    "guarded",
    "keep",
    "uses",
    "switch_points",
    "baseline_runs",
    "least_runs",
    "budget",
    "share_prefix",
    "early_stop",
)
"""Parameters that not every strategy has; None if not given."""


strategy_options = combined(
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
        help="Runs at each switch point (R); for adaptive, the most.",
    ),
    click.option(
        "--threshold",
        type=float,
        help="How much accuracy may be lost against the target (beta), in the metric's unit."
        " Default: 0.01 if its best value is 1; otherwise measured from the first runs.",
    ),
    click.option(
        "--guard/--no-guard",
        "guarded",
        default=None,
        help="With --guard, find the policy with the least expected time for trainings that go back"
        " to a switch that failed, as those of syncswitch-run do; with --no-guard, a policy with"
        " which enough trainings keep the accuracy without going back (adaptive)."
        "  [default: --guard]",
    ),
    click.option(
        "--keep",
        metavar="SHARE",
        type=float,
        help="With --no-guard: the share of later trainings that must keep the accuracy, unless"
        " fewer do with the first protocol alone. Default: 0.95.",
    ),
    click.option(
        "--uses",
        type=int,
        help="How often the policy will be used: the more often, the more the search may cost"
        " (adaptive).  [default: 30]",
    ),
    click.option(
        "--grid",
        "switch_points",
        metavar="GRID",
        help="Switch points to choose from: halving, fine (one more between each two of these), or"
        " percentages such as 75,50,40,30 (adaptive). Default: halving, and 75 %.",
    ),
    click.option(
        "--baseline-runs",
        type=int,
        help="Runs with the first protocol alone (paper). Default: as --runs.",
    ),
    click.option(
        "--least-runs",
        type=int,
        help="Runs needed at the switch point that becomes the answer (adaptive). Default: 1, or 2"
        " with --no-guard.",
    ),
    click.option(
        "--budget",
        type=float,
        help="The most the search may cost, in trainings with the first protocol alone (adaptive).",
    ),
    click.option(
        "--share-prefix/--no-share-prefix",
        default=None,
        help="Start runs from checkpoints of other runs with the same seed. Default: yes for"
        " adaptive, no for paper.",
    ),
    click.option(
        "--early-stop/--no-early-stop",
        default=None,
        help="End a run as soon as its accuracy is known, or it fails after its switch."
        " Default: yes for adaptive, no for paper.",
    ),
)
