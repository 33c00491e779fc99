"""The training runs that the authors of Sync-Switch released, as a table for `import`.

Their repository, cake-lab/Sync-Switch (Apache-2.0), has them in its folder `data`. What a run is
stands in the name of its folder; here is how to read these names, and where they are wrong. In the
folder are logs as TensorBoard exports them: `acc.csv` (test accuracy), mostly `loss.csv` (training
loss), with the columns `Wall time`, `Step` and `Value` in any order, and perhaps `acc_proc.csv` or
`loss_proc.csv`, whose column `Time` counts the seconds without restarts.

A log counts the optimizer's own steps. A round of BSP consumes a gradient of each of the n workers,
so it counts as n worker-steps; a step of ASP counts as one.
"""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.files import whole_file
from syncswitch.storage.importing import COLUMNS

_NOTABLE_PAUSE_SECONDS = 60.0  # a shorter one is lost in the noise of steps and tests
# So many times as long as usual is no slow stretch any more.
_PAUSE_FACTOR = 5.0
_PAIRS = {"b": ("bsp", "asp"), "a": ("asp", "bsp")}
# asp_1, bsp_run2
_ALONE = re.compile(r"(?P<first>[ab])sp_(?:run)?(?P<run>\d+)")
# b50-a50, b25-a75-run3, b50_a50_run5, 12_88_1; 5050_run1
_BOTH = re.compile(
    r"(?P<first>[ab]?)(?P<percent>\d+)[-_][ab]?(?P<rest>\d+)(?:[-_](?:run)?(?P<run>\d+))?"
)
_JOINED = re.compile(r"(?P<digits>\d{3,4})_(?:run)?(?P<run>\d+)")
# The counter of the optimizer's steps shows in these where they switched.
_WRONG_LABELS = {
    "cifar10_res32/switch_exp/a50-b50-run2": 75.0,
    "cifar10_res32/switch_exp/b15-a85-run4": 25.0,
}


@dataclass(frozen=True)
class Setup:
    """One of the paper's three setups.

    Attributes:
        folders: Below `data`, with the runs' folders in them.
        meant: Switch point by the percent in a folder's name, where that is rounded.
        stands_for: The paper's switch point by the one that was run, where they differ.
        first_run: The first run with BSP alone that the paper's tables count; they count five.
        diverged: Switch points of which the paper says that all three runs diverged, without logs.
    """

    name: str
    folders: tuple[str, ...]
    workers: int
    total_worker_steps: int
    model: str
    data_set: str
    meant: Mapping[int, float] = field(default_factory=dict)
    stands_for: Mapping[float, float | None] = field(default_factory=dict)
    first_run: int = 1
    diverged: tuple[float, ...] = ()


_NOT_COUNTED = dict.fromkeys((75.0, 20.0, 15.0, 6.25, 4.0))
SETUPS = (
    Setup(
        "resnet32-cifar10-8",
        ("cifar10_res32/baseline", "cifar10_res32/switch_exp"),
        workers=8,
        total_worker_steps=64_000,
        model="ResNet-32",
        data_set="CIFAR-10",
        meant={6: 6.25},
        stands_for={**_NOT_COUNTED, 10.0: 12.5, 5.0: 6.25, 2.0: 3.125},
        first_run=2,  # the first one was interrupted
    ),
    Setup(
        "resnet50-cifar100-8",
        ("cifar100_res50",),
        workers=8,
        total_worker_steps=128_000,
        model="ResNet-50",
        data_set="CIFAR-100",
        meant={12: 12.5, 6: 6.25, 3: 3.125},
    ),
    Setup(
        "resnet32-cifar10-16",
        ("cluster_16",),
        workers=16,
        total_worker_steps=64_000,
        model="ResNet-32",
        data_set="CIFAR-10",
        diverged=(25.0, 0.0),
    ),
)
_COUNTED_RUNS = 5


@dataclass(frozen=True, slots=True)
class ReleasedRun:
    """One run, as its folder's name tells.

    Attributes:
        folder: Below `data`; empty where there are no logs.
        switch_percent: Percent of the worker-steps in the first protocol.
        stands_for_percent: The switch point that it counts for; None for none.
    """

    setup: Setup
    folder: str
    protocols: tuple[str, str]
    switch_percent: float
    number: int
    stands_for_percent: float | None

    @property
    def is_corrected(self) -> bool:
        """Its name says another switch point than it had."""
        return self.folder in _WRONG_LABELS


@dataclass(frozen=True, slots=True)
class ReleasedRuns:
    """The runs in a checkout.

    Attributes:
        logs: Its folder of logs, below which the runs' folders are.
        unread: Folders whose names do not say what was run.
    """

    logs: Path
    runs: tuple[ReleasedRun, ...]
    unread: tuple[str, ...]


def read_released_runs(checkout: Path) -> ReleasedRuns:
    """Lists the runs in a checkout, or in its folder `data`.

    Raises RecordingError where no run is there.
    """
    logs = checkout / "data" if (checkout / "data").is_dir() else checkout
    runs: list[ReleasedRun] = []
    unread: list[str] = []
    for setup in SETUPS:
        found = [run for folder in setup.folders for run in _runs(setup, logs, folder, unread)]
        runs += found
        if found:
            runs += _without_logs(setup)
    if not runs:
        folders = ", ".join(folder for setup in SETUPS for folder in setup.folders)
        raise RecordingError(
            f"there is none of the authors' runs in {checkout}; give a checkout of"
            f" cake-lab/Sync-Switch, whose folder data holds {folders}"
        )
    return ReleasedRuns(logs, tuple(runs), tuple(unread))


def write_table(checkout: Path, path: Path) -> ReleasedRuns:
    """Writes the runs in a checkout as the table that `import` reads."""
    found = read_released_runs(checkout)
    with whole_file(path, replaces=(",".join(COLUMNS[:3]).encode(),)) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for run in found.runs for row in rows_of(run, found.logs))
        text.detach()
    return found


def _runs(setup: Setup, logs: Path, folder: str, unread: list[str]) -> Iterator[ReleasedRun]:
    if not (logs / folder).is_dir():
        return
    for path in sorted((logs / folder).iterdir(), key=_in_order):
        if path.is_dir():
            label = _label(path.name)
            if label is None:
                unread.append(f"{folder}/{path.name}")
            else:
                yield _released(setup, f"{folder}/{path.name}", *label)


def _in_order(path: Path) -> tuple[str | int, ...]:
    """Run 10 comes after run 9."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name))


def _label(name: str) -> tuple[str, int, int] | None:
    """First protocol's letter, percent and number of the run; None where the name says none."""
    if found := _ALONE.fullmatch(name):
        return "b", 100 if found["first"] == "b" else 0, int(found["run"])
    if found := _BOTH.fullmatch(name):
        percent = int(found["percent"])
        if percent + int(found["rest"]) == 100:
            return found["first"] or "b", percent, int(found["run"] or 1)
    if found := _JOINED.fullmatch(name):
        digits = found["digits"]
        for cut in range(1, len(digits)):
            if int(digits[:cut]) + int(digits[cut:]) == 100:
                return "b", int(digits[:cut]), int(found["run"])
    return None


def _released(setup: Setup, folder: str, first: str, percent: int, number: int) -> ReleasedRun:
    switch_percent = _WRONG_LABELS.get(folder, setup.meant.get(percent, float(percent)))
    stands_for: float | None = switch_percent
    if first == "b":
        stands_for = setup.stands_for.get(switch_percent, switch_percent)
        first_run = setup.first_run if switch_percent == 100 else 1
        if folder in _WRONG_LABELS or not first_run <= number < first_run + _COUNTED_RUNS:
            stands_for = None
    return ReleasedRun(setup, folder, _PAIRS[first], switch_percent, number, stands_for)


def _without_logs(setup: Setup) -> list[ReleasedRun]:
    return [
        ReleasedRun(setup, "", _PAIRS["b"], percent, number, percent)
        for percent in setup.diverged
        for number in (1, 2, 3)
    ]


def rows_of(run: ReleasedRun, logs: Path) -> Iterator[dict[str, Any]]:
    """A run as rows of the table that `import` reads; `logs` is what its folder is named from."""
    setup = run.setup
    row: dict[str, Any] = {
        "workload": setup.name,
        "run": run.folder or f"diverged at {run.switch_percent:g} %, run {run.number}",
        "first_protocol": run.protocols[0],
        "second_protocol": run.protocols[1],
        "switch_percent": run.switch_percent,
        "candidate_percent": run.stands_for_percent,
        "replicate": run.number,
        "workers": setup.workers,
        "total_worker_steps": setup.total_worker_steps,
        "diverged": not run.folder,
        "model": setup.model,
        "data_set": setup.data_set,
    }
    if not run.folder:
        yield row
        return
    log = read_log(logs / run.folder)
    phases = Phases.of(run)
    last_step = max(rows[-1].step for rows in (log.accuracy, log.loss) if rows)
    if phases.switch_step is not None and last_step <= phases.switch_step:
        phases = replace(phases, switch_step=None)
    clock, overhead_seconds = _timed(log, phases)
    row["worker_steps"] = phases.worker_step(last_step)
    row["training_seconds"] = clock.total_seconds
    if phases.is_switched:
        row["first_phase_seconds"] = switch_seconds(clock, phases, log.finest)
    row["switch_overhead_seconds"] = overhead_seconds
    row["started_at"], row["ended_at"] = (
        datetime.fromtimestamp(end.wall_time_seconds, timezone.utc).isoformat()
        for end in (log.timed[0], log.timed[-1])
    )
    steps = [one.step for one in log.loss]
    start = 0
    for test in log.accuracy:
        end = bisect_right(steps, test.step, start)
        yield {
            **row,
            "worker_step": phases.worker_step(test.step),
            "elapsed_seconds": clock.at(test.step),
            "accuracy": test.value,
            "training_loss": _mean(log.loss[start:end]),
        }
        start = end


def _mean(rows: Sequence[LogRow]) -> float | None:
    """The mean of the finite values; None if there are none."""
    values = [row.value for row in rows if math.isfinite(row.value)]
    if len(values) == 1:
        return values[0]
    return sum(values) / len(values) if values else None


class LogRow(NamedTuple):
    """One row of a log: the optimizer's step counter, when it was written, what was measured."""

    wall_time_seconds: float
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class RecordedLog:
    """The logs in a run's folder, with rows in the order of their steps.

    Attributes:
        loss: Empty where there is no such file.
        clock: Training time by step as the folder gives it; None where it does not.
    """

    accuracy: list[LogRow]
    loss: list[LogRow]
    clock: Clock | None

    @property
    def timed(self) -> list[LogRow]:
        """The rows that say how long the run took: a single row of accuracies cannot."""
        return self.accuracy if len(self.accuracy) > 1 else self.loss

    @property
    def finest(self) -> list[LogRow]:
        """Those that say most of how fast its steps were."""
        return self.loss if len(self.loss) > len(self.accuracy) else self.accuracy


@dataclass(frozen=True, slots=True)
class Clock:
    """Training time at some steps, both ascending."""

    steps: Sequence[int]
    seconds: Sequence[float]

    @property
    def total_seconds(self) -> float:
        """From the first step to the last."""
        return self.seconds[-1] - self.seconds[0]

    def at(self, step: int) -> float:
        """Seconds since the first step; in proportion between two steps, else the nearer end's."""
        after = bisect_left(self.steps, step)
        if after == len(self.steps):
            return self.total_seconds
        if after == 0 or self.steps[after] == step:
            return self.seconds[after] - self.seconds[0]
        before = after - 1
        part = (step - self.steps[before]) / (self.steps[after] - self.steps[before])
        passed = part * (self.seconds[after] - self.seconds[before])
        return self.seconds[before] - self.seconds[0] + passed

    def around(self, step: int) -> tuple[int, int]:
        """Positions of the last entry at or before a step and of the first one beyond, if any."""
        after = bisect_right(self.steps, step)
        return max(after - 1, 0), min(after, len(self.steps) - 1)


def read_log(folder: Path) -> RecordedLog:
    """Reads the logs in a run's folder.

    Raises RecordingError where one cannot be read, or there are none.
    """
    if not (folder / "acc.csv").is_file():
        raise RecordingError(f"there is no acc.csv in {folder}")
    log = RecordedLog(_read(folder / "acc.csv"), _read(folder / "loss.csv"), None)
    name = "acc_proc.csv" if log.timed is log.accuracy else "loss_proc.csv"
    rows = _read(folder / name, "time")
    if not rows:
        return log
    return replace(log, clock=Clock([row.step for row in rows], [row.value for row in rows]))


def _read(path: Path, measured: str = "value") -> list[LogRow]:
    """The rows of a file; none where it is missing."""
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = [" ".join(name.replace("_", " ").lower().split()) for name in next(reader, [])]
            at_time, at_step, at_value = (names.index(n) for n in ("wall time", "step", measured))
            # Some exports write a step as 6018.0.
            rows = [
                LogRow(float(cells[at_time]), int(float(cells[at_step])), float(cells[at_value]))
                for cells in reader
                if cells
            ]
    except (OSError, ValueError, IndexError) as error:
        raise RecordingError(f"{path} is no log: {error}") from error
    return latest_attempt(rows)


def latest_attempt(rows: Sequence[LogRow]) -> list[LogRow]:
    """The rows that count, in the order of time and of steps.

    Where the step goes back or repeats, the run was restarted: what comes later supersedes what was
    written before for this step and those beyond.
    """
    kept: list[LogRow] = []
    for row in sorted(rows, key=lambda row: row.wall_time_seconds):
        while kept and kept[-1].step >= row.step:
            kept.pop()
        kept.append(row)
    return kept


def _timed(log: RecordedLog, phases: Phases) -> tuple[Clock, float]:
    """The run's clock, and the seconds of the restart at its switch."""
    if log.clock is not None:
        timed = log.timed
        wall_seconds = timed[-1].wall_time_seconds - timed[0].wall_time_seconds
        trained_seconds = log.clock.at(timed[-1].step) - log.clock.at(timed[0].step)
        gap_seconds = max(wall_seconds - trained_seconds, 0.0)
        return log.clock, gap_seconds if phases.is_switched else 0.0
    found = pauses(log.finest, phases)
    return clock_without(log.timed, found), sum(one.seconds for one in found if one.is_switch)


@dataclass(frozen=True, slots=True)
class Phases:
    """The counter's value at a run's switch, and the worker-steps of a step in each protocol.

    Attributes:
        switch_step: S, steps of the counter in the first protocol; None if nothing comes after.
        first_worker_steps: Worker-steps of one step before S.
        second_worker_steps: Worker-steps of one step after S.
        slack_steps: The counter may run so far past S while the first protocol ends.
    """

    switch_step: int | None
    first_worker_steps: int
    second_worker_steps: int
    slack_steps: int

    @classmethod
    def of(cls, run: ReleasedRun) -> Phases:
        """The phases of a run as its label tells them."""
        workers, W = run.setup.workers, run.setup.total_worker_steps
        first, second = (workers if protocol == "bsp" else 1 for protocol in run.protocols)
        switch_step = math.floor(run.switch_percent / 100.0 * W / first + 0.5)
        return cls(None if run.switch_percent >= 100.0 else switch_step, first, second, 2 * workers)

    @property
    def is_switched(self) -> bool:
        """Whether both protocols run."""
        return bool(self.switch_step)

    def worker_step(self, step: int) -> int:
        """Worker-steps done when the counter stands at `step`."""
        if self.switch_step is None or step <= self.switch_step:
            return step * self.first_worker_steps
        beyond = step - self.switch_step
        return self.switch_step * self.first_worker_steps + beyond * self.second_worker_steps

    def speeds(self, rows: Sequence[LogRow]) -> tuple[float | None, float | None]:
        """Median seconds per step in each phase, away from the switch; None where unknown."""
        if self.switch_step is None:
            return seconds_per_step(rows, 0, None), None
        if self.switch_step == 0:
            return None, seconds_per_step(rows, 0, None)
        return (
            seconds_per_step(rows, 0, self.switch_step - self.slack_steps),
            seconds_per_step(rows, self.switch_step + self.slack_steps, None),
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """Time in which a run did not train.

    Attributes:
        began_at_seconds: Wall time.
        seconds: Its length.
        step: The last step logged before.
        is_switch: It is the restart at the switch; else something interrupted the run.
    """

    began_at_seconds: float
    seconds: float
    step: int
    is_switch: bool

    @property
    def end_seconds(self) -> float:
        """Wall time."""
        return self.began_at_seconds + self.seconds


def seconds_per_step(rows: Sequence[LogRow], start: int, end: int | None) -> float | None:
    """Median over the intervals within `start` to `end`; None where there is none."""
    found = [
        (after.wall_time_seconds - before.wall_time_seconds) / (after.step - before.step)
        for before, after in pairwise(rows)
        if before.step >= start and (end is None or after.step <= end)
    ]
    return statistics.median(found) if found else None


def pauses(rows: Sequence[LogRow], phases: Phases) -> list[Pause]:
    """Finds where a log's wall time goes on without training.

    The restart of the switch is what the interval around S took beyond the usual time of its steps;
    the longest such interval, as the counter may run a little past S. Any other interval is a pause
    where it takes 5 times as long as usual and a minute longer.
    """
    first, second = phases.speeds(rows)
    if phases.is_switched and (first is None or second is None):
        return []
    switch: Pause | None = None
    found = []
    for before, after in pairwise(rows):
        in_first, in_second = _split(before.step, after.step, phases.switch_step)
        first_seconds = in_first * (first or 0.0)
        expected = first_seconds + in_second * (second or 0.0)
        excess = after.wall_time_seconds - before.wall_time_seconds - expected
        if _is_around(before.step, after.step, phases):
            if excess > 0.0 and (switch is None or excess > switch.seconds):
                began = before.wall_time_seconds + first_seconds
                switch = Pause(began, excess, before.step, is_switch=True)
        elif excess > _NOTABLE_PAUSE_SECONDS and excess > (_PAUSE_FACTOR - 1.0) * expected:
            found.append(Pause(before.wall_time_seconds, excess, before.step, is_switch=False))
    return [*found, switch] if switch else found


def clock_without(rows: Sequence[LogRow], found: Sequence[Pause]) -> Clock:
    """Training time at each row: wall time since the first one, without the pauses."""
    start = rows[0].wall_time_seconds
    walls = [row.wall_time_seconds for row in rows]
    seconds = [wall - start for wall in walls]
    for pause in found:
        began = max(start, pause.began_at_seconds)
        seconds = [
            trained - max(min(wall, pause.end_seconds) - began, 0.0)
            for trained, wall in zip(seconds, walls, strict=True)
        ]
    # Differences of moments have rounding errors.
    return Clock([row.step for row in rows], [max(trained, 0.0) for trained in seconds])


def switch_seconds(clock: Clock, phases: Phases, rows: Sequence[LogRow]) -> float:
    """Training time at the switch, by the clock; the rows of the finest log say how fast steps are.

    Between two entries of the clock the protocols share the time as their usual speeds say.
    """
    switch_step = phases.switch_step or 0
    before, after = clock.around(switch_step)
    start, end = clock.steps[before], clock.steps[after]
    is_asynchronous = phases.first_worker_steps < phases.second_worker_steps
    if is_asynchronous and switch_step < end <= switch_step + phases.slack_steps:
        return clock.at(end)  # the steps in flight at the switch were asynchronous ones
    first, second = phases.speeds(rows)
    if not start < switch_step < end or not first or not second:
        return clock.at(switch_step)
    in_first, in_second = _split(start, end, switch_step)
    part = in_first * first / (in_first * first + in_second * second)
    return clock.at(start) + part * (clock.at(end) - clock.at(start))


def _split(start: int, end: int, switch_step: int | None) -> tuple[int, int]:
    """Steps of an interval before and beyond the switch."""
    if switch_step is None:
        return end - start, 0
    in_first = max(min(end, switch_step) - start, 0)
    return in_first, end - start - in_first


def _is_around(start: int, end: int, phases: Phases) -> bool:
    if not phases.switch_step:
        return False
    switch_step, slack = phases.switch_step, phases.slack_steps
    return end >= switch_step - slack and start <= switch_step + slack
