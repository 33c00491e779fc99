"""The straggler detector on generated rounds: false alarms, and how soon it finds a straggler.

    python -m benchmarks.detector [--runs 100] [--rounds 5000] [--processes 2]
        [--windows 5x3,3x10x0.2]

Each round is a worker-step of every worker; `tests/trainers/stragglers/traces.py` says how its time
varies. From round 20 on one worker, or two, are slower by a factor, and rounds are judged. Who is
detected leaves, as with the elastic policy. Who is not detected within 100 rounds is missed. A
false alarm is a detection where nobody is slow.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from rich.box import SIMPLE
from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from benchmarks.traces import NOISES, round_seconds
from syncswitch.trainers.stragglers.detector import DetectorSettings, StragglerDetector

SIZES = (4, 8, 16)
SLOWDOWNS = (1.2, 1.5, 2.0, 5.0)
START_ROUND, PATIENCE_ROUNDS = 20, 100


@dataclass(frozen=True)
class Case:
    """One row: a cluster, its noise, and the detector's switch points."""

    workers: int
    noise: str
    settings: DetectorSettings


@dataclass(frozen=True)
class Score:
    """The detector's results in a case; delays by (stragglers, slowdown), infinite if missed."""

    false_alarms_per_1000: float
    delays: dict[tuple[int, float], list[float]]


def detections(
    seconds: np.ndarray, settings: DetectorSettings, leave: bool
) -> Iterator[tuple[int, int]]:
    """Round and worker of each detection."""
    detector = StragglerDetector(range(seconds.shape[1]), settings)
    for number, row in enumerate(seconds.tolist()):
        for worker, busy_seconds in enumerate(row):
            detector.observe(worker, busy_seconds)
        for finding in detector.judge(0, float(number)) if number >= START_ROUND else ():
            if finding.kind == "detected" and finding.worker is not None:
                yield number, finding.worker
                if leave:
                    detector.leave(finding.worker)


def delays(case: Case, stragglers: int, slowdown: float, runs: int) -> list[float]:
    """Rounds until each straggler of each run is detected."""
    found = []
    for run in range(runs):
        rng = np.random.default_rng((run, case.workers, stragglers))
        rounds = START_ROUND + PATIENCE_ROUNDS
        seconds = round_seconds(rng, case.noise, rounds, case.workers)
        seconds[START_ROUND:, :stragglers] *= slowdown
        waiting = set(range(stragglers))
        for number, worker in detections(seconds, case.settings, leave=True):
            if worker in waiting:
                waiting.discard(worker)
                found.append(number - START_ROUND + 1.0)
            if not waiting:
                break
        found += [math.inf] * len(waiting)
    return found


def score(case: Case, runs: int, rounds: int) -> Score:
    rng = np.random.default_rng((case.workers, rounds))
    calm = round_seconds(rng, case.noise, rounds, case.workers)
    alarms = sum(1 for _ in detections(calm, case.settings, leave=False))
    return Score(
        1000.0 * alarms / rounds,
        {
            (stragglers, slowdown): delays(case, stragglers, slowdown, runs)
            for stragglers, slowdown in itertools.product((1, 2), SLOWDOWNS)
        },
    )


def show(console: Console, settings: DetectorSettings, scores: dict[Case, Score]) -> None:
    title = f"windows of {settings.window_steps} steps, {settings.consecutive_windows} running"
    for stragglers in (1, 2):
        slowdowns = (f"x{slowdown:g}" for slowdown in SLOWDOWNS)
        heading = f"{title}; stragglers: {stragglers}"
        columns = ("n", "noise", "floor", "false alarms", *slowdowns)
        table = new_table(*columns, left=0, title=heading, box=SIMPLE)
        for case, one in scores.items():
            table.add_row(
                str(case.workers),
                case.noise,
                f"{case.settings.relative_floor:.0%}",
                f"{one.false_alarms_per_1000:.1f}",
                *(cell(one.delays[stragglers, slowdown]) for slowdown in SLOWDOWNS),
            )
        console.print(table)


def cell(found: Sequence[float]) -> str:
    """Median and 90th percentile of the delay, and the share that is missed."""
    ordered = sorted(found)
    middle, late = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9))
    missed = sum(map(math.isinf, found)) / len(found)
    text = "/".join("-" if math.isinf(one) else f"{one:.0f}" for one in (middle, late))
    return f"{text} {missed:.0%}"


def main() -> None:
    options = _options()
    console = Console(width=110, highlight=False)
    console.print(
        "False alarms: detections in 1,000 rounds, all workers together. Under a slowdown: rounds "
        "until detection, median/90th percentile, then the share that is missed."
    )
    context = multiprocessing.get_context("spawn")
    most_seconds = 600 + len(options.windows) * (60 * options.runs + options.rounds)
    with at_most(most_seconds), ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        for settings in options.windows:
            cases = [
                Case(workers, noise, replace(settings, relative_floor=floor))
                for workers, noise in itertools.product(SIZES, NOISES)
                for floor in (0.0, settings.relative_floor)
            ]
            jobs = [pool.submit(score, case, options.runs, options.rounds) for case in cases]
            scores = dict(zip(cases, (job.result() for job in jobs), strict=True))
            show(console, settings, scores)


def _options() -> argparse.Namespace:
    arguments = parser(__doc__, runs=100, rounds=5000, processes=2)
    arguments.add_argument(
        "--windows",
        type=lambda text: [_settings(one) for one in text.split(",")],
        default=[DetectorSettings()],
        metavar="STEPSxRUNNING[xFLOOR],...",
    )
    return arguments.parse_args()


def _settings(text: str) -> DetectorSettings:
    steps, running, *floor = text.split("x")
    settings = DetectorSettings(int(steps), int(running))
    return replace(settings, relative_floor=float(floor[0])) if floor else settings


if __name__ == "__main__":
    main()
