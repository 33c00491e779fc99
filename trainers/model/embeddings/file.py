"""Embeddings in files, as arrays of an npz file that are written and read block by block."""

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
from syncswitch.trainers.model.embeddings.initial import block_rows
from syncswitch.trainers.model.layout import EmbeddingBlock, EmbeddingSource, Vector

LIST = "embeddings"
"""Array of an npz file that says which others are embeddings."""


@dataclass(frozen=True)
class EmbeddingForm:
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


def listed(forms: Sequence[EmbeddingForm]) -> str:
    """What `LIST` holds."""
    return json.dumps([asdict(form) for form in forms])


def forms_of(text: str) -> tuple[EmbeddingForm, ...]:
    """What `listed` was given."""
    return tuple(
        EmbeddingForm(one["name"], tuple(one["slots"]), one["rows"], one["width"])
        for one in json.loads(text)
    )


def write_embeddings(
    file: IO[bytes], forms: Sequence[EmbeddingForm], source: EmbeddingSource
) -> None:
    """Adds embeddings to an npz file."""
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


class StoredEmbeddings(EmbeddingSource):
    """Embeddings of a file, which stay readable after it was removed or replaced.

    Args:
        file: An npz file.
        forms: Of its embeddings.
    """

    def __init__(self, file: IO[bytes], forms: Sequence[EmbeddingForm]) -> None:
        self._file = file
        self.forms = tuple(forms)

    @classmethod
    def of(cls, path: Path, forms: Sequence[EmbeddingForm]) -> StoredEmbeddings:
        """Of a file with a name."""
        return cls(path.open("rb"), forms)

    @classmethod
    def copied(cls, forms: Sequence[EmbeddingForm], source: EmbeddingSource) -> StoredEmbeddings:
        """A copy, in the folder for temporary files, of embeddings that change."""
        file = tempfile.TemporaryFile(prefix="syncswitch-embeddings-")  # noqa: SIM115 (it stays open)
        write_embeddings(file, forms, source)
        file.flush()
        return cls(file, forms)

    @override
    def blocks(self, *, skips_initial: bool = False) -> Iterator[EmbeddingBlock]:
        # Opened again: others may read at the same time, each at a place of its own.
        with ZipFile(f"/proc/self/fd/{self._file.fileno()}") as archive:
            for number, form in enumerate(self.forms):
                for part, name in enumerate(form.members):
                    with archive.open(f"{name}.npy") as member:
                        _check_header(member, form)
                        for start in range(0, form.rows, block_rows(form.width)):
                            rows = min(block_rows(form.width), form.rows - start)
                            values = _read(member, rows, form.width)
                            yield EmbeddingBlock(number, part, start, values)


class NoRoomForEmbeddingsError(UserError):
    """A copy of embeddings cannot be written."""


def kept_embeddings(forms: Sequence[EmbeddingForm], source: EmbeddingSource) -> EmbeddingSource:
    """A copy of embeddings that change, in the folder for temporary files.

    Raises:
        NoRoomForEmbeddingsError: There is no place for it.
    """
    try:
        return StoredEmbeddings.copied(forms, source)
    except OSError as error:
        raise NoRoomForEmbeddingsError(
            f"a copy of the embeddings cannot be written to {tempfile.gettempdir()}:"
            f" {error.strerror or one_line(error)}; make room there, or name another folder by the"
            " variable TMPDIR"
        ) from error


def _check_header(member: IO[bytes], form: EmbeddingForm) -> None:
    np.lib.format.read_magic(member)
    shape, _, kind = np.lib.format.read_array_header_1_0(member)
    if shape != (form.rows, form.width) or kind != np.float32:
        raise ValueError(f"{form.name} has shape {shape}, not {(form.rows, form.width)}")


def _read(member: IO[bytes], rows: int, width: int) -> Vector:
    content: Any = member.read(4 * rows * width)
    return np.frombuffer(content, np.float32).reshape(rows, width)
