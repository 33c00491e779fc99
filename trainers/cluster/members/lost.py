"""What the chief is told when parts of its cluster are gone."""

from __future__ import annotations


class ServerLostError(Exception):
    """A parameter server is gone, and with it all that was trained since the last copy."""


class WorkerLostError(Exception):
    """A worker is gone, or cannot reach a parameter server."""
