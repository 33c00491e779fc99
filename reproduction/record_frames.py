"""Rows of whatever kind as a table for pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame


def frame_of_records(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A table of rows with the same columns; a measurement that is missing is NaN."""
    import pandas

    columns = list(rows[0]) if rows else []
    frame: DataFrame = pandas.DataFrame(
        [[float("nan") if row[name] is None else row[name] for name in columns] for row in rows],
        columns=columns,
    )
    return frame
