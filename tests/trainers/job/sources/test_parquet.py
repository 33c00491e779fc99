from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.parquet import ParquetFiles


def write(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path, row_group_size=2)
    return path


def test_columns_come_as_arrays(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a",
        number=[1, 2, 3],
        text=["a", "b", "c"],
        raw=[b"x", b"", b"z"],
        list=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        fixed=pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.int32()), 2),
    )
    source = ParquetFiles(path, ["fixed", "list", "raw", "text", "number"])
    assert (source.examples, list(source.blocks)) == (3, [2, 1])
    fixed, lists, raw, text, number = source.read(np.array([2, 0]))
    np.testing.assert_array_equal(fixed, [[4, 5], [0, 1]])
    np.testing.assert_array_equal(lists, [[5.0, 6.0], [1.0, 2.0]])
    assert (list(raw), list(text), list(number)) == ([b"z", b"x"], [b"c", b"a"], [3, 1])
    assert (fixed.dtype, number.dtype) == (np.int32, np.int64)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1], [1, 2], [1]], "column 'x' of .* has lists of unequal lengths$"),
        ([1, None, 2], "column 'x' of .* has rows without a value$"),
    ],
)
def test_columns_that_are_no_arrays_are_refused(
    tmp_path: Path, values: list[Any], words: str
) -> None:
    source = ParquetFiles(write(tmp_path / "a", x=values), ["x"])
    with pytest.raises(WorkloadError, match=words):
        source.read(np.array([0]))


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a", x=[1], y=[2])
    with pytest.raises(WorkloadError, match=f"{path} has no column 'z'; it has x, y$"):
        ParquetFiles(path, ["x", "z"])
    path.write_text("no Parquet")
    with pytest.raises(WorkloadError, match=f"{path} is no Parquet file: "):
        ParquetFiles(path, ["x"])
    with pytest.raises(WorkloadError, match="holds no rows"):
        ParquetFiles(write(path, x=pa.array([], pa.int64())), ["x"])
