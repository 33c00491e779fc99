"""`syncswitch-search paper manifest`: a manifest of the runs that the authors released."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from syncswitch.storage.files import whole_file
from syncswitch.storage.importing.released_logs import COLUMNS, read_released_runs
from syncswitch.trainers.cli.console import echo
from syncswitch.trainers.cli.options import debug_option


@click.command()
@click.argument(
    "checkout", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="CHECKOUT"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("manifest.csv"),
    show_default=True,
    help="File to write.",
)
@debug_option
def manifest(checkout: Path, output: Path) -> None:
    """Writes a manifest of the runs that the authors of Sync-Switch released, for `import`.

    CHECKOUT is a checkout of their repository, cake-lab/Sync-Switch, or its folder data: logs of
    ResNet-32 on CIFAR-10 with 8 and with 16 workers, and of ResNet-50 on CIFAR-100, under the
    Apache License 2.0. Nothing in it is changed. Two folders have names that their logs contradict;
    they get the switch point that they had.
    """
    found = read_released_runs(checkout)
    with whole_file(output, replaces=(",".join(COLUMNS[:3]).encode(),)) as file:
        file.write(found.manifest().encode())
    echo(f"{output}: {len(found.runs)} runs")
    for run in found.corrected:
        echo(f"- {run.run_dir}: its log shows a switch at {run.switch_percent:g} %, taken as that")
    for folder in found.unread:
        echo(f"- {folder}: left out, its name does not say what was run")
    words = ("syncswitch-search", "import", str(output), "--logs", str(found.logs))
    echo(f"import them with:\n  {shlex.join(words)}")
