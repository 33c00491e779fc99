"""`syncswitch-search policy export`, `import` and `schema`: policies that travel as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from syncswitch.cli.console import echo, print_json, print_note, print_text
from syncswitch.cli.options import common_options, debug_option
from syncswitch.cli.search.policy.selection import (
    Selection,
    existing,
    selection_options,
    version_of,
    version_option,
)
from syncswitch.cli.search.rows import output_option
from syncswitch.searcher.training.policy import only
from syncswitch.searcher.words import counted
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.file import policy_text, read_policy_file, write_policy
from syncswitch.storage.policies.importing import ImportedPolicy, import_policies
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.uses.spool import take_in
from syncswitch.storage.uses.waiting import spool_beside


@click.command()
@selection_options
@version_option
@output_option
@common_options
def export(
    selection: Selection,
    version: int | None,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """Write a policy to a file.

    syncswitch-run takes it with --policy, another database with policy import.
    """
    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        chosen = only(registry, existing(registry, selection))
        found = version_of(registry, chosen, version)
        workload = registry.workload(found.fingerprint)
    assert workload is not None  # every policy refers to one
    if output is None:
        click.echo(policy_text(found, workload), nl=False)
        return
    write_policy(output, found, workload)
    if as_json:
        print_json({"path": str(output), "version": found.version})
    else:
        echo(f"version {found.version} for {found.workload} written to {output}")


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--make-current",
    is_flag=True,
    help="Use these policies from now on. Default: only where a workload has no current one yet.",
)
@common_options
def import_policy_files(
    files: tuple[str, ...], make_current: bool, storage_url: str, as_json: bool
) -> None:
    """Add policies from exported files.

    Each becomes the next version of its workload: all of them, or none at an error. A policy that
    is there already stays as it is, so the command may be repeated. What runs with a file learned,
    and left beside it, is taken in too.
    """
    contents = [read_policy_file(file) for file in files]
    with open_database(storage_url, create=True) as database:
        imported = import_policies(database, contents, make_current=make_current)
        for file in files:
            spool = spool_beside(Path(file))
            taken = take_in(database, spool)
            if taken.recorded:
                print_note(f"{counted(taken.recorded, 'later run')} taken in from {spool}")
            for word in (*taken.kept, *taken.set_aside):
                print_note(word)
    if as_json:
        print_json([_as_json(file, one) for file, one in zip(files, imported, strict=True)])
    else:
        for file, one in zip(files, imported, strict=True):
            print_text(_sentence(file, one, make_current))


@click.command()
@debug_option
def schema() -> None:
    """Print the JSON Schema of policy files."""
    from syncswitch.storage.policies.schema import policy_schema

    print_json(policy_schema())


def _as_json(file: str, imported: ImportedPolicy) -> dict[str, Any]:
    policy = imported.policy
    return {
        "path": file,
        "workload": policy.workload,
        "fingerprint": policy.fingerprint,
        "version": policy.version,
        "is_new": imported.is_new,
        "current_version": imported.current_version,
        "simulated_cluster": imported.identity.simulated_cluster,
    }


def _sentence(file: str, imported: ImportedPolicy, make_current: bool) -> str:
    policy = imported.policy
    added = "added" if imported.is_new else "there already"
    if imported.current_version == policy.version:
        current = "it is current"
    else:
        current = f"current is version {imported.current_version}"
        current += "" if make_current else " (--make-current changes that)"
    return (
        f"{file}: {added} as version {policy.version} of {policy.workload}"
        f" ({imported.identity.cluster});"
        f" {current}"
    )
