"""The options that select a job or a policy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from syncswitch.cli.completion import complete_policy, complete_workload
from syncswitch.cli.options import Decorator, combined, protocols_option, workers_option
from syncswitch.searcher.selection import ClusterKind, Selection, split_choice
from syncswitch.storage.policies.registry import CURRENT
from syncswitch.storage.records.limits import LARGEST_INTEGER

cluster_option = click.option(
    "--cluster",
    type=click.Choice(["real", "simulated"]),
    help="Only jobs on such clusters. Default: real jobs before simulated ones of the same name.",
)

narrowing_options = combined(workers_option(None), protocols_option(None), cluster_option)

VERSION = click.IntRange(1, LARGEST_INTEGER)
"""The type of a policy's version."""


def selection_options(*, has_choice: bool = True) -> Decorator:
    """WORKLOAD and what narrows it down, as one argument `selection`.

    After an @ it may name a version or an alias of the policy, if it `has_choice`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def gathered(
            *arguments: Any,
            reference: str,
            workers: int | None,
            protocols: str | None,
            cluster: ClusterKind | None,
            **others: Any,
        ) -> Any:
            workload, choice = split_choice(reference) if has_choice else (reference, None)
            selection = Selection(workload, workers, protocols, cluster, choice or CURRENT)
            return function(*arguments, selection=selection, **others)

        workload = click.argument(
            "reference",
            metavar="WORKLOAD[@VERSION|@ALIAS]" if has_choice else "WORKLOAD",
            shell_complete=complete_policy if has_choice else complete_workload,
        )
        return workload(narrowing_options(gathered))

    return decorate
