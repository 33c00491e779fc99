"""What the Sync-Switch paper and its authors' logs say of the runs behind two of its tables.

Figures, not the logs: what each run measured, and from where on its accuracy was known.
`write_logs` makes logs that say the same, so that what rests on them is tested where the real ones
are not. `test_published.py` compares the two where both are.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from syncswitch.storage.importing.run_logs import LogRow
from tests.recordings import STARTED, log_rows, write_log, write_manifest

__all__ = [
    "INTERVAL",
    "RUNS",
    "TABLES",
    "TOTAL",
    "Figures",
    "Row",
    "Run",
    "SwitchPoint",
    "write_logs",
]

TOTAL = 64_000
"""Worker-steps of each run: ResNet-32 on CIFAR-10."""
INTERVAL = 2_000
"""Worker-steps from test to test, about."""


class SwitchPoint(NamedTuple):
    """What a run counts for, and what was run: percent of the worker-steps in BSP, then ASP."""

    percent: float
    run_percent: float


class Run(NamedTuple):
    """One run.

    Attributes:
        accuracy: Of its last test.
        seconds: Of training, without the restart at the switch.
        bsp_seconds: The part in BSP.
        known_at: The worker-step, to the nearest test, at which early stopping would have ended it;
            None where it would not have.
        known_accuracy: Mean of the last five tests there.
    """

    accuracy: float
    seconds: float
    bsp_seconds: float
    known_at: int | None = None
    known_accuracy: float = 0.0


class Row(NamedTuple):
    """Which search a row of a table is about: Tables IV and VI, 8 and 16 workers."""

    table: str
    is_recurring: bool
    bsp_runs: int
    candidate_runs: int


class Figures(NamedTuple):
    """What the table says of it."""

    search_cost: float
    amortized_recurrences: float
    effective_training: float
    success_percent: float


# By number of workers. None: it diverged, and there is no log of it.
RUNS: Mapping[int, Mapping[SwitchPoint, Sequence[Run | None]]] = {
    8: {
        SwitchPoint(100, 100): [
            Run(0.9190, 10639.0, 10639.0, 42_000, 0.9183),
            Run(0.9234, 10557.5, 10557.5),
            Run(0.9102, 10518.9, 10518.9),
            Run(0.9188, 10623.4, 10623.4, 42_000, 0.9188),
            Run(0.9224, 10679.9, 10679.9, 42_000, 0.9210),
        ],
        SwitchPoint(50, 50): [
            Run(0.9244, 6035.1, 5226.1),
            Run(0.9233, 6215.8, 5407.8),
            Run(0.9072, 6101.1, 5346.8),
            Run(0.9240, 6158.0, 5346.8),
            Run(0.9221, 5459.3, 4615.1, 46_000, 0.9197),
        ],
        SwitchPoint(25, 25): [
            Run(0.9251, 3884.7, 2670.3, 58_000, 0.9227),
            Run(0.9169, 3886.9, 2670.5, 60_000, 0.9166),
            Run(0.9116, 3850.3, 2671.6, 60_000, 0.9086),
            Run(0.9186, 3866.3, 2730.4, 58_000, 0.9183),
            Run(0.9169, 3930.0, 2730.9, 58_000, 0.9162),
        ],
        SwitchPoint(12.5, 10): [
            Run(0.9117, 2551.3, 1125.0, 48_000, 0.9087),
            Run(0.9159, 2522.6, 1125.1, 50_000, 0.9143),
            Run(0.9094, 2545.7, 1124.6, 50_000, 0.9085),
            Run(0.9175, 2522.5, 1123.6, 48_000, 0.9166),
            Run(0.9165, 2571.4, 1124.7, 40_000, 0.9141),
        ],
        SwitchPoint(6.25, 5): [
            Run(0.9184, 2140.8, 622.3, 44_000, 0.9176),
            Run(0.9086, 2071.9, 562.6, 46_000, 0.9058),
            Run(0.9170, 2076.8, 622.6, 46_000, 0.9165),
            Run(0.9231, 2070.6, 562.4, 46_000, 0.9198),
            Run(0.9241, 2060.4, 562.8, 48_000, 0.9215),
        ],
        SwitchPoint(3.125, 2): [
            Run(0.9125, 1753.0, 191.0, 44_000, 0.9120),
            Run(0.9071, 1773.3, 191.1, 44_000, 0.9063),
            Run(0.8975, 1805.5, 251.2, 44_000, 0.8992),
            Run(0.8977, 1771.3, 190.7, 46_000, 0.8947),
        ],
        SwitchPoint(0, 0): [
            Run(0.8924, 1742.0, 0.0, 40_000, 0.8919),
            Run(0.9051, 1603.3, 0.0, 44_000, 0.9026),
            Run(0.8850, 1541.2, 0.0, 42_000, 0.8842),
            Run(0.8847, 1542.6, 0.0),
        ],
    },
    16: {
        SwitchPoint(100, 100): [
            Run(0.9108, 9396.4, 9396.4, 42_000, 0.9106),
            Run(0.9326, 10185.5, 10185.5, 42_000, 0.9269),
            Run(0.9254, 9270.8, 9270.8, 60_000, 0.9251),
        ],
        SwitchPoint(50, 50): [
            Run(0.9135, 5090.0, 4601.2),
            Run(0.9196, 5102.6, 4602.1, 60_000, 0.9174),
            Run(0.9286, 5225.7, 4724.4, 56_000, 0.9279),
        ],
        SwitchPoint(25, 25): [None] * 3,
        SwitchPoint(0, 0): [None] * 3,
    },
}

TABLES: Mapping[Row, Figures] = {
    Row("IV", False, 5, 5): Figures(12.71, 15.79, 1.97, 100),
    Row("IV", False, 4, 4): Figures(10.17, 12.63, 1.97, 100),
    Row("IV", False, 3, 3): Figures(7.62, 9.47, 1.97, 99.2),
    Row("IV", False, 2, 2): Figures(5.07, 6.3, 1.97, 82.3),
    Row("IV", False, 1, 1): Figures(2.48, 3.08, 2.02, 56.8),
    Row("IV", False, 1, 5): Figures(8.71, 10.82, 2.41, 80.4),
    Row("IV", False, 1, 4): Figures(7.16, 8.9, 2.37, 78.7),
    Row("IV", False, 1, 3): Figures(5.61, 6.97, 2.32, 78),
    Row("IV", False, 1, 2): Figures(4.06, 5.04, 2.22, 69.4),
    Row("IV", True, 0, 5): Figures(7.71, 9.58, 2.59, 100),
    Row("IV", True, 0, 4): Figures(6.17, 7.67, 2.59, 100),
    Row("IV", True, 0, 3): Figures(4.63, 5.75, 2.59, 100),
    Row("IV", True, 0, 2): Figures(3.07, 3.81, 2.61, 79),
    Row("IV", True, 0, 1): Figures(1.5, 1.86, 2.67, 56.6),
    Row("VI", False, 5, 5): Figures(7.68, 16.54, 1.3, 100),
    Row("VI", False, 4, 4): Figures(6.14, 13.22, 1.3, 100),
    Row("VI", False, 3, 3): Figures(4.61, 9.93, 1.3, 100),
    Row("VI", False, 2, 2): Figures(3.07, 6.61, 1.3, 89.5),
    Row("VI", False, 1, 1): Figures(1.54, 3.32, 1.3, 69.7),
    Row("VI", False, 1, 5): Figures(3.67, 7.9, 1.63, 68.5),
    Row("VI", False, 1, 4): Figures(3.14, 6.76, 1.59, 66.4),
    Row("VI", False, 1, 3): Figures(2.61, 5.62, 1.53, 67.4),
    Row("VI", False, 1, 2): Figures(2.07, 4.46, 1.49, 77.2),
    Row("VI", True, 0, 5): Figures(2.68, 5.77, 1.87, 100),
    Row("VI", True, 0, 4): Figures(2.14, 4.61, 1.87, 100),
    Row("VI", True, 0, 3): Figures(1.67, 3.6, 1.87, 100),
    Row("VI", True, 0, 2): Figures(1.07, 2.3, 1.87, 100),
    Row("VI", True, 0, 1): Figures(0.54, 1.16, 1.87, 100),
}


def write_logs(folder: Path) -> None:
    """Writes `manifest.csv`, `tables.csv` and the runs' logs."""
    rows = []
    for workers, settings in RUNS.items():
        for switch_point, runs in settings.items():
            for number, run in enumerate(runs, 1):
                name = f"{workers}-workers/{switch_point.run_percent:g}-percent-{number}"
                if run is not None:
                    steps, seconds, accuracies = zip(
                        *_tests(workers, switch_point, run), strict=True
                    )
                    times = [STARTED + one for one in seconds]
                    log: list[LogRow] = log_rows(steps, times, accuracies)
                    write_log(folder / "logs" / name / "acc.csv", log)
                rows.append(
                    (
                        *(f"resnet32-cifar10-{workers}", "" if run is None else name, "bsp", "asp"),
                        *(switch_point.run_percent, number, workers, TOTAL, switch_point.percent),
                        "yes" if run is None else "no",
                    )
                )
    columns = (
        *("setup", "run_dir", "first_protocol", "second_protocol", "switch_percent", "replicate"),
        *("workers", "total_worker_steps", "stands_for_percent", "diverged"),
    )
    write_manifest(folder / "manifest.csv", rows, columns)
    with (folder / "tables.csv").open("w", newline="") as file:
        names = ("table", "setup", "recurring", "bsp_runs", "candidate_runs", *Figures._fields)
        writer = csv.writer(file)
        writer.writerow(names)
        for row, figures in TABLES.items():
            setup = 1 if row.table == "IV" else 3
            recurring = "yes" if row.is_recurring else "no"
            writer.writerow((row.table, setup, recurring, *row[2:], *figures))


def _tests(workers: int, switch_point: SwitchPoint, run: Run) -> Iterator[tuple[int, float, float]]:
    """Step of the optimizer's counter, seconds and accuracy of each test of a run.

    It is restless, and below what it will be, until the five tests at whose end it is known.
    """
    switch = round(TOTAL * switch_point.run_percent / 100)
    asp_seconds = run.seconds - run.bsp_seconds
    calm_from = TOTAL if run.known_at is None else run.known_at - 4 * INTERVAL
    calm = run.known_accuracy or run.accuracy
    for number, done in enumerate(sorted({*range(0, TOTAL + 1, INTERVAL), switch})):
        in_bsp = min(done, switch)
        seconds = run.bsp_seconds * in_bsp / switch if switch else 0.0
        if done > switch:
            seconds += asp_seconds * (done - switch) / (TOTAL - switch)
        restless = calm - (0.04 if number % 2 else 0.02)
        accuracy = run.accuracy if done == TOTAL else calm if done >= calm_from else restless
        yield in_bsp // workers + done - in_bsp, seconds, accuracy
