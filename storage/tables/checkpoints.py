"""The table of the files that trials left for others to begin with."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from syncswitch.storage.tables.base import Base
from syncswitch.storage.tables.trials import TrialRow


class CheckpointRow(Base):
    """A checkpoint that a complete trial left on the disk of a host."""

    __tablename__ = "syncswitch_checkpoints"
    __table_args__ = (CheckConstraint("percent BETWEEN 0 AND 100", name="percent"),)

    trial_id: Mapped[int] = mapped_column(ForeignKey(TrialRow.trial_id), primary_key=True)
    percent: Mapped[float] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(Text)
    host: Mapped[str] = mapped_column(String(255))
