"""Types of columns that are the same on every database."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import DateTime, Dialect, String, TypeDecorator

from syncswitch.storage.records.trial import TrialState


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: aware in Python, UTC in the database, which on SQLite knows no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuses naive times: nobody can say later which zone was meant."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a time zone: {value}")
        return value.astimezone(timezone.utc)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Returns the moment in UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc)


class StateText(TypeDecorator[TrialState]):
    """The state of a trial, as readable text."""

    impl = String(16)
    cache_ok = True

    def process_bind_param(self, value: TrialState | None, dialect: Dialect) -> str | None:
        """The text."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> TrialState | None:
        """The state; a database that holds anything else is damaged."""
        return None if value is None else TrialState(value)
