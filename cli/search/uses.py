"""`syncswitch-search uses`: later runs with policies, and the files in which some wait."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from syncswitch.cli.console import EXIT_OK, EXIT_USAGE, Row, print_error, print_json, print_text
from syncswitch.cli.group import SubcommandGroup
from syncswitch.cli.options import common_options
from syncswitch.cli.search.rows import (
    chosen_format,
    optional_workload,
    output_option,
    print_newest,
    selector_of,
    write_rows,
)
from syncswitch.cli.words import in_options
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    conditions_text,
    named_text,
    percent_text,
    seconds_text,
)
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.export import tables
from syncswitch.storage.queries.policies import PolicyUseFacts, use_facts
from syncswitch.storage.records.flat import flat, values_of
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.uses.spool import TakenIn, take_in


@click.group(cls=SubcommandGroup)
def uses() -> None:
    """List later runs with policies, and import those that wait in files."""


@uses.command("list")
@optional_workload
@click.option(
    "--format",
    "format_name",
    type=click.Choice(("table", "csv", "json")),
    help="csv and json have every field; --json is --format json.  [default: table]",
)
@output_option
@common_options
def list_uses(
    reference: str | None,
    format_name: str | None,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """List the runs of syncswitch-run with policies, of WORKLOAD or of all.

    A run is kept if it lost at most the policy's threshold against its target. `guard` is off,
    quiet, or alarmed if it sent the run back to its switch; `held` is then the switch with which
    the run ended, 100 % for the first protocol alone. `under` names the online policy, the way of
    switching and the injections if they are not the default; a run with injections is listed, but
    not counted.
    """
    kind = chosen_format(format_name, output, as_json, "csv or json")
    with open_database(storage_url, create=False) as database:
        rows = use_facts(database, workload=selector_of(reference))
    if kind == "table":
        of = f" of {reference}" if reference else ""
        nothing = f"no later runs with a policy{of} here; syncswitch-run makes them"
        print_newest(rows, _cells, nothing)
        return
    texts = tables.json_text(use.metric.metric.document(flat(use)) for use in rows)
    if kind == "csv":
        texts = tables.csv_text("uses", [[list(values_of(use)) for use in rows]])
    write_rows("uses", output, lambda file: tables.write_text(file, texts))


@uses.command("import")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@common_options
def import_uses(files: tuple[Path, ...], storage_url: str, as_json: bool) -> int:
    """Move later runs from files into the database.

    syncswitch-run leaves such a file beside its policy file if it finds no database. Each run
    counts once, however often a file is imported. A line whose policy is not in the database stays
    in its file; a line that cannot be read is moved to NAME.refused.jsonl. Both are reported with
    the reason. A file without any run is refused, and left as it is.
    """
    for file in files:
        if not file.exists():
            raise UserError(
                f"there is no file {file}; syncswitch-run names the one it leaves",
                code="file-unusable",
            )
    with open_database(storage_url, create=False) as database:
        taken: dict[Path, TakenIn] = {}
        refused = []
        for file in files:
            try:
                taken[file] = take_in(database, file)
                if taken[file] == TakenIn():
                    refused.append(f"{file} has no run with a policy, and is left as it is")
            except UserError as error:
                refused.append(in_options(error))
    if as_json:
        print_json([{"path": str(file), **dataclasses.asdict(one)} for file, one in taken.items()])
    else:
        for file, one in taken.items():
            print_text(f"{file}: {one.recorded} imported, {one.known} already there")
            for word in (*one.kept, *one.set_aside):
                print_text(f"- {word}")
    if refused:
        print_error("; ".join(refused))
        return EXIT_USAGE
    return EXIT_OK


def _cells(use: PolicyUseFacts, metric: Metric, title: str) -> Row:
    reached = named_text(accuracy_text(use.result.accuracy, metric), metric, title)
    return [
        ("workload", use.job.workload),
        ("version", str(use.policy_version)),
        ("seed", str(use.seed)),
        (title, "diverged" if use.result.diverged else reached),
        ("kept", {True: "yes", False: "no", None: "unknown"}[use.result.kept]),
        ("seconds", seconds_text(use.training_seconds)),
        ("guard", use.guard.state),
        ("held", percent_text(use.guard.held_percent)),
        ("ended", str(use.ended_at.date())),
        ("under", conditions_text(*values_of(use.under)) or NONE),
    ]
