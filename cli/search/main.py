"""The command `syncswitch-search`."""

from __future__ import annotations

import click

from syncswitch.cli.group import CONTEXT_SETTINGS, ProgramGroup

_COMMANDS = {
    "init": ("launch.init:init", "Writes FILE, a workload that trains as it is, to begin with."),
    "run": ("launch.run:run", "Searches for the timing policy of WORKLOAD and saves it."),
    "evaluate": (
        "launch.evaluate:evaluate",
        "Trains WORKLOAD with a POLICY that was found for another job.",
    ),
    "sweep": (
        "launch.sweep:sweep",
        "Trains WORKLOAD at chosen switch points, and compares them with one target.",
    ),
    "status": (
        "status:status",
        "Shows how far each search and evaluation is, of WORKLOAD or of all.",
    ),
    "report": (
        "report:report",
        "Writes what is known of WORKLOAD on one HTML page, for people who would rather look.",
    ),
    "trials": ("runs.trials:trials", "Lists the training runs, of WORKLOAD or of all."),
    "switch-points": (
        "runs.switch_points:switch_points",
        "Shows accuracy and time of each switch point, of WORKLOAD or of all.",
    ),
    "policy": (
        "policy.commands:policy",
        "Looks up, compares, exchanges and rolls back timing policies.",
    ),
    "uses": (
        "uses:uses",
        "Lists the later runs with policies, and takes in those that wait in files.",
    ),
    "export": (
        "runs.export:export",
        "Copies searches, later runs and policies to MLflow, of WORKLOAD or of all.",
    ),
    "import": (
        "runs.imports:import_runs",
        "Imports the training runs in TABLE, made elsewhere.",
    ),
    "cost": ("cost:cost", "Says what a search for WORKLOAD costs, by replaying its recorded runs."),
    "profile": (
        "profile:profile",
        "Says what simulated clusters are like (run --trainer simulated --profile ...).",
    ),
    "db": ("db:db", "Takes care of the database."),
    "completion": (
        "completion:completion",
        "Prints what makes SHELL complete syncswitch-search and syncswitch-run.",
    ),
}


@click.group(
    name="syncswitch-search",
    cls=ProgramGroup,
    package="syncswitch.cli.search",
    lazy=_COMMANDS,
    context_settings=CONTEXT_SETTINGS,
)
@click.version_option(package_name="syncswitch", prog_name="syncswitch-search")
def main() -> None:
    """Finds when a training job should switch from synchronous to asynchronous SGD.

    \b
    syncswitch-search run digits             searches, and saves the timing policy
    syncswitch-search policy lookup digits   says what was found
    syncswitch-run digits                    trains with it
    """  # noqa: D301 (click wants the character itself)
