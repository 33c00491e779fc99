"""Reads a manifest: a CSV file with one recorded run per row, columns by name."""

from __future__ import annotations

import csv
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.files import check_plain_file
from syncswitch.storage.importing.run_logs import LARGEST_STEP
from syncswitch.storage.policies.schema import LARGEST_INTEGER
from syncswitch.storage.records.job import WorkloadIdentity

_LONGEST_SOURCE = 1024  # what its column holds

_Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f]*$")]
_Percent = Annotated[float, Field(ge=0, le=100)]
_Size = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to tell about a row: its line, the run as the manifest names it, and what."""

    line: int
    run: str
    text: str


class ManifestRow(BaseModel):
    """One recorded run.

    Attributes:
        line: Of the manifest, where the row ends.
        setup: What people call the workload.
        run_dir: Folder of its logs; None for a run of which only its divergence is known.
        stands_for_percent: The switch point that it counts for; None if for none.
        diverged: None where its log decides.
        model: These and the following as in `WorkloadIdentity`; None where nobody recorded it.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    line: int
    setup: Annotated[_Text, Field(max_length=255)]
    run_dir: _Text | None = None
    first_protocol: Annotated[_Text, Field(max_length=64)]
    second_protocol: Annotated[_Text, Field(max_length=64)]
    switch_percent: _Percent
    replicate: Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
    workers: _Size
    total_worker_steps: Annotated[int, Field(ge=1, le=LARGEST_STEP)]
    stands_for_percent: _Percent | None = None
    diverged: bool | None = None
    model: _Text | None = None
    data_set: _Text | None = None
    loss: _Text | None = None
    optimizer: _Text | None = None
    batch_size: _Size | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    metric: _Text | None = None

    @property
    def identity(self) -> WorkloadIdentity:
        """The workload on its cluster."""
        details = {name: getattr(self, name) for name in _DETAILS}
        return WorkloadIdentity(
            name=self.setup,
            total_worker_steps=self.total_worker_steps,
            learning_rate_boundaries=None,
            evaluation_interval_worker_steps=None,
            workers=self.workers,
            first_protocol=self.first_protocol,
            second_protocol=self.second_protocol,
            **details,
        )

    @property
    def source(self) -> str:
        """What the run is known by, the same on every machine: no two runs share it."""
        if self.run_dir is not None:
            return f"{self.setup}/{PurePosixPath(self.run_dir)}"
        return (
            f"{self.setup}: {self.workers} workers, {self.first_protocol},{self.second_protocol},"
            f" {self.switch_percent:.12g} %, replicate {self.replicate}"
        )

    def folder(self, logs: Path) -> Path | None:
        """Where the logs are, links followed; None where there are none.

        Raises RecordingError where that is not below `logs`, or named otherwise than from there.
        """
        if self.run_dir is None:
            return None
        path = PurePosixPath(self.run_dir)
        if path.is_absolute():
            raise RecordingError(
                f"run_dir {self.run_dir} is absolute; name it from the folder of the logs"
            )
        try:
            folder = (logs / path).resolve()
        except (OSError, RuntimeError) as error:  # RuntimeError: Python before 3.13, of a loop
            raise RecordingError(
                f"run_dir {self.run_dir} cannot be followed; is it a loop of symbolic links?"
            ) from error
        if ".." in path.parts or not folder.is_relative_to(logs.resolve()):
            raise RecordingError(f"run_dir {self.run_dir} is not below the folder of the logs")
        return folder


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says.

    Attributes:
        rows: Those that can be used, no source twice.
        faults: Those that cannot, and why.
    """

    rows: tuple[ManifestRow, ...]
    faults: tuple[Remark, ...]
    notes: tuple[Remark, ...]


_DETAILS = (
    "model",
    "data_set",
    "loss",
    "optimizer",
    "batch_size",
    "learning_rate",
    "momentum",
    "metric",
)
_NEEDED = (
    "setup",
    "run_dir",
    "first_protocol",
    "second_protocol",
    "switch_percent",
    "replicate",
    "workers",
    "total_worker_steps",
)
_MOST_BYTES = 256 << 20
_KNOWN = frozenset({*_NEEDED, "stands_for_percent", "diverged", *_DETAILS})


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest. A row that cannot be used is a fault, and the others are read all the same.

    Without a column `stands_for_percent` each run counts for its switch point; where the column is
    there but empty, the run counts for no switch point.

    Raises:
        RecordingError: It cannot be read, lacks a column, or has no rows.
    """
    try:
        check_plain_file(path, _MOST_BYTES)
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns = [" ".join(name.lower().split()) for name in next(reader, [])]
            _check_columns(columns, path)
            return _manifest(path, columns, ((reader.line_num, cells) for cells in reader))
    except OSError as error:
        raise RecordingError(f"cannot read the manifest {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordingError(f"the manifest {path} is not UTF-8 text; save it as such") from error
    except csv.Error as error:
        raise RecordingError(
            f"the manifest {path} is not CSV (line {reader.line_num}: {error})"
        ) from error


def _check_columns(columns: Sequence[str], path: Path) -> None:
    missing = [name for name in _NEEDED if name not in columns]
    twice = sorted({name for name in columns if name in _KNOWN and columns.count(name) > 1})
    if missing or twice:
        problem = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(twice)} twice"
        raise RecordingError(
            f"the manifest {path} {problem}; columns found: {', '.join(columns) or 'none'}"
        )


def _manifest(
    path: Path, columns: Sequence[str], lines: Iterator[tuple[int, list[str]]]
) -> Manifest:
    unknown = [name or "(no name)" for name in columns if name not in _KNOWN]
    notes = [Remark(1, "", f"ignored columns: {', '.join(unknown)}")] if unknown else []
    faults = []
    rows: dict[str, ManifestRow] = {}
    for line, cells in lines:
        if not any(cells):
            continue
        try:
            row = _row(line, columns, cells)
            if row.source in rows:
                raise RecordingError(f"the same run as in line {rows[row.source].line}")
            rows[row.source] = row
        except RecordingError as error:
            faults.append(Remark(line, _label(columns, cells), str(error)))
    if not rows and not faults:
        raise RecordingError(f"the manifest {path} lists no run")
    return Manifest(tuple(rows.values()), tuple(faults), tuple(notes))


def _row(line: int, columns: Sequence[str], cells: Sequence[str]) -> ManifestRow:
    if len(cells) != len(columns):
        raise RecordingError(f"{len(cells)} cells for {len(columns)} columns")
    content: dict[str, Any] = {"line": line}
    for name, cell in zip(columns, cells, strict=True):
        if name in _KNOWN and cell.strip():
            content[name] = cell.strip()
    for name in ("first_protocol", "second_protocol", "diverged"):
        if name in content:
            content[name] = content[name].lower()
    if "stands_for_percent" not in columns and "switch_percent" in content:
        content["stands_for_percent"] = content["switch_percent"]
    try:
        row = ManifestRow.model_validate(content)
    except ValidationError as error:
        raise RecordingError(_first(error)) from error
    if row.first_protocol == row.second_protocol:
        raise RecordingError(f"both protocols are {row.first_protocol}; name two different ones")
    if row.run_dir is None and not row.diverged:
        raise RecordingError("run_dir is empty; only a run that diverged may have no logs")
    if len(row.source) > _LONGEST_SOURCE:
        raise RecordingError(f"run_dir is longer than {_LONGEST_SOURCE} characters with its setup")
    return row


def _first(error: ValidationError) -> str:
    """The first fault in a few words, for example `workers is 'x': ...`."""
    fault = error.errors(include_url=False)[0]
    name = ".".join(map(str, fault["loc"]))
    if fault["type"] == "missing":
        return f"{name} is empty"
    message = fault["msg"].removeprefix("Input should be ")
    return f"{name} is {reprlib.repr(fault['input'])}; allowed: {message}"


def _label(columns: Sequence[str], cells: Sequence[str]) -> str:
    """What to call a row that may be incomplete."""
    named = dict(zip(columns, cells, strict=False))
    name = named.get("run_dir") or named.get("setup") or "?"
    return " ".join(name.split())
