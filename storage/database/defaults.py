"""The usual place of the database, and the patience with it; imports nothing, for `--help`."""

from __future__ import annotations

import os

DEFAULT_URL = "sqlite:///syncswitch.db"
ENVIRONMENT_VARIABLE = "SYNCSWITCH_STORAGE"

RESTART_SECONDS = 120.0
"""How long to wait for a server that is away; the results of a long run are worth it."""


def database_url(given: str | None) -> str:
    """The given URL, or else the one in the environment, or else the default."""
    return given or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_URL
