"""Writes tables as CSV, JSON and Parquet, block by block in bounded memory.

CSV and Parquet have the columns of `frames.COLUMNS`. In CSV a missing value is empty, times are
ISO 8601 in UTC, software is JSON, and control characters are escaped. In JSON, infinite numbers
become null.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO

from syncswitch.storage.errors import UserError, escaped
from syncswitch.storage.frames import COLUMNS, FrameName, frame_of

Blocks = Iterable[Sequence[Sequence[Any]]]

_JSON = json.JSONEncoder(allow_nan=False, default=datetime.isoformat)


def beginnings() -> tuple[bytes, ...]:
    """Returns the possible first bytes of such files, in any format."""
    headers = (_lines([[column.name for column in columns]]) for columns in COLUMNS.values())
    documents = {f'[\n{{"{columns[0].name}":' for columns in COLUMNS.values()}
    return (b"[]\n", b"PAR1", *(one.encode() for one in (*documents, *headers)))


def write_text(file: BinaryIO, texts: Iterable[str]) -> None:
    """Writes the texts of `csv_text` or `json_text`."""
    for text in texts:
        file.write(text.encode())


def csv_text(name: FrameName, blocks: Blocks) -> Iterator[str]:
    """Yields a table as CSV, with a header; rows have their values in the order of the columns."""
    yield _lines([[column.name for column in COLUMNS[name]]])
    for block in blocks:
        yield _lines([_cell(value) for value in row] for row in block)


def json_text(documents: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields documents as a JSON array, each on a line of its own."""
    before = "[\n"
    for document in documents:
        yield before + _document(document)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def write_parquet(name: FrameName, blocks: Blocks, file: BinaryIO) -> None:
    """Writes a table as Parquet; pandas reads it with the same types.

    Raises UserError if pyarrow is missing.
    """
    empty = frame_of(name, ())
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "Parquet needs pyarrow, which is missing; run: pip install 'syncswitch[parquet]'",
            code="package-missing",
        ) from error
    schema = pyarrow.Schema.from_pandas(empty, preserve_index=False)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for block in blocks:
            frame = frame_of(name, block)
            writer.write_table(pyarrow.Table.from_pandas(frame, schema, preserve_index=False))


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        # With all digits, as readers expect all times in the format of the first one.
        return value.isoformat(timespec="microseconds")
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return escaped(value) if isinstance(value, str) else value


def _document(document: Mapping[str, Any]) -> str:
    try:
        return _JSON.encode(document)
    except ValueError:
        return _JSON.encode(_finite(document))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
