"""The oldest revision that can be brought up to date."""

revision = "0004"
down_revision = None


def upgrade() -> None:
    """There is nothing before it."""
