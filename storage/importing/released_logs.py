"""Lists the training runs that the authors of Sync-Switch released, for a manifest.

Their repository, cake-lab/Sync-Switch (Apache-2.0), has them in its folder `data`. What a run is
stands in the name of its folder; here is how to read these names, and where they are wrong.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from syncswitch.storage.errors import RecordingError

COLUMNS = (
    "setup",
    "run_dir",
    "first_protocol",
    "second_protocol",
    "switch_percent",
    "replicate",
    "workers",
    "total_worker_steps",
    "stands_for_percent",
    "diverged",
    "model",
    "data_set",
)

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
class _Setup:
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
    _Setup(
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
    _Setup(
        "resnet50-cifar100-8",
        ("cifar100_res50",),
        workers=8,
        total_worker_steps=128_000,
        model="ResNet-50",
        data_set="CIFAR-100",
        meant={12: 12.5, 6: 6.25, 3: 3.125},
    ),
    _Setup(
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
    """One run, as its folder's name tells; `line` has a cell for each of `COLUMNS`."""

    run_dir: str
    first_protocol: str
    switch_percent: float
    line: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleasedRuns:
    """What a checkout holds.

    Attributes:
        logs: Its folder of logs, from which the runs' folders are named.
        corrected: Runs whose names say another switch point than they had.
        unread: Folders whose names do not say what was run.
    """

    logs: Path
    runs: tuple[ReleasedRun, ...]
    corrected: tuple[ReleasedRun, ...]
    unread: tuple[str, ...]

    def manifest(self) -> str:
        """The manifest, for `import`."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([COLUMNS, *(run.line for run in self.runs)])
        return text.getvalue()


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
    corrected = tuple(run for run in runs if run.run_dir in _WRONG_LABELS)
    return ReleasedRuns(logs, tuple(runs), corrected, tuple(unread))


def _runs(setup: _Setup, logs: Path, folder: str, unread: list[str]) -> Iterator[ReleasedRun]:
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


def _released(setup: _Setup, run_dir: str, first: str, percent: int, run: int) -> ReleasedRun:
    switch_percent = _WRONG_LABELS.get(run_dir, setup.meant.get(percent, float(percent)))
    stands_for: float | None = switch_percent
    if first == "b":
        stands_for = setup.stands_for.get(switch_percent, switch_percent)
        first_run = setup.first_run if switch_percent == 100 else 1
        if run_dir in _WRONG_LABELS or not first_run <= run < first_run + _COUNTED_RUNS:
            stands_for = None
    return _run(setup, run_dir, _PAIRS[first], switch_percent, run, stands_for)


def _without_logs(setup: _Setup) -> list[ReleasedRun]:
    return [
        _run(setup, "", _PAIRS["b"], percent, run, percent)
        for percent in setup.diverged
        for run in (1, 2, 3)
    ]


def _run(
    setup: _Setup,
    run_dir: str,
    protocols: tuple[str, str],
    switch_percent: float,
    run: int,
    stands_for: float | None,
) -> ReleasedRun:
    line = (
        *(setup.name, run_dir, *protocols, f"{switch_percent:g}", str(run), str(setup.workers)),
        str(setup.total_worker_steps),
        "" if stands_for is None else f"{stands_for:g}",
        "no" if run_dir else "yes",
        *(setup.model, setup.data_set),
    )
    return ReleasedRun(run_dir, protocols[0], switch_percent, line)
