"""CSV, JSON and Parquet: each is read again by another program."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import Select

from syncswitch.storage import frames
from syncswitch.storage.database.engine import Database
from syncswitch.storage.export import tables
from syncswitch.storage.queries import run_rows

QUERIES: list[tuple[frames.FrameName, Select[Any]]] = [
    ("trials", run_rows.trials({})),
    ("trials", run_rows.trials({"trial_ids": []})),
    ("evaluations", run_rows.evaluations({})),
    ("evaluations", run_rows.evaluations({"trial_ids": []})),
]


def read_csv(name: frames.FrameName, text: str) -> pd.DataFrame:
    """As an analyst reads it, with the types that are documented."""
    dtypes = {column.name: frames.dtype_of(column) for column in frames.COLUMNS[name]}
    times = [column for column, dtype in dtypes.items() if dtype.startswith("datetime")]
    frame = pd.read_csv(
        io.StringIO(text),
        dtype={column: dtype for column, dtype in dtypes.items() if column not in times},
        parse_dates=times,
        keep_default_na=False,
        na_values=[""],
    )
    return frame.astype(dtypes)


@pytest.mark.parametrize(("name", "query"), QUERIES)
def test_csv_and_parquet_are_read_as_the_same_table(
    filled: Database, folder: Path, name: frames.FrameName, query: Select[Any]
) -> None:
    rows = [row for block in filled.row_blocks(query) for row in block]
    expected = frames.frame_of(name, rows)
    text = "".join(tables.csv_text(name, filled.row_blocks(query, rows_at_once=3)))
    assert len(list(csv.reader(io.StringIO(text)))) == 1 + len(rows)
    # pandas itself rounds the last digit of some numbers that it reads.
    found = read_csv(name, text)
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-14)
    path = folder / "table.parquet"
    with path.open("wb") as file:
        tables.write_parquet(name, filled.row_blocks(query, rows_at_once=3), file)
    pd.testing.assert_frame_equal(pd.read_parquet(path), expected, check_exact=True)


def test_what_is_missing_is_empty_in_csv() -> None:
    columns = [column.name for column in frames.COLUMNS["trials"]]
    row = dict.fromkeys(columns)
    moment = datetime(2026, 1, 31, tzinfo=timezone.utc)
    row |= {"trial_id": 7, "diverged": False, "started_at": moment, "failure": 'a "b",\nc'}
    header, line = csv.reader(io.StringIO("".join(tables.csv_text("trials", [[row.values()]]))))
    assert header == columns
    shown = {name: cell for name, cell in zip(columns, line, strict=True) if cell}
    assert shown == {
        "trial_id": "7",
        "diverged": "false",
        "started_at": "2026-01-31T00:00:00.000000+00:00",
        "failure": 'a "b",\nc',
    }


def test_json_is_an_array_with_one_document_in_each_line() -> None:
    moment = datetime(2026, 1, 31, tzinfo=timezone.utc)
    documents = [
        {"at": moment, "loss": math.inf, "phases": [{"seconds": -math.inf}], "text": "ä\n"},
        {"at": None, "loss": 0.1, "phases": [], "text": ""},
    ]
    text = "".join(tables.json_text(documents))
    assert json.loads(text) == [
        {"at": "2026-01-31T00:00:00+00:00", "loss": None, "phases": [{"seconds": None}]}
        | {"text": "ä\n"},
        {"at": None, "loss": 0.1, "phases": [], "text": ""},
    ]
    assert len(text.splitlines()) == 4
    assert json.loads("".join(tables.json_text([]))) == []


def test_blocks_are_taken_one_by_one() -> None:
    taken = iter([[[1] * len(frames.COLUMNS["evaluations"])]] * 3)
    texts = tables.csv_text("evaluations", taken)
    next(texts)
    next(texts)
    documents = tables.json_text({"number": row[0]} for block in taken for row in block)
    next(documents)
    assert len(list(taken)) == 1


def test_no_text_in_csv_controls_a_terminal() -> None:
    row = ["\x1b[2Jü\r\x9b\u202e\t\n"] * len(frames.COLUMNS["events"])
    text = "".join(tables.csv_text("events", [[row]]))
    _, read = csv.reader(io.StringIO(text))
    assert read == [r"\x1b[2Jü\r\x9b\u202e" + "\t\n"] * len(row)
