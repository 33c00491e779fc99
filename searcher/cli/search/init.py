"""`syncswitch-search init`: the workload of a first search of one's own."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import whole_file
from syncswitch.trainers.cli.console import echo, print_json
from syncswitch.trainers.cli.options import debug_option, json_option


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="file.py:function or module:function that builds a Keras model, keras.applications:NAME,"
    " or a .keras file.",
)
@click.option(
    "--data",
    required=True,
    metavar="DATA",
    help="file.py:function or module:function that loads (inputs, labels), or these twice, the"
    " second ones to test with; a .npz file; or a .csv file.",
)
@click.option("--label", metavar="COLUMN", help="Of a .csv file, the column with the labels.")
@click.option("--name", help="What people call the job.  [default: the name of FILE]")
@click.option("--epochs", type=click.IntRange(1, 1_000_000), default=10, show_default=True)
@click.option("--batch-size", type=click.IntRange(1, 1_000_000), default=32, show_default=True)
@json_option
@debug_option
def init(
    file: Path,
    model: str,
    data: str,
    label: str | None,
    name: str | None,
    epochs: int,
    batch_size: int,
    as_json: bool,
) -> None:
    """Writes FILE, a workload for a model and data of yours, and tries it.

    Each line of it says what it means, so that it can be changed. The model is trained for three
    steps: what is wrong shows at once. Without test data, a fifth of the examples is kept for that.
    """
    from syncswitch.trainers.keras_api.draft.drafting import draft, try_workload

    if file.suffix != ".py":
        raise UserError(f"FILE is {str(file)!r}; give a name that ends in .py")
    if file.exists():
        raise UserError(f"{file} is there already; name another file, or remove it")
    name = name or file.stem.replace("_", "-")
    if not re.fullmatch(r"[\w.-]+", name):
        raise UserError(f"--name is {name!r}; give letters, digits, dots, hyphens and underscores")
    text = draft(file, name, model, data, label, epochs, batch_size)
    with whole_file(file) as written:
        written.write(text.encode())
    tried = try_workload(f"{file}:workload")
    if as_json:
        print_json({"file": str(file), "workload": name, **dataclasses.asdict(tried)})
        return
    echo(
        f"{file} written, and three steps trained with it: {tried.parameters:,} parameters,"
        f" {tried.examples:,} examples, {tried.test_examples:,} to test with,"
        f" {1000 * tried.seconds:.1f} ms for a step"
    )
    echo(f"Look at its learning rate and length ({tried.total_worker_steps:,} worker-steps); then:")
    echo(f"  syncswitch-run {file}:workload --switch-at 100    # as it trains with BSP alone")
    echo(f"  syncswitch-search run {file}:workload             # finds when to switch")
