"""`syncswitch-search profile`: the profiles of simulated clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from syncswitch.cli.completion import complete_profile, complete_workload
from syncswitch.cli.console import print_json, print_rows, print_text
from syncswitch.cli.group import SubcommandGroup
from syncswitch.cli.options import (
    FiniteRange,
    common_options,
    debug_option,
    json_option,
    workers_option,
)
from syncswitch.cli.search.rows import output_option
from syncswitch.searcher.words import counted, seconds_text, value_text
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.trainers.protocols import check_protocols, choose_protocol, parse_pair
from syncswitch.trainers.replay import read_recording
from syncswitch.trainers.simulated.profile import load_profile, profile_names, write_profile
from syncswitch.trainers.simulated.timeline import TimedJob, simulate_phases

_MOST_SEEDS = 100
_BANDWIDTH = FiniteRange(1, 1e15)
_parameters_option = click.option(
    "--parameters",
    type=click.IntRange(0, 10**14),
    default=0,
    show_default=True,
    help="Parameters of the model, moving statistics included; needed for a profile with limited"
    " bandwidths.",
)


@click.group(cls=SubcommandGroup)
def profile() -> None:
    """List, show and calibrate profiles of simulated clusters."""


@profile.command(name="list")
@json_option
@debug_option
def list_profiles(as_json: bool) -> None:
    """List the profiles that come with syncswitch."""
    descriptions = {name: load_profile(name).description for name in profile_names()}
    if as_json:
        print_json(descriptions)
    else:
        for name, description in descriptions.items():
            print_text(f"{name}: {description}")


@profile.command()
@click.argument("source", metavar="NAME|FILE", shell_complete=complete_profile)
@debug_option
def show(source: str) -> None:
    """Print a profile as JSON, including its default values."""
    print_json(load_profile(source).model_dump(mode="json"))


@profile.command()
@click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
@workers_option(None)
@click.option(
    "--variation",
    type=FiniteRange(0, 10),
    default=0.1,
    show_default=True,
    help="Standard deviation of a worker's step time over its mean, which recorded times do not"
    " show.",
)
@click.option(
    "--worker-bandwidth",
    metavar="BYTES",
    type=_BANDWIDTH,
    help="Bytes per second of each worker's link.  [default: unknown; sending counts as computing]",
)
@click.option(
    "--server-bandwidth",
    metavar="BYTES",
    type=_BANDWIDTH,
    help="Bytes per second of the parameter server's link.",
)
@click.option(
    "--latency",
    "latency_seconds",
    metavar="SECONDS",
    type=FiniteRange(0, 1e9),
    default=0.0,
    show_default=True,
    help="Latency of each message.",
)
@_parameters_option
@output_option
@common_options
def calibrate(
    reference: str,
    workers: int | None,
    variation: float,
    worker_bandwidth: float | None,
    server_bandwidth: float | None,
    latency_seconds: float,
    parameters: int,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """Make a profile on which BSP and ASP take as long as in WORKLOAD's recorded runs."""
    from syncswitch.trainers.simulated.calibration import Network, measured_pace
    from syncswitch.trainers.simulated.calibration import calibrate as fit

    has_bandwidth = (worker_bandwidth, server_bandwidth) != (None, None)
    if has_bandwidth and not parameters:
        raise UserError(
            "a bandwidth needs the size of the model: give --parameters, the number of its"
            " parameters and moving statistics",
            code="parameter-missing",
        )
    network = None
    if has_bandwidth or latency_seconds:
        network = Network(worker_bandwidth, server_bandwidth, latency_seconds, parameters)
    with open_database(storage_url, create=False) as database:
        recording = read_recording(database, reference, workers=workers, protocols=("bsp", "asp"))
    told = "Sending is part of these times; no bandwidth is known."
    if network is not None:
        told = (
            f"Bandwidths and latency were given, and {counted(network.values, 'parameter')}; what"
            " they leave is computing."
        )
    identity = recording.identity
    runs = [run.phases for run in recording.runs if not (run.diverged or run.stopped_early)]
    measured = measured_pace(identity.workers, runs)
    found = fit(
        measured,
        variation,
        f"Calibrated from {counted(measured.runs, 'run')} of {identity.name} with"
        f" {counted(identity.workers, 'worker')}: {measured.bsp_seconds:.4g} s for a BSP round,"
        f" {measured.asp_seconds:.4g} s for a worker's step in ASP. {told}",
        network or Network(),
    )
    if output is None or as_json:
        print_json(found.model_dump(mode="json", exclude_defaults=True))
    if output is not None:
        write_profile(found, output)
        if not as_json:
            print_text(f"{found.description} Written to {output}.")


@profile.command()
@click.argument("source", metavar="NAME|FILE", shell_complete=complete_profile)
@workers_option(8)
@click.option(
    "--worker-steps",
    type=click.IntRange(1, 10_000_000),
    default=10_000,
    show_default=True,
    help="Length of the job (W).",
)
@_parameters_option
@click.option(
    "--protocols",
    metavar="NAME,...",
    default="bsp,asp",
    show_default=True,
    help="Protocols to time, each alone; with --at, the two before and after the switch.",
)
@click.option("--at", metavar="PERCENT,...", help="Switch points to time, in percent of the job.")
@click.option(
    "--seeds",
    type=click.IntRange(1, _MOST_SEEDS),
    default=3,
    show_default=True,
    help="Number of runs to average over.",
)
@json_option
@debug_option
def times(
    source: str,
    workers: int,
    worker_steps: int,
    parameters: int,
    protocols: str,
    at: str | None,
    seeds: int,
    as_json: bool,
) -> None:
    """Estimate how long a job would take on a simulated cluster, without training."""
    cluster = load_profile(source)
    cluster.check_workers(workers, source)
    rows: list[dict[str, Any]] = []
    for label, pair, percent in _asked(protocols, at, workers):
        job = TimedJob(workers, worker_steps, pair, parameters)
        runs = [simulate_phases(cluster, job, percent, seed) for seed in range(seeds)]
        seconds = sum(phase.seconds for phases in runs for phase in phases) / seeds
        # Of the last phase; replicas have none.
        last: list[Any] = [phases[-1].mean_staleness for phases in runs]
        rows.append(
            {
                "run": label,
                "seconds": seconds,
                "times_as_fast": rows[0]["seconds"] / seconds if rows else 1.0,
                "mean_staleness": None if None in last else sum(last) / seeds,
            }
        )
    if as_json:
        print_json(rows)
        return
    print_rows(
        [
            [
                ("switch at" if at else "protocol", row["run"]),
                ("seconds", seconds_text(row["seconds"])),
                ("times as fast", f"{row['times_as_fast']:.2f}"),
                ("staleness at the end", value_text(row["mean_staleness"], ".1f")),
            ]
            for row in rows
        ]
    )


def _asked(
    protocols: str, at: str | None, workers: int
) -> list[tuple[str, tuple[str, str], float]]:
    if at is None:
        names = [choose_protocol(text).text for text in protocols.split(",")]
        check_protocols(names, workers)
        return [(name, (name, name), 100.0) for name in names]
    pair = parse_pair(protocols)
    check_protocols(pair, workers)
    return [(f"{percent:g} %", pair, percent) for percent in map(_percent, at.split(","))]


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise UserError(
            f"--at holds {text.strip()!r}: give percentages from 0 to 100, as in 100,50,0",
            code="parameter-invalid",
        )
    return value
