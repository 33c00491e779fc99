"""`syncswitch-search policy alias`, `rollback` and `diff`: the versions of a workload's policy."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syncswitch.searcher.cli.policy_selection import (
    Selection,
    existing,
    find,
    narrowing_options,
    no_alias,
    only,
    version_of,
)
from syncswitch.storage.errors import PolicyError
from syncswitch.trainers.console import EXIT_OK, common_options, print_json

if TYPE_CHECKING:
    from syncswitch.storage.policies import PolicyRegistry
    from syncswitch.storage.records import TimingPolicy
    from syncswitch.storage.similarity import JobFacts

__all__ = ["diff", "move_alias", "rollback"]

_HOW_TO_NAME = (
    "give two of WORKLOAD@VERSION, WORKLOAD@ALIAS or a policy file, or WORKLOAD and two versions or"
    " aliases of it, for example: syncswitch-search policy diff digits 1 current"
)


@click.command(name="alias")
@click.argument("reference", metavar="WORKLOAD")
@click.argument("alias")
@click.argument("version", type=int)
@narrowing_options
@common_options
def move_alias(
    reference: str,
    alias: str,
    version: int,
    workers: int | None,
    protocols: str | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Points ALIAS at VERSION."""
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.policies import PolicyRegistry

    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        found = only(existing(registry, Selection(reference, workers, protocols)))
        before = registry.aliases(found.fingerprint).get(alias)
        registry.set_alias(found.fingerprint, alias, version)
    _print_moved(found, alias, before, version, as_json)
    return EXIT_OK


@click.command()
@click.argument("reference", metavar="WORKLOAD")
@click.option("--alias", default="current", show_default=True, help="Which alias to move.")
@narrowing_options
@common_options
def rollback(
    reference: str,
    alias: str,
    workers: int | None,
    protocols: str | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Points `current`, or another alias, at the next lower version."""
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.policies import PolicyRegistry

    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        found = only(existing(registry, Selection(reference, workers, protocols)))
        before, version = registry.roll_back(found.fingerprint, alias)
    _print_moved(found, alias, before, version, as_json)
    return EXIT_OK


@click.command()
@click.argument("names", metavar="[WORKLOAD] A B", nargs=-1)
@narrowing_options
@common_options
def diff(
    names: tuple[str, ...],
    workers: int | None,
    protocols: str | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Shows what differs between two policies.

    A and B are versions or aliases of WORKLOAD; without it each is WORKLOAD@VERSION,
    WORKLOAD@ALIAS or a policy file.
    """
    from syncswitch.searcher.cli.policy_text import diff_as_json, print_diff
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.policies import PolicyRegistry
    from syncswitch.storage.policy_diff import compare

    first, second = _two_names(names)
    with ExitStack() as stack:
        registry = None
        if not (_is_file(first) and _is_file(second)):
            database = stack.enter_context(open_database(storage_url, create=False))
            registry = PolicyRegistry(database)
        a, b = (_side(name, workers, protocols, registry) for name in (first, second))
    found = compare(a.policy, b.policy, a.job, b.job)
    if as_json:
        print_json(diff_as_json(found, (a.name, a.policy), (b.name, b.policy)))
    else:
        print_diff(found, (a.name, a.policy), (b.name, b.policy))
    return EXIT_OK


def _print_moved(
    found: TimingPolicy, alias: str, before: int | None, version: int, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "fingerprint": found.fingerprint,
                "alias": alias,
                "version": version,
                "previous_version": before,
            }
        )
    else:
        was = "" if before is None else f" (was version {before})"
        click.echo(f"{found.workload}: {alias} is version {version}{was}")


@dataclass(frozen=True)
class _Side:
    """One of two policies that are compared."""

    name: str
    policy: TimingPolicy
    job: JobFacts


def _two_names(names: tuple[str, ...]) -> tuple[str, str]:
    if len(names) == 3:
        workload, first, second = names
        return (
            first if _is_file(first) else f"{workload}@{first}",
            second if _is_file(second) else f"{workload}@{second}",
        )
    if len(names) != 2:
        raise PolicyError(f"policy diff got {len(names)} names; {_HOW_TO_NAME}")
    return names[0], names[1]


def _is_file(name: str) -> bool:
    return name.endswith(".json") or Path(name).is_file()


def _side(
    name: str, workers: int | None, protocols: str | None, registry: PolicyRegistry | None
) -> _Side:
    from syncswitch.storage.policy_file import read_policy_file
    from syncswitch.storage.similarity import JobFacts

    if registry is None or _is_file(name):
        content = read_policy_file(name)
        workload = content.workload
        return _Side(
            name, content.policy, JobFacts.of(workload.identity if workload else content.policy)
        )
    reference, at, which = name.rpartition("@")
    if not (reference and at and which):
        raise PolicyError(f"{name!r} names no policy: {_HOW_TO_NAME}")
    policy = _policy(registry, Selection(reference, workers, protocols), which)
    workload = registry.workload(policy.fingerprint)
    return _Side(name, policy, JobFacts.of(workload.identity if workload else policy))


def _policy(registry: PolicyRegistry, selection: Selection, which: str) -> TimingPolicy:
    """The policy with that version or alias."""
    if which.isdecimal():
        return version_of(registry, only(existing(registry, selection)), int(which))
    found = find(registry, selection, which)
    if not found:
        existing(registry, selection)
        raise PolicyError(str(no_alias(registry, selection, which)))
    return only(found)
