"""Where the database is when nobody says; light, so that `--help` can tell."""

from __future__ import annotations

DEFAULT_URL = "sqlite:///syncswitch.db"
ENVIRONMENT_VARIABLE = "SYNCSWITCH_STORAGE"
