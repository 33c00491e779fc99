"""The results of a failure campaign, as lines of JSON and as a page."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from benchmarks.failure_cases import KINDS, REFERENCE, SEVERAL, TOTAL_WORKER_STEPS, Case
from benchmarks.failure_checks import Noise
from syncswitch.storage.records.trial import TrialRecord

_HEAD = (
    "what happened",
    "runs",
    "failed",
    "right number of steps",
    "accuracy, mean difference (pp)",
    "largest (pp)",
    "times it went on",
    "seconds to go on, median",
    "90 %",
    "leftovers",
)


@dataclass
class Outcome:
    """The outcome of one run.

    Attributes:
        record: None where it raised or was stuck.
        problems: Why it counts as failed; none where it does not.
        leftovers: Whatever was there after the run and not before it.
        seconds_to_continue: From each loss until the run went on.
        starts: Number of times that it was started.
        wall_seconds: All of it, the start of a cluster included.
    """

    case: Case
    record: TrialRecord | None = None
    problems: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    seconds_to_continue: list[float] = field(default_factory=list)
    starts: int = 1
    wall_seconds: float = 0.0

    @property
    def is_failed(self) -> bool:
        return bool(self.problems or self.leftovers)

    @property
    def text(self) -> str:
        """One line for people."""
        result = "failed: " + "; ".join(self.problems + self.leftovers) if self.is_failed else "ok"
        accuracy = "-" if self.record is None else f"{100 * self.record.converged_accuracy:.2f} %"
        went_on = " ".join(f"{one:.2f}" for one in self.seconds_to_continue)
        return (
            f"{self.case.number:4} {self.wall_seconds:6.1f} s {accuracy:>8} {self.case.text}"
            f" [went on after: {went_on or '-'}] {result}"
        )


def json_line(outcome: Outcome, difference: float | None) -> str:
    record = outcome.record
    content: dict[str, Any] = {
        **asdict(outcome.case),
        "row": outcome.case.row,
        "problems": outcome.problems,
        "leftovers": outcome.leftovers,
        "seconds_to_continue": outcome.seconds_to_continue,
        "starts": outcome.starts,
        "wall_seconds": outcome.wall_seconds,
        "accuracy_difference": difference,
    }
    if record is not None:
        content |= {
            "worker_steps": record.worker_steps,
            "accuracy": record.converged_accuracy,
            "training_seconds": record.training_seconds,
            "phases": [asdict(phase) for phase in record.phases],
            "events": [asdict(event) for event in record.events],
        }
    return json.dumps(content)


def page(
    outcomes: Sequence[Outcome],
    noise: Noise,
    command: str,
    software: Sequence[tuple[str, str]],
    minutes: float,
) -> str:
    disturbed = [one for one in outcomes if one.case.kinds]
    failed = sum(one.is_failed for one in disturbed)
    rows = [*KINDS, SEVERAL, REFERENCE]
    grouped = {row: [one for one in outcomes if one.case.row == row] for row in rows}
    table = [_cells(row, found, noise) for row, found in grouped.items() if found]
    table.append(_cells("all disturbed runs", disturbed, noise))
    versions = ", ".join(f"{name} {version}" for name, version in software)
    pairs = ", ".join(",".join(pair) for pair in noise.means)
    lines = [
        "# Failures on purpose",
        "",
        f"{len(disturbed)} short runs with failures drawn by a seed, {failed} of which failed;"
        f" made by `{command}` on {datetime.now(timezone.utc):%Y-%m-%d} in {minutes:.0f} minutes."
        f" {versions}.",
        "",
        *_markdown(_HEAD, table),
        "",
        f"Each run: {TOTAL_WORKER_STEPS:,} worker-steps on the digits, 2 to 4 workers, in-process"
        " or as processes, which have one parameter server or two, switch anywhere from 0 to"
        " 100 %, hot or by a restart, online policies where the first protocol is BSP, a"
        " checkpoint every 10 %. Protocol pairs:"
        f" {pairs}.",
        "",
        "A run counts as failed where it raises, takes longer than 120 s, does not do exactly its"
        " worker-steps, has phases that do not join or tests that do not ascend, does not say in"
        " its events what happened, leaves a process, thread or temporary file, or has an accuracy"
        f" farther than {100 * noise.allowed:.2f} pp from the mean of undisturbed runs of its pair."
        f" That is noise: their standard deviation within a pair is {100 * noise.spread:.2f} pp,"
        " and so far away would be one of as many further undisturbed runs in 1 campaign of 100"
        " (Student's t).",
        "",
        "Seconds to go on: of a worker or parameter server, from the loss that was found until it"
        " took part again; of a chief, from the last sign of life of the run to the next, the start"
        " of another cluster included. What hangs is found after 2 s, which are not in it.",
    ]
    problems = [one.text for one in outcomes if one.is_failed]
    if problems:
        lines += ["", "What was wrong:", "", *(f"- {text}" for text in problems)]
    return "\n".join(lines) + "\n"


def _cells(name: str, outcomes: Sequence[Outcome], noise: Noise) -> list[str]:
    records = [one.record for one in outcomes if one.record is not None]
    right = sum(record.worker_steps == TOTAL_WORKER_STEPS for record in records)
    differences = [
        100 * noise.difference(one.case, one.record) for one in outcomes if one.record is not None
    ]
    seconds = sorted(second for one in outcomes for second in one.seconds_to_continue)
    return [
        name,
        str(len(outcomes)),
        str(sum(one.is_failed for one in outcomes)),
        f"{right} of {len(outcomes)}",
        f"{statistics.mean(differences):+.2f}" if differences else "",
        f"{max(differences, key=abs):+.2f}" if differences else "",
        str(len(seconds)),
        f"{statistics.median(seconds):.2f}" if seconds else "",
        f"{seconds[int(0.9 * (len(seconds) - 1) + 0.5)]:.2f}" if seconds else "",
        str(sum(len(one.leftovers) for one in outcomes)),
    ]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]
