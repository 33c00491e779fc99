"""The default place of the database, in a module without imports for `--help`."""

from __future__ import annotations

import os

DEFAULT_URL = "sqlite:///syncswitch.db"
ENVIRONMENT_VARIABLE = "SYNCSWITCH_STORAGE"


def database_url(given: str | None) -> str:
    """The given URL, or else the one in the environment, or else the default."""
    return given or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_URL
