"""What a training that nobody here wrote gets: lines changed, answer, truth, and ten uses.

    python -m benchmarks.foreign SCRIPT --total-steps N [--original FILE] [--python PROGRAM]
        [--arguments "--switch-step {switch_step} --seed {seed}"] [--expected-runs 10] [--runs 3]
        [--points 100 50 25 12.5 6.25 0] [--json FILE] [-- OPTIONS OF --trainer command]

The script stands outside of the repository, with the few lines added that it needs; `--original` is
what it was before. All is done by the programs, as users would. The truth is a sweep with seeds
that the search has not seen: the switch point of the least time that keeps the accuracy. A use is
kept if it loses at most the threshold against the sweep's mean of the first way, and its time is
relative to that of the first way there. Uses after the search keep to its policy; those from
nothing have no search before them, and learn from each other.
"""

from __future__ import annotations

import difflib
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.console import at_most, new_table, parser

_SEARCH_SEED, _SWEEP_SEED = 0, 1_000_003
_HOURS = 3600.0


@dataclass(frozen=True)
class Job:
    """A training command, and the folder of its runs and databases."""

    script: Path
    options: tuple[str, ...]
    folder: Path

    def ask(self, program: str, *words: str, database: str) -> Any:
        """What a program answers as JSON; what it tells people goes to standard error."""
        path = Path(sys.executable).parent / program
        given = (*self.options, "--storage", f"sqlite:///{self.folder / database}.db", "--json")
        done = subprocess.run(
            [path, *words, *given], cwd=self.folder, stdout=subprocess.PIPE, check=True, text=True
        )
        return json.loads(done.stdout)


@dataclass(frozen=True)
class Uses:
    """Trainings of a job in a row.

    Attributes:
        shares: The time of each over that of the first way alone.
        switches: The switch point that each began with.
        held: The switch point that each ended with; 100 for the first way alone.
        kept: How many lose at most the threshold.
    """

    shares: list[float]
    switches: list[float]
    held: list[float]
    kept: int


def lines_changed(original: Path, script: Path) -> str:
    """How many lines are added and removed."""
    texts = [path.read_text().splitlines() for path in (original, script)]
    changes = [line[0] for line in difflib.ndiff(*texts)]
    return f"{changes.count('+')} added, {changes.count('-')} removed of {len(texts[0])}"


def truth_of(job: Job, points: list[float], runs: int, threshold: float) -> list[dict[str, Any]]:
    """The rows of a sweep, with the time of each switch point over that of the first way."""
    at = ("--at", ",".join(f"{point:g}" for point in points), "--runs", str(runs))
    words = ("sweep", job.script.stem, *at, "--threshold", f"{threshold:g}")
    seed = ("--seed", str(_SWEEP_SEED))
    rows: list[dict[str, Any]] = job.ask("syncswitch-search", *words, *seed, database="sweep")
    first = next(row for row in rows if row["switch_percent"] == 100)
    for row in rows:
        row["share"] = row["training_seconds"] / first["training_seconds"]
    return rows


def uses_of(job: Job, number: int, first: dict[str, Any], database: str, *more: str) -> Uses:
    """Trainings one after another, held against the first way of the sweep."""
    sign = -1.0 if first["metric_goal"] == "min" else 1.0
    least = sign * first["mean_value"] - first["threshold"]
    words = (job.script.stem, *more)
    found = [job.ask("syncswitch-run", *words, database=database) for _ in range(number)]
    held = [one["guard"]["held_percent"] for one in found]
    return Uses(
        [one["training_seconds"] / first["training_seconds"] for one in found],
        [one["switch_percent"] for one in found],
        [100.0 if percent is None else percent for percent in held],
        sum(sign * one["value"] >= least for one in found),
    )


def report(console: Console, found: dict[str, Any]) -> None:
    table = new_table("truth: switch at", "kept runs", "value", "time / first", left=0)
    for row in found["truth"]:
        value = "-" if row["mean_value"] is None else f"{row['mean_value']:.4f}"
        percent, kept = f"{row['switch_percent']:g} %", f"{row['kept_runs']} of {row['runs']}"
        table.add_row(percent, kept, value, f"{row['share']:.2f}")
    console.print(table)
    console.print(f"lines changed: {found['lines']}")
    console.print(
        f"answer: {found['answer']:g} %, threshold {found['threshold']:g}, for"
        f" {found['cost']:.1f} trainings in the first way; truth: {found['best'][1]:g} %"
    )
    for name in ("after the search", "from nothing"):
        uses = Uses(**found[name])
        switches = ", ".join(
            f"{percent:g}" if percent == held else f"{percent:g} (held {held:g})"
            for percent, held in zip(uses.switches, uses.held, strict=True)
        )
        mean = statistics.fmean(uses.shares)
        console.print(
            f"{len(uses.shares)} uses {name}: {mean:.2f} of the time of the first way,"
            f" {uses.kept} kept; switches at {switches} %"
        )


def main() -> None:
    options = parser(
        __doc__,
        total_steps=int,
        original=Path,
        python=sys.executable,
        arguments="--switch-step {switch_step} --seed {seed}",
        expected_runs=10,
        runs=3,
        points=[100.0, 50.0, 25.0, 12.5, 6.25, 0.0],
        json=Path,
        hours=3.0,
    )
    options.add_argument("script", type=Path)
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    given = options.parse_args(words[:end])
    script = given.script.resolve()
    command = f"{shlex.join([given.python, str(script)])} {given.arguments}"
    own = ("--trainer", "command", "--command", command, "--total-steps", str(given.total_steps))
    with at_most(given.hours * _HOURS), tempfile.TemporaryDirectory() as folder:
        job = Job(script, (*own, *words[end + 1 :]), Path(folder))
        search = ("run", script.stem, "--seed", str(_SEARCH_SEED))
        answer = job.ask("syncswitch-search", *search, database="search")
        threshold = answer["policy"]["threshold"]
        rows = truth_of(job, given.points, given.runs, threshold)
        first = next(row for row in rows if row["switch_percent"] == 100)
        learns = ("--learn", "--expected-runs", str(given.expected_runs))
        found = {
            "script": script.name,
            "lines": lines_changed(given.original, script) if given.original else "not known",
            "answer": answer["policy"]["switch_percent"],
            "threshold": threshold,
            "cost": answer["search"]["cost_bsp_multiples"],
            "truth": rows,
            "best": min(
                (row["share"], row["switch_percent"]) for row in rows if row["keeps_accuracy"]
            ),
            "after the search": asdict(uses_of(job, given.expected_runs, first, "search")),
            "from nothing": asdict(uses_of(job, given.expected_runs, first, "nothing", *learns)),
        }
    report(Console(), found)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
