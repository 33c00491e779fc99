"""Names of policies on the command line, and the search for the one that is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
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
from syncswitch.searcher.training.policy import (
    HOW_TO_CHOOSE,
    cluster_of,
    named_clusters,
    registered,
)
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.job import LARGEST_INTEGER
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.protocols import parse_named_pair

_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(frozen=True)
class Selection:
    """A workload as the user typed it, with the options that narrow it down.

    The protocols are written as `FIRST,SECOND`.
    """

    reference: str
    workers: int | None
    protocols: str | None

    @property
    def selector(self) -> str:
        """The name by which the database knows the workload."""
        return normal_reference(self.reference)

    @property
    def pair(self) -> tuple[str, str] | None:
        """The protocols."""
        return None if self.protocols is None else parse_named_pair(self.protocols)

    @property
    def words(self) -> list[str]:
        """The workload and its options, for a command line."""
        words = [self.reference]
        if self.workers is not None:
            words += ["--workers", str(self.workers)]
        if self.protocols is not None:
            words += ["--protocols", self.protocols]
        return words


narrowing_options = combined(workers_option(None), protocols_option(None))

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
        *arguments: Any, reference: str, workers: int | None, protocols: str | None, **others: Any
    ) -> Any:
        selection = Selection(reference, workers, protocols)
        return function(*arguments, selection=selection, **others)

    workload = click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
    decorated: Callable[..., Any] = workload(narrowing_options(gathered))
    return decorated


def find(
    registry: PolicyRegistry, selection: Selection, alias: str = "current"
) -> list[TimingPolicy]:
    """The policies that fit, one per fingerprint, newest first."""
    return registry.lookup(
        selection.selector, workers=selection.workers, protocols=selection.pair, alias=alias
    )


def existing(registry: PolicyRegistry, selection: Selection) -> list[TimingPolicy]:
    """The current policies that fit, newest first. Raises PolicyError where there is none."""
    found = find(registry, selection)
    if not found:
        raise PolicyError(
            f"no policy for {selection.reference!r}{near_misses(registry, selection)};"
            " see: syncswitch-search policy list"
        )
    return found


def newest(registry: PolicyRegistry, found: list[TimingPolicy]) -> TimingPolicy:
    """The newest one, of real clusters before simulated ones; people are told of the others."""
    if len(found) == 1:
        return found[0]
    chosen, *others = sorted(found, key=lambda policy: _is_simulated(registry, policy))
    which = "the newest" if chosen is found[0] else "the newest real one"
    print_note(
        f"{which} of {len(found)}, for {cluster_of(registry, chosen)}; others:"
        f" {named_clusters(registry, others)}; {HOW_TO_CHOOSE}"
    )
    return chosen


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
    found = find(registry, selection)
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
    others = find(registry, Selection(selection.reference, None, None))
    if not others:
        return ""
    return f" (there is one for {'; '.join(cluster_of(registry, other) for other in others)})"


def _is_simulated(registry: PolicyRegistry, policy: TimingPolicy) -> bool:
    return registered(registry, policy).simulated_cluster is not None
