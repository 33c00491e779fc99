"""The runs behind two tables of the Sync-Switch paper, from the paper and its authors' logs.

Figures, not the logs: what each run measured, and from where on its accuracy was known.
`write_logs` makes logs that say the same, so that what rests on them is tested where the real ones
are not. `test_logs.py` compares the two where both are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reproduction.logs import LogRow, write_table
from tests.reproduction.recordings import STARTED, log_rows, write_log

TOTAL = 64_000
"""Worker-steps of each run: ResNet-32 on CIFAR-10."""
INTERVAL = 2_000
"""Worker-steps from test to test, about."""


class SwitchPoint(NamedTuple):
    """The switch point for which a run counts, and its actual one in percent of worker-steps."""

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


def write_logs(checkout: Path) -> None:
    """Writes the runs' logs as the authors' repository has them, and `runs.csv` of them."""
    for workers, settings in RUNS.items():
        for switch_point, runs in settings.items():
            for number, run in enumerate(runs, 1):
                if run is not None:
                    steps, seconds, accuracies = zip(
                        *_tests(workers, switch_point, run), strict=True
                    )
                    times = [STARTED + one for one in seconds]
                    log: list[LogRow] = log_rows(steps, times, accuracies)
                    name = _folder(workers, round(switch_point.run_percent), number)
                    write_log(checkout / "data" / name / "acc.csv", log)
    write_table(checkout, checkout / "runs.csv")


def _folder(workers: int, percent: int, number: int) -> str:
    """Where the authors keep a run; their tables leave out the first with BSP of 8 workers."""
    if workers == 16:
        return f"cluster_16/{'bsp' if percent == 100 else percent * 101}_run{number}"
    if percent in (0, 100):
        return f"cifar10_res32/baseline/{f'bsp_{number + 1}' if percent else f'asp_{number}'}"
    return f"cifar10_res32/switch_exp/b{percent}-a{100 - percent}-run{number}"


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
