"""The options that select a job or a policy, and the look-up of the one that is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from syncswitch.cli.completion import (
    complete_alias,
    complete_version,
    complete_workload,
)
from syncswitch.cli.console import print_note
from syncswitch.cli.options import (
    combined,
    protocols_option,
    workers_option,
)
from syncswitch.searcher.selection import ClusterKind, Selection, job_of, policies, preferred_policy
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.job import LARGEST_INTEGER
from syncswitch.storage.records.policy import TimingPolicy

_F = TypeVar("_F", bound=Callable[..., object])


cluster_option = click.option(
    "--cluster",
    type=click.Choice(["real", "simulated"]),
    help="Only jobs on such clusters. Default: of one name, real jobs before simulated ones.",
)

narrowing_options = combined(workers_option(None), protocols_option(None), cluster_option)

VERSION = click.IntRange(1, LARGEST_INTEGER)
"""A version of a policy."""

version_option = click.option(
    "--version",
    type=VERSION,
    shell_complete=complete_version,
    help="Version of the policy.  [default: the current one]",
)


def alias_option(text: str) -> Callable[[_F], _F]:
    """`--alias`."""
    return click.option(
        "--alias", default=CURRENT, show_default=True, shell_complete=complete_alias, help=text
    )


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """WORKLOAD and what narrows it, as one argument `selection`."""

    @functools.wraps(function)
    def gathered(
        *arguments: Any,
        reference: str,
        workers: int | None,
        protocols: str | None,
        cluster: ClusterKind | None,
        **others: Any,
    ) -> Any:
        selection = Selection(reference, workers, protocols, cluster)
        return function(*arguments, selection=selection, **others)

    workload = click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
    decorated: Callable[..., Any] = workload(narrowing_options(gathered))
    return decorated


def existing(registry: PolicyRegistry, selection: Selection) -> list[TimingPolicy]:
    """The current policies that fit, newest first. Raises PolicyError where there is none."""
    found = policies(registry, selection)
    if not found:
        raise PolicyError(
            f"no policy for {selection.reference!r}{near_misses(registry, selection)};"
            " see: syncswitch-search policy list"
        )
    return found


def only(registry: PolicyRegistry, found: list[TimingPolicy]) -> TimingPolicy:
    """The one that is meant, for what is going to be used; see `preferred_policy`."""
    return preferred_policy(registry, found, print_note)


def newest(registry: PolicyRegistry, found: list[TimingPolicy]) -> TimingPolicy:
    """The one that is meant, or the newest of several, for a look; see `preferred_policy`."""
    return preferred_policy(registry, found, print_note, may_guess=True)


def version_of(registry: PolicyRegistry, found: TimingPolicy, version: int | None) -> TimingPolicy:
    """Return the given version of the same workload; None stands for the one that was found.

    Raises:
        PolicyError: There is no such version.
    """
    if version is None or version == found.version:
        return found
    chosen = registry.get(found.fingerprint, version)
    if chosen is None:
        known = [p.version for p in registry.policies(workload=found.fingerprint)]
        raise PolicyError(
            f"{found.workload} has no version {version};"
            f" it has {', '.join(str(number) for number in sorted(known))}"
        )
    return chosen


def no_alias(registry: PolicyRegistry, selection: Selection, alias: str) -> str | None:
    """The message for a workload that has a policy, but not under this alias."""
    found = policies(registry, selection)
    if not found:
        return None
    known = sorted({name for p in found for name in registry.aliases(p.fingerprint)})
    reference = selection.reference
    return (
        f"no policy for {reference!r} has the alias {alias!r}; there is: {', '.join(known)};"
        f" set it with: syncswitch-search policy alias {reference} {alias} VERSION"
    )


def near_misses(registry: PolicyRegistry, selection: Selection) -> str:
    """Lists the policies of this workload for other clusters, so that a wrong option shows."""
    others = policies(registry, Selection(selection.reference))
    if not others:
        return ""
    return f" (there is one for {'; '.join(job_of(registry, other).cluster for other in others)})"
