"""`syncswitch-search policy alias`, `rollback` and `diff`: the versions of a workload's policy."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import click

from syncswitch.cli.completion import (
    complete_alias,
    complete_compared,
    complete_version,
)
from syncswitch.cli.console import echo, print_json, print_text
from syncswitch.cli.options import common_options
from syncswitch.cli.search.policy.selection import (
    VERSION,
    Selection,
    alias_option,
    existing,
    find,
    narrowing_options,
    no_alias,
    selection_options,
    version_of,
)
from syncswitch.cli.search.policy.text import diff_as_json, print_diff
from syncswitch.searcher.learning.words import uses_as_json, uses_sentence
from syncswitch.searcher.training.policy import only
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.diff import policy_differences
from syncswitch.storage.policies.file import policy_to_dict, read_policy_file
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.store import uses_of

_HOW_TO_NAME = (
    "give two of WORKLOAD@VERSION, WORKLOAD@ALIAS or a policy file, or WORKLOAD and two versions or"
    " aliases of it, for example: syncswitch-search policy diff digits 1 current"
)

_MOST_DIGITS = 1000  # int() refuses a few thousand


@click.command(name="alias")
@selection_options
@click.argument("alias", shell_complete=complete_alias)
@click.argument("version", type=VERSION, shell_complete=complete_version)
@common_options
def move_alias(
    selection: Selection, alias: str, version: int, storage_url: str, as_json: bool
) -> None:
    """Point ALIAS at VERSION."""
    _move(selection, alias, version, storage_url, as_json)


@click.command()
@selection_options
@alias_option("Alias to move.")
@common_options
def rollback(selection: Selection, alias: str, storage_url: str, as_json: bool) -> None:
    """Point `current`, or another alias, at the next lower version."""
    _move(selection, alias, None, storage_url, as_json)


@click.command()
@click.argument("names", metavar="[WORKLOAD] A B", nargs=-1, shell_complete=complete_compared)
@narrowing_options
@common_options
def diff(
    names: tuple[str, ...],
    workers: int | None,
    protocols: str | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """Show the differences between two policies.

    A and B are versions or aliases of WORKLOAD; without it each is WORKLOAD@VERSION,
    WORKLOAD@ALIAS or a policy file.
    """
    first, second = _two_names(names)
    with ExitStack() as stack:
        registry = None
        if not (_is_file(first) and _is_file(second)):
            database = stack.enter_context(open_database(storage_url, create=False))
            registry = PolicyRegistry(database)
        a, b = (_side(name, workers, protocols, registry) for name in (first, second))
    found = policy_differences(a.policy, b.policy, a.job, b.job)
    if as_json:
        print_json(diff_as_json(found, (a.name, a.policy), (b.name, b.policy)))
    else:
        print_diff(found, (a.name, a.policy), (b.name, b.policy))


def _move(
    selection: Selection, alias: str, version: int | None, storage_url: str, as_json: bool
) -> None:
    """Moves an alias of the one policy that fits; without a version, to the next lower one."""
    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        found = only(registry, existing(registry, selection))
        before = registry.aliases(found.fingerprint).get(alias)
        if version is None:
            _, version = registry.roll_back(found.fingerprint, alias)
        else:
            registry.set_alias(found.fingerprint, alias, version)
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
        echo(f"{found.workload}: {alias} is version {version}{was}")


@dataclass(frozen=True)
class _Side:
    """One of two policies that are compared."""

    name: str
    policy: TimingPolicy
    job: WorkloadIdentity


def _two_names(names: tuple[str, ...]) -> tuple[str, str]:
    if len(names) == 3:
        workload, first, second = names
        if _is_file(first) and _is_file(second):
            raise PolicyError(
                f"policy diff compares two files, so WORKLOAD {workload!r} says nothing;"
                f" leave it out, or {_HOW_TO_NAME}"
            )
        return (
            first if _is_file(first) else f"{workload}@{first}",
            second if _is_file(second) else f"{workload}@{second}",
        )
    if len(names) != 2:
        raise PolicyError(f"policy diff got {len(names)} names; {_HOW_TO_NAME}")
    return names[0], names[1]


def _is_file(name: str) -> bool:
    """Whether a file is meant; one that is named like a version or an alias needs `./`."""
    if name.endswith(".json"):
        return True
    # A workload may have a folder, too: folder/jobs.py:job@1.
    return os.path.dirname(name) != "" and ("@" not in name or os.path.isfile(name))


def _side(
    name: str, workers: int | None, protocols: str | None, registry: PolicyRegistry | None
) -> _Side:
    if registry is None or _is_file(name):
        content = read_policy_file(name)
        return _Side(name, content.policy, content.workload.identity)
    reference, at, which = name.rpartition("@")
    if not (reference and at and which):
        raise PolicyError(f"{name!r} names no policy: {_HOW_TO_NAME}")
    policy = _policy(registry, Selection(reference, workers, protocols), which)
    entry = registry.entry(policy.fingerprint, policy.version)
    assert entry is not None  # a version is never removed
    return _Side(name, policy, entry.identity)


def _policy(registry: PolicyRegistry, selection: Selection, which: str) -> TimingPolicy:
    """The policy with that version or alias."""
    if which.isdecimal() and len(which) <= _MOST_DIGITS:
        return version_of(registry, only(registry, existing(registry, selection)), int(which))
    found = find(registry, selection, which)
    if not found:
        existing(registry, selection)
        raise PolicyError(str(no_alias(registry, selection, which)))
    return only(registry, found)


@click.command()
@selection_options
@common_options
def revise(selection: Selection, storage_url: str, as_json: bool) -> None:
    """Publish another switch for WORKLOAD, if the uses of its policy call for it.

    They do if another switch that was tried is expected to take less time, including what failed
    switches cost. `current` then is the new version; other aliases stay.
    """
    from syncswitch.searcher.learning.uses import publish_revision, revision_of

    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        policy = only(registry, existing(registry, selection))
        revision, new = revision_of(database, policy), None
        if revision is not None:
            new = publish_revision(database, policy, revision)
        summary = uses_of(database, policy)
    if as_json:
        found = None if revision is None else asdict(revision)
        published = None if new is None else policy_to_dict(new)
        print_json({"revision": found, "policy": published, "uses": uses_as_json(summary)})
        return
    if revision is None or new is None:
        print_text(f"{policy.workload}: version {policy.version} stays. {uses_sentence(summary)}")
        return
    words = revision.why
    print_text(f"{words[0].upper()}{words[1:]}.")
    print_text(f"{new.workload}: current is version {new.version} (was {policy.version})")
