"""Jobs of a real size: BSP, what a first training makes of them, and the quadratic rule.

    python -m benchmarks.real_size [--jobs clothes-resnet language] [--seeds 10] [--workers 8]
        [--fashion FOLDER] [--cluster paper] [--worker-steps N] [--file real_size.jsonl]

Real gradients on a virtual clock, with the profile of the paper's cluster unless another one is
named; `threads` and `processes` are real ones on this machine. From nothing: `syncswitch-run` with
an empty database. QSR: from the first step on, averaged every 8 steps until the rate has fallen to
a third of the highest. A model is kept if it ends at most 0.01 below the mean of BSP. All seeds of
a job are trained before there is a table; what is in the file is not trained again. `--fashion` is
the folder of Fashion-MNIST, without which the pictures are left out with a word.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from benchmarks.panel import kept, mean_accuracy
from benchmarks.real_size_jobs import FASHION, LANGUAGE, clothes
from benchmarks.trainings import Choice, JobTrainings, Recorded, Training, first_training, shorter
from syncswitch.storage.errors import UserError
from syncswitch.trainers.job.hyperparameters import highest_rate
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.protocols import alone

BSP, FIRST, QSR = "BSP", "from nothing", "QSR"
_PICTURES = "clothes-resnet"
_FILES = {
    _PICTURES: "from pathlib import Path\nfrom benchmarks.real_size_jobs import clothes\n"
    "workload = clothes(Path({fashion!r}))\n",
    LANGUAGE.name: "from benchmarks.real_size_jobs import LANGUAGE as workload\n",
}
"""A file of a user for each job."""


def trained(
    reference: str, workers: int, cluster: str, seeds: int, recorded: Recorded, folder: Path
) -> dict[str, list[Training]]:
    """The runs of a job by the way in which they are trained, made where they are missing."""
    workload = load_workload(reference)
    name = f"{FIRST} {workload.name} {workload.total_worker_steps} {workers} {cluster}"
    rate = highest_rate(workload, workers)
    found: dict[str, list[Training]] = {BSP: [], FIRST: [], QSR: []}
    for seed in range(seeds):  # so that a run that is cut has as many of each

        def first(seed: int = seed) -> Training:
            return Training.of(first_training(reference, workers, cluster, seed, folder))

        with JobTrainings(reference, workers, cluster, recorded) as trainings:
            found[BSP] = trainings.of(Choice(("bsp", "asp")), seed + 1)
            found[QSR] = trainings.of(Choice(alone(f"qsr:8:{rate:g}")), seed + 1)
        found[FIRST].append(recorded.find(f"{name} {seed}", first))
    return found


def _switches(runs: Sequence[Training]) -> str:
    """What the guarded ones of the runs switched to, and when."""
    held = Counter(
        "BSP" if run.held_percent == 100 else f"{run.second_protocol} at {run.held_percent:g} %"
        for run in runs
        if run.held_percent is not None
    )
    return ", ".join(f"{what}: {count}" for what, count in sorted(held.items()))


def main() -> None:
    arguments = parser(
        __doc__, jobs=list(_FILES), seeds=10, workers=8, fashion=FASHION, cluster="paper",
        worker_steps=int, file=Path,
    )  # fmt: skip
    given, console = arguments.parse_args(), Console(width=120)
    if unknown := set(given.jobs) - set(_FILES):
        arguments.error(f"--jobs {' '.join(unknown)}: give some of {' '.join(_FILES)}")
    table = new_table("job", "way", "switched to", "value", "deviation", "kept", "time", left=3)
    with at_most(48 * 3600), kept_for_the_next(), tempfile.TemporaryDirectory() as name:
        for job in given.jobs:
            if job == _PICTURES:
                try:
                    clothes(given.fashion).load_data()
                except UserError as missing:
                    console.print(f"{job} is left out: {missing}")
                    continue
            file = Path(name, f"{job}.py".replace("-", "_"))
            file.write_text(_FILES[job].format(fashion=str(given.fashion)))
            length = shorter(given.worker_steps, given.workers)
            ways = trained(
                f"{file}:workload{length}", given.workers, given.cluster, given.seeds,
                Recorded(given.file), Path(name),
            )  # fmt: skip
            base = ways[BSP]
            seconds = statistics.fmean(run.seconds for run in base)
            for way, runs in ways.items():
                values = [run.accuracy for run in runs if not run.diverged]
                table.add_row(
                    job, way, _switches(runs),
                    f"{mean_accuracy(runs):.4f}",
                    f"{statistics.stdev(values):.4f}" if len(values) > 1 else "-",
                    f"{kept(runs, base)} of {len(runs)}",
                    f"{statistics.fmean(run.seconds for run in runs) / seconds:.3f}",
                )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()
