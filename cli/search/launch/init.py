"""`syncswitch-search init`: writes a workload to start from."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path

import click

from syncswitch.cli.console import echo
from syncswitch.cli.options import debug_option
from syncswitch.storage.errors import UserError
from syncswitch.storage.files import whole_file


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@debug_option
def init(file: Path) -> None:
    """Write FILE, a workload to start from that trains as it is.

    Comments in it explain each field: put in your model and data.
    """
    if file.suffix != ".py":
        raise UserError(
            f"FILE is {str(file)!r}; give a name that ends in .py", code="parameter-invalid"
        )
    if file.exists():
        raise UserError(
            f"{file} already exists; name another file, or remove it", code="file-unusable"
        )
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", file.stem).strip("-") or "workload"
    template = importlib.resources.files("syncswitch.trainers.workloads") / "template.py"
    text = template.read_text("utf-8").replace("FILE:", f"{file.name}:").replace("NAME", name)
    with whole_file(file) as written:
        written.write(text.encode())
    echo(f"{file} written. Put in your model and data, then:")
    echo(f"  syncswitch-run {file}:workload --switch-at 100    # trains with BSP alone")
    echo(f"  syncswitch-search run {file}:workload             # finds when to switch")
