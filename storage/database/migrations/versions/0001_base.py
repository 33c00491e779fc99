"""The tables of the first release, which the models make: nothing is older."""

from __future__ import annotations

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Nothing to do."""
