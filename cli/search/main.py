"""The command `syncswitch-search`."""

from __future__ import annotations

import click

from syncswitch.cli.group import CONTEXT_SETTINGS, ProgramGroup

_COMMANDS = {
    "init": ("launch.init:init", "Write FILE, a workload to start from that trains as it is."),
    "run": ("launch.run:run", "Search for the timing policy of WORKLOAD and save it."),
    "sweep": (
        "launch.sweep:sweep",
        "Train WORKLOAD at chosen switch points and compare them with one target.",
    ),
    "status": (
        "status:status",
        "Show the progress of each search and sweep of WORKLOAD, or of all.",
    ),
    "report": (
        "report:report",
        "Write what is known about WORKLOAD as one HTML page with figures.",
    ),
    "trials": ("trials:trials", "List the training runs of WORKLOAD, or of all."),
    "switch-points": (
        "trials:switch_points",
        "Show accuracy and time of each switch point of WORKLOAD, or of all.",
    ),
    "policy": ("policy:policy", "Look up, compare, exchange and roll back timing policies."),
    "uses": ("uses:uses", "List later runs with policies, and import those that wait in files."),
    "export": (
        "exchange:export",
        "Copy searches, later runs and policies of WORKLOAD, or of all, to MLflow.",
    ),
    "import": ("exchange:import_runs", "Import training runs made elsewhere from TABLE."),
    "profile": ("profile:profile", "List, show and calibrate profiles of simulated clusters."),
    "db": ("db:db", "Check and upgrade the database."),
    "completion": (
        "completion:completion",
        "Print the script that makes SHELL complete both programs.",
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
    """Find when a training job should switch from synchronous to asynchronous SGD.

    \b
    syncswitch-search run digits             search, and save the timing policy
    syncswitch-search policy lookup digits   show what was found
    syncswitch-run digits                    train with it
    """  # noqa: D301 (click wants the character itself)
