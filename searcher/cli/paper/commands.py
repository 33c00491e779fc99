"""`syncswitch-search paper`: the papers' figures, from released logs or from runs."""

from __future__ import annotations

import click

from syncswitch.searcher.cli.paper.figures import list_figures, run, show
from syncswitch.searcher.cli.paper.manifest import manifest
from syncswitch.trainers.cli.group import SubcommandGroup


@click.group(cls=SubcommandGroup)
def paper() -> None:
    """Makes the figures of the papers, from their authors' logs or from runs of yours."""


for command in (list_figures, run, show, manifest):
    paper.add_command(command)
