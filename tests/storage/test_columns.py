from __future__ import annotations

from datetime import datetime
from typing import Annotated

import pytest

from syncswitch.storage.columns import (
    FrameColumn,
    TrialFacts,
    columns_of_record,
)


class Record:
    runs: Annotated[int, "how many"]
    mean: Annotated[float | None, "of them"]
    name: Annotated[str, "what people say"]
    is_done: Annotated[bool | None, "or not"]
    software: Annotated[dict[str, str], "versions"]
    at: Annotated[datetime | None, "UTC"]


def test_the_annotations_of_a_record_are_its_columns() -> None:
    assert columns_of_record(Record) == (
        FrameColumn("runs", int, False, "how many"),
        FrameColumn("mean", float, True, "of them"),
        FrameColumn("name", str, False, "what people say"),
        FrameColumn("is_done", bool, True, "or not"),
        FrameColumn("software", dict, False, "versions"),
        FrameColumn("at", datetime, True, "UTC"),
    )


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("trial_id", "int64"),
        ("seed", "Int64"),  # a float would round it
        ("training_seconds", "float64"),
        ("switch_percent", "float64"),
        ("diverged", "boolean"),  # three answers: nobody knows it of a run under way
        ("workload", "string"),
        ("failure", "string"),
        ("software", "string"),
        ("started_at", "datetime64[us, UTC]"),  # the databases keep microseconds
    ],
)
def test_each_kind_of_value_has_its_type_in_pandas(name: str, dtype: str) -> None:
    (column,) = (column for column in columns_of_record(TrialFacts) if column.name == name)
    assert column.dtype == dtype
