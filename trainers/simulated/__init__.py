"""A cluster on a virtual clock: real gradients, true staleness, the same protocols."""

from __future__ import annotations

__all__ = ["DEFAULT_PROFILE"]

DEFAULT_PROFILE = "uniform"
"""Name of the cluster that is simulated where none is chosen."""
