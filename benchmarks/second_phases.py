"""Kept shares and times of recorded jobs by second phase: what the first guesses may rest on.

    python -m benchmarks.second_phases [--recordings asp=FOLDER qsr:8:RATE:semi-sync=FOLDER]
        [--write]

A recording is a second protocol and a folder of recorded jobs, see `benchmarks.recorded_jobs`.
Kept: the share of the runs that end at most 0.01 below the mean of BSP; time: relative to BSP.
`--write` puts them into `storage/policies/second_phases.json`, which is installed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.console import new_table, parser
from benchmarks.recorded_jobs import OWN_MOMENTUM_JOBS, SEMI_SYNC_JOBS, TrustJob, trust_jobs

FILE = Path(__file__).parents[1] / "storage" / "policies" / "second_phases.json"
PROVENANCE = {
    "asp": "each worker keeps its own momentum after the switch",
    "qsr:8:RATE:semi-sync": "the period is over once all workers together have finished, rather"
    " than begun, n H steps; momenta are averaged",
}
"""What sets a recording apart, by its second protocol."""
GENERATOR = (
    "recorded in November 2026 by a study's simulator, which trains models with truly stale"
    " gradients on a virtual clock, 48 seeds at each switch point"
)


def phase(second: str, jobs: Sequence[TrustJob]) -> dict[str, Any]:
    """What the file holds of a second phase."""
    percents = sorted({percent for job in jobs for percent in job.percents})
    return {
        "second_protocol": second,
        "provenance": "; ".join(filter(None, [GENERATOR, PROVENANCE.get(second)])),
        "runs": len(jobs[0].accuracies),
        "percents": percents,
        "jobs": {
            job.name: {
                "kept_shares": [round(job.kept_share(percent), 4) for percent in percents],
                "times": [round(job.time(percent), 4) for percent in percents],
            }
            for job in jobs
        },
    }


def table(found: dict[str, Any]) -> Table:
    """The kept shares of a second phase by job and switch point, and what the jobs take."""
    percents = found["percents"][::-1]
    made = new_table(
        "job", *(f"{percent:g} %" for percent in percents), title=found["second_protocol"]
    )
    kept = {name: job["kept_shares"][::-1] for name, job in found["jobs"].items()}
    for name, shares in kept.items():
        made.add_row(name, *(f"{share:.2f}" for share in shares))
    made.add_section()
    times = [job["times"][::-1] for job in found["jobs"].values()]
    for name, rows in (("mean", [*kept.values()]), ("time, mean", times)):
        made.add_row(name, *(f"{statistics.fmean(one):.3f}" for one in zip(*rows, strict=True)))
    return made


def main() -> None:
    arguments = parser(
        __doc__,
        recordings=[f"asp={OWN_MOMENTUM_JOBS}", f"qsr:8:RATE:semi-sync={SEMI_SYNC_JOBS}"],
        write=False,
    )
    given = arguments.parse_args()
    phases, console = [], Console(width=110)
    for recording in given.recordings:
        second, _, folder = recording.partition("=")
        if not list(Path(folder).glob("*.npz")):
            arguments.error(f"--recordings {recording}: no recorded jobs there; give their folder")
        phases.append(phase(second, trust_jobs(Path(folder))))
        console.print(table(phases[-1]))
    if given.write:
        FILE.write_text(json.dumps({"phases": phases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
