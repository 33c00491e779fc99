"""Tables in files, as arrays of an npz file that are written and read block by block."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import UserError, one_line
from syncswitch.trainers.model.layout import TableBlock, TableSource, Vector
from syncswitch.trainers.model.tables.initial import block_rows

LIST = "tables"
"""Array of an npz file that says which others are tables."""


@dataclass(frozen=True)
class TableForm:
    """Of one table in a file.

    Attributes:
        name: Of its values, as of other parameters.
        slots: Names of the optimizer's slots.
        rows: How many.
        width: Values of each.
    """

    name: str
    slots: tuple[str, ...]
    rows: int
    width: int

    @property
    def members(self) -> tuple[str, ...]:
        """Arrays of the file, part by part."""
        slots = (f"slots/{self.name}/{slot}" for slot in self.slots)
        return f"parameters/{self.name}", *slots


def listed(forms: Sequence[TableForm]) -> str:
    """What `LIST` holds."""
    return json.dumps([asdict(form) for form in forms])


def forms_of(text: str) -> tuple[TableForm, ...]:
    """What `listed` was given."""
    return tuple(
        TableForm(one["name"], tuple(one["slots"]), one["rows"], one["width"])
        for one in json.loads(text)
    )


def write_tables(file: IO[bytes], forms: Sequence[TableForm], source: TableSource) -> None:
    """Adds tables to an npz file."""
    with ZipFile(file, "a", ZIP_STORED) as archive:
        for (table, part), blocks in groupby(source.blocks(), lambda one: (one.table, one.part)):
            form = forms[table]
            with archive.open(f"{form.members[part]}.npy", "w", force_zip64=True) as member:
                header = {
                    "descr": "<f4",
                    "fortran_order": False,
                    "shape": (form.rows, form.width),
                }
                np.lib.format.write_array_header_1_0(member, header)
                for block in blocks:
                    member.write(np.ascontiguousarray(block.values).data.cast("B"))


class StoredTables(TableSource):
    """Tables of a file, which stay readable after it was removed or replaced.

    Args:
        file: An npz file.
        forms: Of its tables.
    """

    def __init__(self, file: IO[bytes], forms: Sequence[TableForm]) -> None:
        self._file = file
        self.forms = tuple(forms)

    @classmethod
    def of(cls, path: Path, forms: Sequence[TableForm]) -> StoredTables:
        """Of a file with a name."""
        return cls(path.open("rb"), forms)

    @classmethod
    def copied(cls, forms: Sequence[TableForm], source: TableSource) -> StoredTables:
        """A copy, in the folder for temporary files, of tables that change."""
        file = tempfile.TemporaryFile(prefix="syncswitch-tables-")  # noqa: SIM115 (it stays open)
        write_tables(file, forms, source)
        file.flush()
        return cls(file, forms)

    @override
    def blocks(self, *, skips_initial: bool = False) -> Iterator[TableBlock]:
        # Opened again: others may read at the same time, each at a place of its own.
        with ZipFile(f"/proc/self/fd/{self._file.fileno()}") as archive:
            for number, form in enumerate(self.forms):
                for part, name in enumerate(form.members):
                    with archive.open(f"{name}.npy") as member:
                        _check_header(member, form)
                        for start in range(0, form.rows, block_rows(form.width)):
                            rows = min(block_rows(form.width), form.rows - start)
                            values = _read(member, rows, form.width)
                            yield TableBlock(number, part, start, values)


class NoRoomForTablesError(UserError):
    """A copy of embedding tables cannot be written."""


def kept_tables(forms: Sequence[TableForm], source: TableSource) -> TableSource:
    """A copy of tables that change, in the folder for temporary files.

    Raises:
        NoRoomForTablesError: There is no place for it.
    """
    try:
        return StoredTables.copied(forms, source)
    except OSError as error:
        raise NoRoomForTablesError(
            f"a copy of the embedding tables cannot be written to {tempfile.gettempdir()}:"
            f" {error.strerror or one_line(error)}; make room there, or name another folder by the"
            " variable TMPDIR"
        ) from error


def _check_header(member: IO[bytes], form: TableForm) -> None:
    np.lib.format.read_magic(member)
    shape, _, kind = np.lib.format.read_array_header_1_0(member)
    if shape != (form.rows, form.width) or kind != np.float32:
        raise ValueError(f"{form.name} has shape {shape}, not {(form.rows, form.width)}")


def _read(member: IO[bytes], rows: int, width: int) -> Vector:
    content: Any = member.read(4 * rows * width)
    return np.frombuffer(content, np.float32).reshape(rows, width)
