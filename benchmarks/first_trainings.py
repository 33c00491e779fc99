"""First trainings on real processes: what they take beside BSP, and whether they choose rightly.

    python -m benchmarks.first_trainings [--jobs digits ...] [--workers 4] [--turns 3]
        [--situations none wire worker] [--delay-seconds 0.05] [--slowdown 4] [--chosen-by 5]
        [--judged-by digits] [--judged-steps 1200] [--switch-at 6.25] [--json FILE]

Each training is the first one of a database of its own, on processes of this machine. In the
situation `none` each job is trained so and with BSP alone, in turns; ratios are those of such a
turn. With `wire` each message arrives later by the delay, with `worker` a process is stopped and
continued, so that it runs a share of the time. There `--chosen-by` first trainings of one job
choose, in turns with each choice for itself. The right one is what takes the least time by its
median, or at most 15 % more: what is not a tenth faster is not taken.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.console import at_most, parser
from benchmarks.disturbed import DisturbedTrainer
from benchmarks.trainings import ADAM, REFERENCES, shorter
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord
from syncswitch.trainers.job.hyperparameters import highest_rate
from syncswitch.trainers.job.loading import load_workload

JOBS = {
    **{name: one for name, one in REFERENCES.items() if name != "transformer"},
    **ADAM,
    "pictures": "benchmarks.small_pictures:SGD",
    "pictures-adam": "benchmarks.small_pictures:ADAM",
}
_RIGHT = 1.15
"""Times the least median up to which a choice is right: what is not a tenth faster is not taken."""


@dataclass(frozen=True)
class Trained:
    """One training.

    Attributes:
        situation: Of its cluster.
        job: Its name.
        how: `first`, or the protocol of its second phase, `bsp` for BSP alone.
        turn: What it is compared with has the same.
        seconds: Training time.
        ends_with: The protocol of its last phase.
        phases: Protocol, worker-steps and seconds of each.
        said: What was chosen and why.
    """

    situation: str
    job: str
    how: str
    turn: int
    seconds: float
    ends_with: str
    phases: list[tuple[str, int, float]]
    said: list[str]


def trained(
    situation: str, job: str, how: str, turn: int, trainer: DisturbedTrainer, workers: int,
    switch_at: float, worker_steps: int | None,
) -> Trained:  # fmt: skip
    """Trains a job once, with an empty database."""
    reference = f"{JOBS[job]},momentum_after_switch=own"
    if worker_steps is not None:
        reference += shorter(worker_steps, worker_steps // 12)
    from syncswitch.searcher.training.train import train

    chosen: dict[str, Any] = {"expected_runs": 1}
    if how == "bsp":
        chosen = {"switch_at": BASELINE_PERCENT}
    elif how != "first":
        chosen = {"switch_at": switch_at, "protocols": f"bsp,{how}", "guarded": False}
    with tempfile.TemporaryDirectory() as folder:
        record = train(
            reference,
            trainer=trainer,
            workers=workers,
            seed=turn,
            storage=f"sqlite:///{folder}/one.db",
            output=Path(folder) / "one.keras",
            tell=lambda said: None,
            **chosen,
        ).record
    return Trained(
        situation, job, how, turn, record.training_seconds, _last(record),
        [
            (one.protocol, one.end_worker_step - one.start_worker_step, one.seconds)
            for one in record.phases
        ],
        [event.reason for event in record.events if event.kind == "chosen"],
    )  # fmt: skip


def _last(record: TrialRecord) -> str:
    return record.phases[-1].protocol


def main() -> None:
    options = parser(
        __doc__, jobs=[*JOBS], workers=4, turns=3, situations=["none", "wire", "worker"],
        delay_seconds=0.05, slowdown=4.0, chosen_by=5, judged_by="digits",
        judged_steps=1_200, switch_at=6.25, json=Path,
    ).parse_args()  # fmt: skip
    console = Console(highlight=False, width=200)
    found: list[Trained] = []
    clusters = {
        "none": DisturbedTrainer(),
        "wire": DisturbedTrainer(delay_seconds=options.delay_seconds),
        "worker": DisturbedTrainer(slowdown=options.slowdown),
    }

    def make(situation: str, job: str, how: str, turn: int) -> Trained:
        worker_steps = None if situation == "none" else options.judged_steps
        one = trained(
            situation, job, how, turn, clusters[situation], options.workers, options.switch_at,
            worker_steps,
        )  # fmt: skip
        found.append(one)
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in found]) + "\n")
        return one

    with at_most(8 * 3600):
        for situation in options.situations:
            if situation == "none":
                _beside_bsp(options.jobs, options.turns, make, console)
            else:
                rate = highest_rate(load_workload(JOBS[options.judged_by]), options.workers)
                hows = ["bsp", "asp", f"qsr:8:{rate:g}:semi-sync"]
                _judged(situation, options.judged_by, hows, options.chosen_by, make, console)


Make = Callable[[str, str, str, int], Trained]


def _beside_bsp(jobs: list[str], turns: int, make: Make, console: Console) -> None:
    for job in jobs:
        ratios, chosen = [], []
        for turn in range(turns):
            pair = {how: make("none", job, how, turn) for how in _in_turns(["bsp", "first"], turn)}
            ratios.append(pair["first"].seconds / pair["bsp"].seconds)
            chosen.append(pair["first"].ends_with)
        shown = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        console.print(
            f"{job}: {statistics.median(ratios):.2f} of BSP's time ({shown}), with"
            f" {', '.join(sorted(set(chosen)))}"
        )


def _judged(
    situation: str, job: str, hows: list[str], times: int, make: Make, console: Console
) -> None:
    seconds: dict[str, list[float]] = {how: [] for how in ("first", *hows)}
    chosen = []
    for turn in range(times):
        for how in _in_turns([*seconds], turn):
            one = make(situation, job, how, turn)
            seconds[how].append(one.seconds)
            if how == "first":
                chosen.append(one.ends_with)
    medians = {how: statistics.median(seconds[how]) for how in seconds}
    least = min(medians[how] for how in hows)
    right = sum(medians[how] <= _RIGHT * least for how in chosen)
    shown = ", ".join(f"{how} {median:.1f} s" for how, median in medians.items())
    console.print(f"{situation}, {job}: {shown}; right {right} of {times} ({', '.join(chosen)})")


def _in_turns(names: list[str], turn: int) -> list[str]:
    """Another one begins in each turn, so that none always has the quieter machine."""
    begin = turn % len(names)
    return names[begin:] + names[:begin]


if __name__ == "__main__":
    main()
