"""The options that select a job or a policy, and the policies that they select."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from syncswitch.cli.completion import complete_policy, complete_workload
from syncswitch.cli.console import print_note
from syncswitch.cli.options import combined, protocols_option, workers_option
from syncswitch.searcher.selection import (
    ClusterKind,
    Selection,
    policies,
    preferred_policy,
    split_choice,
)
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.registry import CURRENT, PolicyEntry, PolicyRegistry
from syncswitch.storage.records.job import LARGEST_INTEGER
from syncswitch.storage.records.policy import TimingPolicy

_F = TypeVar("_F", bound=Callable[..., object])


cluster_option = click.option(
    "--cluster",
    type=click.Choice(["real", "simulated"]),
    help="Only jobs on such clusters. Default: real jobs before simulated ones of the same name.",
)

narrowing_options = combined(workers_option(None), protocols_option(None), cluster_option)

VERSION = click.IntRange(1, LARGEST_INTEGER)
"""The type of a policy's version."""


def selection_options(*, has_choice: bool = True) -> Callable[[_F], _F]:
    """WORKLOAD and what narrows it down, as one argument `selection`.

    Args:
        has_choice: Whether WORKLOAD may name a version or an alias of the policy after an @.
    """

    def decorate(function: _F) -> _F:
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
        decorated: Any = workload(narrowing_options(gathered))
        found: _F = decorated
        return found

    return decorate


def existing(
    registry: PolicyRegistry, selection: Selection, storage_url: str
) -> list[TimingPolicy]:
    """The policies that fit, newest first. Raises PolicyError if there is none."""
    found = policies(registry, selection)
    if not found:
        known = registry.entries(workload=selection.selector)
        raise PolicyError(none_found(known, selection, storage_url))
    return found


def none_found(known: Sequence[PolicyEntry], selection: Selection, storage_url: str) -> str:
    """The message if no policy fits a selection."""
    fitting = [entry for entry in known if selection.fits(entry.identity)]
    if fitting:
        versions = sorted({entry.policy.version for entry in fitting})
        aliases = sorted({alias for entry in fitting for alias in entry.aliases})
        return (
            f"{selection.reference!r} has no policy {selection.choice!r}; its versions and aliases"
            f" are: {', '.join([*map(str, versions), *aliases])}"
        )
    clusters = "; ".join(dict.fromkeys(entry.identity.cluster for entry in known))
    there = f" (there is one for {clusters})" if clusters else ""
    search = shlex.join(["syncswitch-search", "run", *selection.words])
    return (
        f"no policy for {selection.reference!r} in {shown(storage_url)}{there}; find one with:"
        f" {search}"
    )


def only(registry: PolicyRegistry, found: list[TimingPolicy]) -> TimingPolicy:
    """The policy to use; see `preferred_policy`."""
    return preferred_policy(registry, found, print_note)


def newest(registry: PolicyRegistry, found: list[TimingPolicy]) -> TimingPolicy:
    """The policy to show, the newest of several; see `preferred_policy`."""
    return preferred_policy(registry, found, print_note, may_guess=True)
