"""Reads the logs of a recorded run: CSV files as TensorBoard exports them.

In a run's folder are `acc.csv` (test accuracy) and perhaps `loss.csv` (training loss), with the
columns `Wall time`, `Step` and `Value` in any order. Beside them may lie `acc_proc.csv` and
`loss_proc.csv`, whose column `Time` counts the seconds since the start without restarts.
"""

from __future__ import annotations

import csv
import math
import re
import reprlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.files import check_plain_file

LARGEST_STEP = 2**53
"""So far floats count exactly, and no job ever gets."""

# 9999-12-31: beyond it there is no date.
_MOST_BYTES = 1 << 30
_LATEST_SECONDS = 253_402_300_799.0


class LogRow(NamedTuple):
    """One row of a log: the optimizer's step counter, when it was written, what was measured."""

    wall_time_seconds: float
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class RecordedLog:
    """What a run's folder holds; rows in the order of their steps.

    Attributes:
        accuracy: At least one row; values from 0 to 1, and in a run that is known to have diverged
            also infinite ones or none, but not in the first row.
        loss: Empty where there is no such file; values may be infinite or not a number.
        clock: Training time by step as the folder gives it; None where it does not.
    """

    accuracy: list[LogRow]
    loss: list[LogRow]
    clock: Clock | None

    @property
    def timed(self) -> list[LogRow]:
        """The rows that say how long the run took: a single row of accuracies cannot."""
        return self.accuracy if len(self.accuracy) > 1 else self.loss


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


def read_run_log(folder: Path, *, has_diverged: bool = False) -> RecordedLog:
    """Reads the logs in a run's folder; accuracies may be impossible where it has diverged.

    Raises RecordingError where a log is missing, ambiguous, or holds impossible values; it names
    the file, the line and the value.
    """
    if not folder.is_dir():
        raise RecordingError(f"there is no folder {folder.name}; is --logs right?")
    accuracy_file = _find(folder, "acc")
    if accuracy_file is None:
        raise RecordingError(f"no acc.csv and no TensorBoard export of it; {_content(folder)}")
    loss_file = _find(folder, "loss")
    accuracy = latest_attempt(_read_accuracy(accuracy_file, has_diverged))
    loss = latest_attempt(_read(loss_file, "value", None)) if loss_file else []
    if not accuracy:
        raise RecordingError(f"{accuracy_file.name} holds no row")
    if not math.isfinite(accuracy[0].value):
        raise RecordingError(
            f"{accuracy_file.name} starts with accuracy {accuracy[0].value}; leave run_dir empty to"
            f" record only that the run diverged"
        )
    if len(accuracy) < 2 and len(loss) < 2:
        raise RecordingError(
            f"{accuracy_file.name} holds one row, and no log of the loss says how long the run took"
        )
    log = RecordedLog(accuracy, loss, None)
    clock_file = folder / f"{'acc' if log.timed is accuracy else 'loss'}_proc.csv"
    if not clock_file.is_file():
        return log
    return RecordedLog(accuracy, loss, read_clock(clock_file, log.timed))


def read_clock(path: Path, log: Sequence[LogRow]) -> Clock:
    """Reads the training time from a `_proc.csv` that was made from this log.

    Raises RecordingError where it is of another log, or its times go back.
    """
    allowed = f"seconds, 0 to {_LATEST_SECONDS:.0f}"
    rows = latest_attempt(_read(path, "time", (0.0, _LATEST_SECONDS), allowed))
    if not rows or rows[0].step > log[0].step or rows[-1].step < log[-1].step:
        found = f"{rows[0].step} to {rows[-1].step}" if rows else "none"
        raise RecordingError(
            f"{path.name} has other steps ({found}) than the log that it was made from"
            f" ({log[0].step} to {log[-1].step})"
        )
    for before, after in pairwise(rows):
        if after.value < before.value:
            raise RecordingError(
                f"{path.name}: Time goes back from {before.value:g} to {after.value:g} at step"
                f" {after.step}"
            )
    return Clock([row.step for row in rows], [row.value for row in rows])


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


def _find(folder: Path, kind: str) -> Path | None:
    plain = folder / f"{kind}.csv"
    if plain.is_file():
        return plain
    pattern = re.compile(rf"tag-.*{kind}.*\.csv$", re.IGNORECASE)
    found = sorted(path for path in folder.iterdir() if pattern.search(path.name))
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:4])
        raise RecordingError(f"{len(found)} files may be {kind}.csv: {names}; rename the right one")
    return found[0] if found else None


def _content(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    more = ", ..." if len(names) > 4 else ""
    return f"found {', '.join(names[:4])}{more}" if names else "the folder is empty"


def _read_accuracy(path: Path, has_diverged: bool) -> list[LogRow]:
    allowed = "an accuracy, 0 to 1 (in a run that the manifest calls diverged also nan, inf)"
    if not has_diverged:
        return _read(path, "value", (0.0, 1.0), allowed)
    rows = _read(path, "value", None)
    for row in rows:
        if math.isfinite(row.value) and not 0.0 <= row.value <= 1.0:
            raise RecordingError(
                f"{path.name} step {row.step}: value {row.value:g}; allowed: {allowed}"
            )
    return rows


def _read(
    path: Path, measured: str, possible: tuple[float, float] | None, allowed: str = ""
) -> list[LogRow]:
    """All rows of a file, in its order; `possible` are the least and greatest value, if any."""
    rows = []
    try:
        check_plain_file(path, _MOST_BYTES)
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            at_time, at_step, at_value = _positions(next(reader, []), measured, path)
            for cells in reader:
                if not cells:
                    continue
                try:
                    seconds, value = float(cells[at_time]), float(cells[at_value])
                    text = cells[at_step]
                    step = int(text) if text.isdigit() else _whole(text)
                except (IndexError, ValueError, OverflowError) as error:
                    raise RecordingError(
                        f"{path.name} line {reader.line_num}: not three numbers:"
                        f" {reprlib.repr(cells)}"
                    ) from error
                if not 0.0 <= seconds <= _LATEST_SECONDS:
                    problem = f"wall time {_short(cells[at_time])}; allowed: seconds since 1970"
                elif not 0 <= step <= LARGEST_STEP:
                    problem = f"step {_short(text)}; allowed: 0 to {LARGEST_STEP}"
                elif possible is not None and not possible[0] <= value <= possible[1]:
                    problem = f"{measured} {_short(cells[at_value])}; allowed: {allowed}"
                else:
                    rows.append(LogRow(seconds, step, value))
                    continue
                raise RecordingError(f"{path.name} line {reader.line_num}: {problem}")
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path.name} is not UTF-8 text") from error
    except csv.Error as error:
        raise RecordingError(f"{path.name} is not CSV: {error}") from error
    return rows


def _short(number: str) -> str:
    """A cell that is a number, however many digits it has."""
    number = number.strip()
    return number if len(number) <= 25 else f"{number[:20]}... ({len(number)} characters)"


def _positions(header: Sequence[str], measured: str, path: Path) -> tuple[int, int, int]:
    names = [" ".join(name.replace("_", " ").lower().split()) for name in header]
    wanted = ("wall time", "step", measured)
    if any(names.count(name) != 1 for name in wanted):
        raise RecordingError(
            f"{path.name} needs the columns {', '.join(wanted)} once each; found:"
            f" {', '.join(names) or 'none'}"
        )
    at_time, at_step, at_value = (names.index(name) for name in wanted)
    return at_time, at_step, at_value


def _whole(text: str) -> int:
    """A step, which some exports write as `6018.0`."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)
