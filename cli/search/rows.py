"""Shared parts of the commands that list rows: WORKLOAD, --format, -o, limited tables."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

import click

from syncswitch.cli.completion import complete_workload
from syncswitch.cli.console import Row, echo, print_note
from syncswitch.searcher.words import (
    accuracy_around,
    named_text,
    percent_text,
    seconds_text,
    value_text,
)
from syncswitch.storage.errors import UserError
from syncswitch.storage.files import whole_file
from syncswitch.trainers.job.loading import normal_reference

if TYPE_CHECKING:
    from syncswitch.searcher.comparison import EvaluatedSwitchPoint
    from syncswitch.searcher.speed_up import SpeedUp
    from syncswitch.storage.records.metric import Metric

optional_workload = click.argument(
    "reference", metavar="[WORKLOAD]", required=False, shell_complete=complete_workload
)


output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.  [default: standard output]",
)


def selector_of(reference: str | None) -> str | None:
    """The name of the workload in the database; None for all workloads."""
    return None if reference is None else normal_reference(reference)


def nothing_found(reference: str | None, what: str = "search") -> str:
    """The message if there is nothing to show."""
    of = f" of {reference}" if reference else ""
    return f"no {what}{of} here; start one with: syncswitch-search run {reference or 'WORKLOAD'}"


_Row = TypeVar("_Row")
_MOST_ROWS = 1000  # in a table for people


class Newest(Generic[_Row]):
    """The rows of a table for people: the newest thousand."""

    def __init__(self, rows: Iterable[_Row]) -> None:
        self.rows: deque[_Row] = deque(maxlen=_MOST_ROWS)
        self._number = 0
        for row in rows:
            self.rows.append(row)
            self._number += 1

    def print_rest(self) -> None:
        """Says how to get the rows that are not shown, if there are any."""
        if self._number > _MOST_ROWS:
            echo(f"\nthe newest {_MOST_ROWS:,} of {self._number:,}; all of them: --format csv")


def chosen_format(
    format_name: str | None,
    output: Path | None,
    as_json: bool,
    files: str,
    only_files: Mapping[str, bool] | None = None,
) -> str:
    """The format of `--format` and `--json`.

    Raises:
        UserError: They contradict each other.
    """
    if as_json and format_name not in {None, "json"}:
        raise UserError(f"--json and --format {format_name} contradict each other; give one")
    kind = "json" if as_json else format_name or "table"
    for option, is_given in {"--output": output is not None, **(only_files or {})}.items():
        if is_given and kind == "table":
            raise UserError(f"{option} goes with --format {files}; give one of them")
    return kind


def write_rows(what: str, output: Path | None, write: Callable[[BinaryIO], None]) -> None:
    """Writes rows to a file, completely or not at all, or to standard output."""
    # Slow to import, and not needed for tables.
    from syncswitch.storage.export.tables import beginnings

    if output is None:
        write(sys.stdout.buffer)
        return
    with whole_file(output, replaces=beginnings()) as file:
        write(file)
    print_note(f"{what} written to {output}")


def point_cells(
    point: EvaluatedSwitchPoint,
    metric: Metric,
    kept_runs: int | None,
    speed_up: SpeedUp | None,
    title: str,
) -> Row:
    """The cells for the runs of a switch point; `title` is that of the metric's column."""
    accuracy = accuracy_around(point.mean_accuracy, point.accuracy_half_width, metric)
    return [
        ("switch at", percent_text(point.switch_percent)),
        ("runs", str(point.runs)),
        ("diverged", str(point.diverged_runs)),
        ("kept", value_text(kept_runs, "d")),
        (title, named_text(accuracy, metric, title)),
        ("seconds", seconds_text(point.training_seconds)),
        ("times as fast", value_text(speed_up.value if speed_up else None, ".2f")),
    ]


def point_as_json(
    point: EvaluatedSwitchPoint, metric: Metric, kept_runs: int | None, speed_up: SpeedUp | None
) -> dict[str, Any]:
    """The runs of a switch point for JSON; null if a value is unknown or all runs diverged."""
    return {
        **metric.with_values(dataclasses.asdict(point)),
        "kept_runs": kept_runs,
        "speed_up": speed_up.value if speed_up else None,
        "speed_up_low": speed_up.low if speed_up else None,
        "speed_up_high": speed_up.high if speed_up else None,
    }
