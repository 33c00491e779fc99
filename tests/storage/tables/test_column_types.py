from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from syncswitch.storage.tables.base import UtcDateTime

DIALECT = sqlite.dialect()

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(
    min_value=datetime(1970, 1, 3), max_value=datetime(2200, 1, 1), timezones=zones
)


@given(moment=moments)
def test_a_moment_survives_a_database_without_time_zones(moment: datetime) -> None:
    kind = UtcDateTime()
    stored = kind.process_bind_param(moment, DIALECT)
    assert stored is not None
    read = kind.process_result_value(stored.replace(tzinfo=None), DIALECT)
    assert read == moment
    assert read.utcoffset() == timedelta(0)


def test_a_moment_read_in_another_zone_becomes_utc() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    read = UtcDateTime().process_result_value(moment, DIALECT)
    assert str(read) == "2026-01-31 10:00:00+00:00"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="without a time zone"):
        UtcDateTime().process_bind_param(datetime(2026, 1, 31), DIALECT)
