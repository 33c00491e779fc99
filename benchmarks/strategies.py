"""Search strategies on the same problems: what they cost, and how good their answers are.

    python -m benchmarks.strategies [--problems 2000] [--first-problem 0] [--gp-problems 100]
        [--simulations 1000] [--logs FOLDER] [--processes 2] [--json FILE]

The problems are generated jobs (`generated_problems` says what is assumed) and the published runs
(`recorded_problems`). Every strategy sees the same runs: the third run at a switch point is the
same for all of them. Figures do not depend on the number of processes. `--problems 0` or
`--simulations 0` leaves a part out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.console import at_most, new_table, parser
from benchmarks.contenders import (
    BASELINE_RUNS,
    REFERENCE,
    TRIALS,
    Contender,
    Outcome,
    Score,
    contenders,
    has_gp,
    judged,
    score,
)
from benchmarks.problems import PAPER, Problem, generated_problem, recorded_jobs
from syncswitch.searcher.speed_up import Estimate

CHUNK = 10
KINDS = {"new job": False, "recurring job": True}

ProblemOf = Callable[[int], Problem]
Outcomes = dict[str, dict[int, Outcome]]

NOTES = (
    "Answers: the three most frequent. Cost, regret and time of the policy are in trainings with"
    f" BSP alone; ratio: mean cost by that of {REFERENCE} on the same problems. After a value its"
    " 95 % interval.",
    "Success: the answer that the strategy would give without noise. For the paper's that is "
    "the end of its own walk, on 1/2^M of the range; for all others the earliest acceptable of "
    "100, 50, 25, ... %.",
    "Too early: the answer loses more than beta. Regret: time of the policy above that of the best "
    "switch on no grid; both only of answers that are not too early.",
    f"Grid, random and Optuna ({TRIALS} trials) measure A of a new job with {BASELINE_RUNS} runs "
    "of BSP, and pay every run whole. Of a recurring job all know A from earlier runs. Means: the "
    "answer is the earliest switch point whose runs are acceptable on average; best trial: "
    "Optuna's own answer.",
)


def main() -> None:
    options = _options()
    # numpy's threads would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console(width=190, highlight=False)
    console.print(*NOTES, sep="\n")
    if not has_gp():
        console.print("Optuna GP is left out: it needs PyTorch, which is not installed.")
    context = multiprocessing.get_context("spawn")
    report: dict[str, Any] = {}
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        for title, problem_of, numbers in _parts(options, console):
            for kind, is_known in KINDS.items():
                slow = numbers[: options.gp_problems]
                heading = f"{title}, {kind}"
                outcomes = _play(pool, heading, problem_of, is_known, numbers, slow)
                report[heading] = _report(console, heading, outcomes)
                if options.json:
                    options.json.write_text(json.dumps(report, indent=2) + "\n")


def _options() -> argparse.Namespace:
    arguments = parser(
        __doc__, problems=2000, first_problem=0, gp_problems=100, simulations=1000, logs=PAPER,
        processes=2, json=Path,
    )  # fmt: skip
    options = arguments.parse_args()
    if options.json and not options.json.parent.is_dir():
        arguments.error(f"--json {options.json}: the folder does not exist; make it")
    return options


def _parts(options: argparse.Namespace, console: Console) -> Iterator[tuple[str, ProblemOf, range]]:
    """Title, problems and their numbers."""
    if options.problems:
        first = options.first_problem
        yield "generated jobs", generated_problem, range(first, first + options.problems)
    if not options.simulations:
        return
    if not options.logs.is_dir():
        console.print(f"The published logs are left out: they are not at {options.logs}.")
        return
    for setup, job in recorded_jobs(options.logs).items():
        yield setup, job.problem, range(options.simulations)


def _play(
    pool: ProcessPoolExecutor,
    heading: str,
    problem_of: ProblemOf,
    is_known: bool,
    numbers: Sequence[int],
    slow_numbers: Sequence[int],
) -> Outcomes:
    """Lets every strategy search on every problem; by name of strategy and number of problem."""
    chunks = [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)]
    jobs = [
        pool.submit(_play_chunk, problem_of, is_known, chunk, set(chunk) & set(slow_numbers))
        for chunk in chunks
    ]
    progress = Console(stderr=True)
    found: Outcomes = defaultdict(dict)
    for job in track(jobs, heading, console=progress, disable=not progress.is_terminal):
        for name, number, outcome in job.result():
            found[name][number] = outcome
    return found


def _play_chunk(
    problem_of: ProblemOf, is_known: bool, numbers: Sequence[int], slow_numbers: set[int]
) -> list[tuple[str, int, Outcome]]:
    def tried(contender: Contender, number: int) -> bool:
        return number in slow_numbers or not contender.is_slow

    return [
        (name, number, outcome)
        for contender in contenders()
        for number in numbers
        if tried(contender, number)
        for name, outcome in judged(contender, problem_of(number), is_known)
    ]


def _report(console: Console, heading: str, outcomes: Outcomes) -> dict[str, Any]:
    scores = [score(name, found, outcomes[REFERENCE]) for name, found in outcomes.items()]
    console.print(f"\n{heading}", _score_table(scores), sep="\n")
    return {"strategies": [dataclasses.asdict(one) for one in scores]}


def _score_table(scores: Sequence[Score]) -> Table:
    columns = ("n", "runs", "cost", "ratio", "success %", "too early %", "regret", "policy time")
    table = new_table("strategy", "answers", *columns, left=2, box=SIMPLE)
    for one in scores:
        table.add_row(
            one.strategy,
            ", ".join(f"{percent:g} %: {count}" for percent, count in one.answers),
            str(one.problems),
            f"{one.runs:.1f}",
            _mean_cell(one.cost, 2),
            _mean_cell(one.cost_ratio, 3),
            _share_cell(one.success_percent),
            _share_cell(one.too_early_percent),
            _mean_cell(one.regret, 3),
            _mean_cell(one.policy_time, 3),
        )
    return table


def _mean_cell(estimate: Estimate | None, digits: int) -> str:
    """Its interval is symmetric."""
    if estimate is None:
        return "-"
    return f"{estimate.value:.{digits}f} ±{estimate.high - estimate.value:.{digits}f}"


def _share_cell(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} ({estimate.low:.1f}-{estimate.high:.1f})"


if __name__ == "__main__":
    with at_most(21_600):
        main()
