"""The command `syncswitch-search`.

Every module here is light at import: TensorFlow, Optuna and SQLAlchemy are imported inside the
commands that need them, so that `--help` answers at once.
"""

from __future__ import annotations

import click

from syncswitch.searcher.cli.completion import completion
from syncswitch.searcher.cli.cost import cost
from syncswitch.searcher.cli.db import db
from syncswitch.searcher.cli.evaluate import evaluate
from syncswitch.searcher.cli.imports import import_runs
from syncswitch.searcher.cli.policy import policy
from syncswitch.searcher.cli.profile import profile
from syncswitch.searcher.cli.report import report
from syncswitch.searcher.cli.run import run
from syncswitch.searcher.cli.status import status
from syncswitch.searcher.cli.switch_points import switch_points
from syncswitch.searcher.cli.trials import trials
from syncswitch.trainers.cli.console import ProgramGroup

__all__ = ["main"]


@click.group(
    name="syncswitch-search",
    cls=ProgramGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="syncswitch", prog_name="syncswitch-search")
def main() -> None:
    """Finds when a training job should switch from synchronous to asynchronous SGD.

    \b
    syncswitch-search run digits             searches, and saves the timing policy
    syncswitch-search policy lookup digits   says what was found
    syncswitch-run digits                    trains with it
    """  # noqa: D301 (click wants the character itself)


for _command in (
    run,
    evaluate,
    status,
    report,
    trials,
    switch_points,
    policy,
    import_runs,
    cost,
    profile,
    db,
    completion,
):
    main.add_command(_command)
