"""What all tables have in common."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, Double, MetaData
from sqlalchemy.orm import DeclarativeBase

from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.column_types import StateText, UtcDateTime

TABLE_PREFIX = "syncswitch_"

_NAMES = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}


class Base(DeclarativeBase):
    """Holds the metadata of all tables of this project."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012
        float: Double(),
        datetime: UtcDateTime(),
        dict[str, str]: JSON(),
        TrialState: StateText(),
    }
