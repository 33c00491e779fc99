"""`syncswitch-search policy`: looks up, lists and shows timing policies.

Needs neither TensorFlow nor Optuna, nor the user's workload file.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from syncswitch.cli.console import EXIT_FAILED, echo, print_error, print_json, print_table
from syncswitch.cli.group import SubcommandGroup
from syncswitch.cli.options import common_options
from syncswitch.cli.search.policy.files import export, import_policy_files, schema
from syncswitch.cli.search.policy.selection import (
    Selection,
    alias_option,
    existing,
    find,
    near_misses,
    newest,
    no_alias,
    selection_options,
    version_of,
    version_option,
)
from syncswitch.cli.search.policy.text import (
    evidence_as_json,
    print_evidence,
    print_policy,
    print_why,
)
from syncswitch.cli.search.policy.versions import diff, move_alias, revise, rollback
from syncswitch.cli.search.rows import optional_workload, selector_of
from syncswitch.searcher.learning.words import uses_as_json
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    metric_title,
    named_text,
    workers_text,
)
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import holds_nothing, shown
from syncswitch.storage.policies.file import policy_to_dict
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.store import uses_of

if TYPE_CHECKING:
    from syncswitch.searcher.search.explanation import Explanation


@click.group(cls=SubcommandGroup)
def policy() -> None:
    """Look up, compare, exchange and roll back timing policies.

    WORKLOAD is a name, file.py:attribute, package.module:attribute, or 8 or more digits of a
    fingerprint.
    """


@policy.command()
@selection_options
@alias_option("Alias of the version to print.")
@common_options
def lookup(
    selection: Selection,
    alias: str,
    storage_url: str,
    as_json: bool,
) -> int | None:
    """Print the policy of WORKLOAD. Exit status 1 if there is none."""
    if holds_nothing(storage_url):
        return _nothing(_none_found(selection, storage_url), as_json)
    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        found = find(registry, selection, alias)
        if not found:
            reason = no_alias(registry, selection, alias)
            if reason is None:
                reason = _none_found(selection, storage_url) + near_misses(registry, selection)
            return _nothing(reason, as_json)
        best = newest(registry, found)
        entry = registry.entry(best.fingerprint, best.version)
        uses = uses_of(database, best)
    assert entry is not None  # a version is never removed
    if as_json:
        print_json({**policy_to_dict(best), **_simulated(entry.identity)})
    else:
        print_policy(entry, uses)
    return None


@policy.command(name="list")
@optional_workload
@common_options
def list_policies(reference: str | None, storage_url: str, as_json: bool) -> None:
    """List all versions, the newest first."""
    with open_database(storage_url, create=False) as database:
        found = PolicyRegistry(database).entries(workload=selector_of(reference))
    if as_json:
        print_json([_as_json(entry) for entry in found])
    elif not found:
        of_it = "" if reference is None else f" of {reference!r}"
        command = shlex.join(["syncswitch-search", "run", reference or "WORKLOAD"])
        echo(f"no policies{of_it} here; find one with: {command}")
    else:
        title = metric_title(entry.policy.decided_by for entry in found)
        columns = ["workload", "version", "cluster", "switch at", title, "kept", "created"]
        print_table(columns, [_cells(entry, title) for entry in found])


@policy.command()
@selection_options
@version_option
@click.option(
    "--why",
    "is_why",
    is_flag=True,
    help="Also show what was believed after each run, and what would change the answer.",
)
@common_options
def show(
    selection: Selection,
    version: int | None,
    is_why: bool,
    storage_url: str,
    as_json: bool,
) -> None:
    """Show one policy with the runs that it rests on.

    trial_id is the run's number in this database, if it is there.
    """
    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        best = newest(registry, existing(registry, selection))
        chosen = version_of(registry, best, version)
        entry = registry.entry(chosen.fingerprint, chosen.version)
        trials = registry.evidence_trials(chosen.fingerprint, chosen.version)
        uses = uses_of(database, chosen)
        assert entry is not None  # a version is never removed
        why = _explained(database, entry) if is_why else None
    if as_json:
        from syncswitch.searcher.search.explanation import why_as_json

        evidence = evidence_as_json(chosen, trials)
        more = {} if why is None else {"why": why_as_json(why)}
        print_json({**_as_json(entry), "evidence": evidence, "uses": uses_as_json(uses), **more})
        return
    print_policy(entry, uses)
    print_evidence(chosen, trials)
    if why is not None:
        print_why(why, chosen)


for _command in (export, import_policy_files, schema, diff, move_alias, rollback, revise):
    policy.add_command(_command)


def _explained(database: Database, entry: PolicyEntry) -> Explanation:
    # NumPy takes a while to import.
    from syncswitch.searcher.learning.uses import policy_explained

    return policy_explained(database, entry)


def _nothing(message: str, as_json: bool) -> int:
    if as_json:
        print_json({"policy": None})
    print_error(message)
    return EXIT_FAILED


def _none_found(selection: Selection, storage_url: str) -> str:
    command = shlex.join(["syncswitch-search", "run", *selection.words])
    return (
        f"no policy for {selection.reference!r} in {shown(storage_url)}; find one with: {command}"
    )


def _simulated(identity: WorkloadIdentity) -> dict[str, object]:
    """What JSON says besides the policy: of a real cluster nothing, it is a policy alone."""
    digest = identity.simulated_cluster
    return {} if digest is None else {"simulated_cluster": digest}


def _as_json(entry: PolicyEntry) -> dict[str, object]:
    return {
        **entry.policy.decided_by.with_values(policy_to_dict(entry.policy)),
        "aliases": list(entry.aliases),
        "imported_at": entry.imported_at,
        "simulated_cluster": entry.identity.simulated_cluster,
    }


def _cells(entry: PolicyEntry, title: str) -> list[str]:
    found, metric = entry.policy, entry.policy.decided_by
    workers = workers_text(found.workers, entry.identity.simulated_cluster)
    return [
        f"{found.workload} [{found.fingerprint[:8]}]",
        " ".join([str(found.version), *entry.aliases]),
        f"{workers} {found.first_protocol},{found.second_protocol}",
        f"{found.switch_percent:g} %",
        named_text(accuracy_text(found.mean_accuracy, metric), metric, title),
        _kept_cell(found),
        found.created_at[:10],
    ]


def _kept_cell(policy: TimingPolicy) -> str:
    """The share that it promises where it is used as it was found for."""
    share = policy.delivered_share if policy.is_for_guard else policy.kept_share
    if share is None:
        return NONE
    return f"{100 * share:.0f} %{' guarded' if policy.is_for_guard else ''}"
