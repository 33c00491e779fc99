"""`syncswitch-search report`: one job on one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from syncswitch.cli.completion import complete_study
from syncswitch.cli.console import echo, print_json, print_note
from syncswitch.cli.options import common_options
from syncswitch.cli.search.selection import selection_options
from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.report.data import load_report
from syncswitch.searcher.report.page import page_of, write_page
from syncswitch.searcher.selection import Selection, named_jobs
from syncswitch.storage.policies.registry import CURRENT

_STANDARD_OUTPUT = Path("-")


@click.command()
@selection_options()
@click.option(
    "--study",
    metavar="NAME",
    shell_complete=complete_study,
    help="Search to show. Default: the one that found the current policy, else the newest.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="File to write; - for standard output.",
)
@common_options
def report(
    selection: Selection, study: str | None, output: Path, storage_url: str, as_json: bool
) -> None:
    """Write what is known about WORKLOAD as one HTML page with figures.

    The page shows the policy and how to use it, its time, quality and cost in numbers, accuracy
    and training time by switch point, later runs with the policy, the course of the search,
    accuracy over time, what the answer rests on, and the job. It also works for a search under
    way, and for runs that were only imported. The file opens in any browser and needs no network.

    WORKLOAD is a name, file.py:attribute, package.module:attribute, or at least 8 digits of a
    fingerprint. Add @VERSION or @ALIAS for another policy than the current one.
    """
    data = load_report(
        storage_url,
        selection.reference,
        workers=selection.workers,
        protocols=selection.protocols,
        cluster=selection.cluster,
        study=study,
        version=None if selection.choice == CURRENT else selection.choice,
    )
    if data.namesakes:
        print_note(
            f"the report is of the real job, on {data.identity.cluster}; of the same name:"
            f" {named_jobs(data.namesakes)}; show it with --cluster simulated or the fingerprint"
        )
    page = page_of(data, OPTION_WORDS)
    if output == _STANDARD_OUTPUT:
        sys.stdout.buffer.write(page.encode())
        return
    write_page(page, output)
    if as_json:
        print_json(
            {
                "path": str(output),
                "bytes": len(page.encode()),
                "workload": data.identity.name,
                "fingerprint": data.identity.fingerprint,
                "policy_version": None if data.answer is None else data.answer.version,
                "study": None if data.search is None else data.search.study,
                "runs": len(data.runs),
            }
        )
    else:
        echo(f"report of {data.identity.name} written to {output}; open it in a browser")
